"""Engines take a problem and return p, nothing else.

Modules, in reading order:

  objective       the weighted objective at interior mixtures: gradient and curvature
  newton          Newton directions under the unit sum, batched
  barrier         the batched primal-dual barrier method on the capped simplex
  interior_point  one problem with groups, or with the worst-case objective
  cone            constraints that a user writes, by cvxpy; its only importer
  search          laws without convexity: many starts, no certificate
  solving         which engine solves which problem
"""
