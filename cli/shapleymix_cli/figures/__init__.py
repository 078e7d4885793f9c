"""The figures of `shapleymix plot`, a file for each source of what they show.

Modules, in reading order:

  drawing   what all have: where a figure goes, its caption on the screen, its numbers as JSON
  matrices  `plot transfer` and `plot agreement`: transfer matrices, alone and against each other
  fits      `plot fit`: losses against Theta, or against the prediction
  laws      `plot compare` and `plot learning-curve`: held-out errors of laws, and of one against the runs
  mixtures  `plot mixture`, `plot frontier` and `plot design`: mixtures that were found, and those to train
"""
