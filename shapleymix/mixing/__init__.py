"""From a fitted law and a budget to a mixture with a proof.

Modules, in reading order:

  polytope      what a mixture must obey: every bound as a row, what to do where they leave no mixture
  bounds        bounds as people write them (en+de<=0.3), and the polytope that they make
  goal          what an engine minimises: what each target counts, pieces of a law, bounds, a pull towards a mixture
  barrier       the batched engine: Newton's method inside of bounds on single ratios
  descent       quadratic programs in turn, for rows, balls and the worst case
  cone          cvxpy, for constraints that a user writes
  proof         how far from optimal a mixture can be, whoever made it: a bound from the pieces alone
  solving       which engine takes a goal, exact zeros in its answer, and a search where a law is not convex
  closed_forms  the paper's closed forms, for reproduction
  question      what is asked, as it stands: surface, weights, bounds, and the regimes of losses
  mixture       what is answered: mixtures with their proof, their intervals and their rivals
  answer        from a solved question to what is reported: the mixture, its rivals, and what other bounds would bring
  frontier      the trade-off between the mean losses of two sets of targets
  problem       the front door: `problem`, the functions that share its keywords, and N, D and mixture together
"""
