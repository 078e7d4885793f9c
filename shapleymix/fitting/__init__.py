"""From run logs to fitted laws, predictions and comparisons; modules are nouns, and none knows the mixing wing.

Modules, in reading order:

  settings        how to fit and compare: every default, once
  coverage        where a fit has data, target by target, and which points lie outside
  extrapolation   words for points outside of what was fitted
  magnitudes      numbers that a law can be fitted to, or the place of each that is none; budgets that are one
  packing         between a law's named symbols and the vectors that the search works on
  starts          starting points by variable projection
  unseen          sources that the runs show too little of: their coefficients are drawn, not estimated
  exponents       what one or two values of N or D leave open, taken from public runs
  curvature       the curvature of many small least-squares problems, and the step within a box that it asks for
  least_squares   robust nonlinear least squares for many small problems at once; knows no law
  beliefs         what is believed of a law's unknowns before any run, as the search takes it
  scores          how well predictions match losses: PE, R2, rank correlation, coverage
  repetition      what a fit knows of repeated tokens: their worth, and the epochs of its runs
  cells           what held-out losses of one N and D have in common, and how much they scatter there
  uncertainty     intervals of predicted losses, from replicates and held-out scatter
  parameters      the fitted symbols of a law as rows, each with its interval
  misfit          how held-out losses scatter about a law beyond its replicates: a field over mixtures
  measures        what predicted numbers are called: losses in nats, or scores of tasks
  prediction      predicted losses with intervals and warnings
  questions       what fits in silence and should be questioned: units, means, corrupted rows
  evidence        what a fit gets to see, and what was left out
  estimation      fit one law to weighted evidence: every target, start and replicate in one batch
  tuning          what a law believes, chosen by cross-validation and pooled over targets
  study           what fitting and comparing both run on: the evidence, the inputs, how to fit, and the seed
  rates           the rate at which repeated tokens lose their worth: told by the log, or published
  identification  which symbols a fit cannot tell, because the objective stays where it is while they move
  standing        how a fit ended for each target, with advice: a status is a value, never swallowed
  requirements    whether there are runs enough for the numbers that a law fits
  candidates      what a comparison takes: laws, black boxes, fixed predictors
  fitted          one law fitted to one study, with its replicates
  residuals       how far a fitted law is from the losses that it was fitted to, and from those that it did not see
  absent          what tells the losses of runs without a target's own language, where they are another regime
  parting         whether a log has two such regimes, and the fits of both
  comparisons     what a comparison of laws answers, and which law `auto` takes by it
  comparison      every law on the same held-out runs, and how sure it is that one beats another
  learning_curve  how far more runs would bring the held-out error
  fits            what a fit answers: the law with its error bars, what is not known, what it predicts
  fit             from logs to a fitted law: its choice, its regimes, its errors
  likeness        sources without runs, each taken to be like one that runs hold
  evaluation      a saved fit against a log that it may never have seen
"""
