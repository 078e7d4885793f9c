"""One file a command.

Modules, in reading order:

  baselines  `shapleymix baselines`: mixtures that need no law, with the epochs they make of each source
  collect    `shapleymix collect`: the finished runs of a plan as one run log, and what is missing
  compare    `shapleymix compare`: several laws on the same held-out runs
  completion  `shapleymix completion`: what a shell reads to complete commands, options, laws and languages
  doctor     `shapleymix doctor`: whether all is there that a run needs
  downstream  `shapleymix downstream`: scores on tasks as a function of losses
  evaluate   `shapleymix evaluate`: a fit against runs that it has not seen
  example    `shapleymix example`: the small tables on which the examples of every help run
  export     `shapleymix export`: a mixture in the form that a trainer takes
  fit        `shapleymix fit`: from run logs to a fitted law
  import     `shapleymix import`: the runs that other tools have kept, as a run log
  launch     `shapleymix launch`: all runs of a plan, so many at a time; again, to resume
  laws       `shapleymix laws`: the laws there are
  optimize   `shapleymix optimize`: the best mixture at a budget, with its certificate
  plan       `shapleymix plan`: what to train next
  plot       `shapleymix plot`: figures of results, as PNG, SVG or PDF
  predict    `shapleymix predict`: losses of mixtures, with intervals, and which of several is better
  report     `shapleymix report`: one page about a fit, on which the question can be moved
  run        `shapleymix run`: one run of a plan, for any scheduler
  shapley    `shapleymix shapley`: from coalition runs to a transfer matrix
  transfer   `shapleymix transfer`: show a transfer matrix, compare two, calibrate one
"""
