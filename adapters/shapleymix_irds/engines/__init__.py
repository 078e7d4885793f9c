"""The engine: how an evaluated step is measured beside a training that it never touches.

A layer's output goes through a probe, an identity whose backward pass sketches, by language, what the layer gives to a
parameter's gradient. Products of the sketches of training and of validation sequences are the values.

Modules, in reading order:

  base       loss functions, and the products of halves where there is no validation set
  rows       whose each row of a layer's input is
  sketches   random maps of gradients into d numbers, which keep inner products on the average
  layout     which numbers of a step's sketches belong to which parameters
  probes     identities in the autograd graph that sketch a gradient by language
  calls      which calls of torch functions are covered, and the probes behind each
  apart      whether sequences stay apart, in the loss and in each layer
  graph      what a loss gets its gradient from, besides probes
  coverage   parameters whose use is not covered, agreed upon by all ranks
  watching   the mode under which a model runs while it is watched
  isolation  passes that leave no trace in randomness, buffers and wrappers
  midpoint   weights at the middle of the step, for the second order
  observer   the engine itself: training calls, validation passes, and their sketches
"""
