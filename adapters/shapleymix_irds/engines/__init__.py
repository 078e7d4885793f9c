"""Engines: how an evaluated step is measured. `base` is the contract, `grouped` and `micro` fulfil it, `choice` picks.

`weight_gradients`, `intercept` and `graph` are what `grouped` is made of: gradients split by language, the layers that
they belong to, and the autograd graph that says whether any were missed.

Modules, in reading order:

  base              what the engines share: a call's outcome, losses of sequences, and the validation-free estimate
  graph             what a loss is made of: the leaves of its autograd graph, and the functions that they go into
  isolated          one backward pass whose gradients come back and go nowhere else
  micro             language-pure micro-batches: the fallback for any layer
  weight_gradients  weight gradients by language, and their products, inside ordinary autograd functions
  intercept         finds the layers of an unmodified model while it runs
  rows              do sequences stay apart? change one, and see which rows change with it
  grouped           the grouped engine: training and validation sequences in one concatenated pass
  choice            which engine measures a run
"""
