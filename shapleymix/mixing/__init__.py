"""From a fitted law and a budget to a mixture with a proof.

Modules, in reading order:

  polytope       what a mixture must obey: every bound as a row, and what these leave no room
  bounds         bounds as people write them (en+de<=0.3), `Bounds`, and the polytope that they make
  constraints    constraints that a user writes with cvxpy: rows of the polytope, or cuts
  goal           what is minimised: pieces of a law, bounds, a pull towards a mixture
  engine         one batched interior-point method for all goals and bounds, with multipliers
  proof          how far from optimal a mixture can be, whoever made it: a bound from pieces and multipliers alone
  solving        what the engine is given, exact zeros in its answer, and a search where a law is not convex
  infeasibility  which bounds leave no mixture, in words, and what would
  answers        what is answered: mixtures with their proof, their intervals and their rivals
  asked          the keywords that every door takes, `Asked`, and what each target counts
  question       a question as it stands: surface, weights, bounds, regimes of losses
  reporting      from a solved question to its answer: the mixture, its rivals, what other bounds would bring
  frontier       the trade-off between the mean losses of two sets of targets
  optimize       the front door: a problem, functions that share its keywords, and N, D and mixture together

Where to add what:

  a bound        a field of `bounds.Bounds`, of which `polytope_of` makes rows or tighter ratios; engine, proof, prices
                 and repairs follow from the `Polytope`
  an objective   a word beside `MEAN` and `WORST` in `asked`; `Weights.of` gives its weights and unit, `Goal.of` its
                 value and `Goal.active` its weights at a mixture; then `engine`, whose multipliers prove it
  a baseline     `tables.mixtures`, by its name; `reporting` compares with every one that is asked for
"""
