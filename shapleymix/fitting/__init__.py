"""From run logs to fitted laws, predictions and comparisons; modules are nouns, and none knows the mixing wing.

Modules, in reading order:

  settings        how to fit and compare: every default, once
  coverage        where a fit has data, target by target, and what is to be said of points outside of it
  evidence        what a fit gets to see, what was left out, and what should be questioned
  least_squares   robust nonlinear least squares for many small problems at once; knows no law
  unknowns        a law's symbols as the vectors that the search works on: layout, starts, beliefs, thin sources
  exponents       what one or two values of N or D leave open, taken from public runs
  estimation      fit one law to weighted evidence in one batch, and choose what it believes by cross-validation
  status          whether there are runs enough for a law, and how its fit ended for each target
  scores          how well predictions match losses: PE, R2, rank correlation, coverage
  noise           how runs scatter about a law: one model of log losses
  surface         all that is known of losses at one budget: values, joint samples, convex pieces
  prediction      predicted losses or scores with intervals and warnings, and how points are spelt
  study           what fitting and comparing both run on: the evidence, the inputs, how to fit, and the seed
  repetition      what repeated tokens are worth: told by the log where it repeats any, else published
  candidates      what a comparison takes: laws, black boxes, fixed predictors
  fitted          one law fitted to one study, with its replicates and its errors
  regimes         whether runs without a target's own language are another regime, and the fits of both
  comparison      every law on the same held-out runs, and which of them `auto` takes
  learning_curve  how far more runs would bring the held-out error
  fits            what a fit answers: the law with its error bars, its surface at any budget, its score on any log
  fit             from logs to a fitted law: its choice, its regimes, its errors
  likeness        sources without runs, each taken to be like one that runs hold
"""
