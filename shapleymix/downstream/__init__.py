"""Downstream tasks: what the losses of runs say of their scores, and mixtures that are chosen for scores.

Modules, in reading order:

  transforms   what a loss is turned into before a line is drawn through the scores, and whether that keeps convexity
  tasks        which task and which target the name of an evaluation means
  scores       scores of runs: a table of them, checked with every fault at its place
  harness      the folders that lm-eval writes, as such a table
  lines        a line or a sigmoid through the scores of one task: fitted, held out, with its intervals
  calibrations  what is known of each task: its line with its errors, and all tasks of a log together
  calibrating  every task of a log calibrated, by the transform that predicts held-out runs best
  pieces       error rates of tasks as pieces of the mixture, and when they are convex
  doubts       how unsure error rates are: scatter, other regimes, and lines drawn at random
  scoring      a fit and its calibrated tasks as a fit that predicts error rates
"""
