"""From a fitted law and a budget to a mixture with a proof.

Modules, in reading order:

  polytope            what a mixture must obey: every bound as a row, what to do where they leave no mixture
  bounds              bounds as people write them (en+de<=0.3), and the polytope that they make
  constraints         constraints that a user writes with cvxpy
  goal                what an engine minimises: weights of targets, pieces of a law, bounds, a pull towards a mixture
  barrier             the batched engine: Newton's method inside of bounds on single ratios
  quadratic_programs  quadratic programs in turn, for rows, balls, the worst case and a user's own constraints
  proof               how far from optimal a mixture can be, whoever made it: a bound from the pieces alone
  solving             which engine takes a goal, exact zeros in its answer, and a search where a law is not convex
  closed_forms        the paper's closed forms, for reproduction
  answers             what is answered: mixtures with their proof, their intervals and their rivals
  reporting           from a solved question to its answer: the mixture, its rivals, what other bounds would bring
  frontier            the trade-off between the mean losses of two sets of targets
  problem             a question as it stands (surface, weights, bounds, regimes of losses), and its answers
  optimize            the front door: functions that share the keywords of `problem`, and N, D and mixture together

Where to add what:

  a bound        a keyword of `problem` and of `bounds.polytope_of`, which makes rows or tighter ratios of it; engines,
                 proof, prices and repairs follow from the `Polytope`
  an objective   a word beside `MEAN` and `WORST` in `goal`; there `Weights.of` gives its weights and unit, `Goal.of`
                 its value, `Goal.active` and `Goal.linearised` its slopes; then `proof`, where its weights are
                 multipliers
  a baseline     `tables.mixtures`, by its name; `reporting` compares with every one that is asked for
"""
