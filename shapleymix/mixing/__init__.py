"""From a fitted law and a budget to a certified mixture; the modules in reading order.

`groups`, `bounds`, `feasibility` : what a mixture must obey, and whether any can.
`weights`, `baselines` : what the objective weighs, and what people use without a law.
`demands` : all that is asked of a mixture.
`problem` : what is to be minimised, as every engine takes it.
`engine` : from a problem to p, and nothing else.
`multipliers`, `certificate` : how far from optimal a mixture can be, whoever made it.
`closed_forms` : the paper's formulas.
`prices` : what the bounds that bind are worth.
`mixtures` : the reported answer, built in one place.
`optimization` : the way through all of these.
"""
