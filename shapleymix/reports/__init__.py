"""A page about a fit, on which its readers move the question themselves.

Modules, in reading order:

  budgets    a law's convex pieces at any N and D, as numbers that a page can sum up
  questions  what the page begins from: law, budget, weights, bounds, and what the fit has seen
  markup     HTML as a tree of elements, whose text is escaped
  charts     bars within the rows of a table, and heat maps
  answers    the optimum with its proof, prices and rivals
  scores     the tasks: what each is predicted to score, by which line, and what that errs by
  fits       the law, its errors beside those of its rivals, its coefficients and symbols
  runs       what was measured against what the law says
  evidence   the data, what was wrong with it, and where every number comes from
  pages      the page, in one file that runs no script but its own
"""
