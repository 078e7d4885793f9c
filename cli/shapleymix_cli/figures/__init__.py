"""The figures of `shapleymix plot`, a file for each source of what they show.

Modules, in reading order:

  drawing   what all have: where a figure goes, its caption on the screen, its numbers as JSON
  matrices  `plot transfer` and `plot agreement`: transfer matrices, alone and against each other
  fits      `plot fit`: losses against Theta, or against the prediction
  curves    `plot learning-curve`: the held-out error of a law against the number of mixtures
  saved     `plot compare`, `plot mixture`, `plot downstream`, `plot frontier` and `plot design`: what a command saved
"""
