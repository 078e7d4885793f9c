"""One file a command.

Modules, in reading order:

  baselines  `shapleymix baselines`: mixtures that need no law, with the epochs they make of each source
  collect    `shapleymix collect`: the finished runs of a plan as one run log, and what is missing
  compare    `shapleymix compare`: several laws on the same held-out runs
  evaluate   `shapleymix evaluate`: a fit against runs that it has not seen
  example    `shapleymix example`: the small tables on which the examples of every help run
  fit        `shapleymix fit`: from run logs to a fitted law
  import     `shapleymix import`: the runs that other tools have kept, as a run log
  launch     `shapleymix launch`: all runs of a plan, so many at a time; again, to resume
  laws       `shapleymix laws`: the laws there are
  optimize   `shapleymix optimize`: the best mixture at a budget, with its certificate
  plan       `shapleymix plan`: what to train next
  plot       `shapleymix plot`: figures of results, as PNG, SVG or PDF
  predict    `shapleymix predict`: losses of mixtures, with intervals, and which of several is better
  run        `shapleymix run`: one run of a plan, for any scheduler
  shapley    `shapleymix shapley`: from coalition runs to a transfer matrix
  transfer   `shapleymix transfer`: show a transfer matrix, compare two, calibrate one
"""
