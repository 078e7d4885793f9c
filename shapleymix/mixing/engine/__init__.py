"""Engines take a problem and return p, nothing else.

Modules, in reading order:

  objective       the weighted objective at interior mixtures: gradient and curvature
  newton          Newton directions under the unit sum, batched
  barrier         the batched primal-dual barrier method on the capped simplex
  cone            constraints that a user writes, by cvxpy; its only importer
  search          laws without convexity: many starts, no certificate
  rows            all bounds as the rows of one system
  program         one problem as a smooth convex program for the interior point: values and derivatives
  interior_point  one problem with groups, or with the worst-case objective
  envelopes       error rates that are not convex in the mixture, and the convex functions below them
  branching       such a problem by branch and bound: the best mixture that was found, and how good any can be
  solving         which engine solves which problem
"""
