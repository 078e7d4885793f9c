"""Engines: how an evaluated step is measured. `base` is the contract, `grouped` and `micro` fulfil it, `choice` picks.

`weight_gradients`, `intercept` and `graph` are what `grouped` is made of: gradients split by language, the layers that
they belong to, and the autograd graph that says whether any were missed.
"""
