"""From run logs to fitted laws, predictions and comparisons; modules are nouns, and none knows the mixing wing.

Modules, in reading order:

  settings          how to fit and compare: every default, once
  evidence          what a fit gets to see, and what was left out
  least_squares     robust nonlinear least squares for many small problems at once; knows no law
  symbols           a law's symbols as the vectors that the search works on: layout, starts, beliefs, what no run tells
  estimation        one law put to weighted evidence, and from nothing, or from a finished fit, to a law, in one batch
  repetition        what a fit knows of repeated tokens: their worth and harm, told by the log or published
  coverage          where a fit has data, and how far points lie from them
  study             what fitting and comparing both run on, and what cross-validation chose that a law believes
  residual          what a law misses of mixtures, by what it missed of those of the runs
  held_out          held-out predictions of laws and black boxes, and how well they match losses
  noise             how runs scatter about a law: one model of log losses
  surface           all that is known of losses at one budget: values, joint samples, convex pieces
  prediction        predicted losses with intervals and warnings, and how points are spelt
  questions         what a fit asks of its log: losses far from the law, recipes and orders that explain residuals
  one_law           one law fitted to one study: the law, its replicates, its errors and its noise
  regimes           runs with and without a target's own language, and a law fitted to each
  comparison        every law on the same held-out runs
  fit               from logs to a fitted law, and what it answers
  borrowed_sources  sources without runs, each taken to be like one that runs hold
"""
