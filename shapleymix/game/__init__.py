"""The game that languages play: coalitions, payoffs, exact and sampled Shapley values; and the game of text alone.

Modules, in reading order:

  exact       exact Shapley values of a game given as a table of all its coalitions
  kriging     where not every coalition is known: choose some, and estimate by a smooth model of the payoffs
  coalitions  the game in a run log: coalitions, payoffs, what is missing, and the matrix of Shapley values
  ngrams      models of any mixture, from one count of each language's text
  text        the game that these models play, and the mixture that they find best
"""
