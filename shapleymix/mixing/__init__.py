"""From a fitted law and a budget to a mixture with a proof.

Modules, in reading order:

  groups        bounds on the summed ratio of some sources, as they are written: en+de<=0.3
  polytope      what a mixture must obey: every bound as a row, what to do where they leave no mixture
  weights       what each target counts for in the objective
  goal          what an engine minimises: pieces of a law, weights, bounds, a pull towards a mixture
  barrier       the batched engine: Newton's method inside of bounds on single ratios
  descent       quadratic programs in turn, for rows, balls and the worst case
  cone          cvxpy, for constraints that a user writes
  proof         how far from optimal a mixture can be, whoever made it: a bound from the pieces alone
  search        laws without convexity: a search, and no proof
  solving       which engine takes a goal, and exact zeros in its answer
  closed_forms  the paper's closed forms, for reproduction
  question      what is asked, as it stands: surface, weights, bounds, and the regimes of losses
  mixture       what an optimisation answers: the mixture with its proof, its intervals and its rivals
  prices        what other bounds or other tokens would bring, each by solving that problem
  answer        from a solved question to the mixture that is reported
  candidates    which of several mixtures is better at one budget
  frontier      the trade-off between the mean losses of two sets of targets
  problem       the front door: `problem` and the functions that share its keywords
  compute       N, D and the mixture together under a compute budget
"""
