"""The engine: how an evaluated step is measured beside a training that it never touches.

A layer's output goes through a probe, an identity whose backward pass sketches, by language, what the layer gives to a
parameter's gradient. Products of the sketches of training and of validation sequences are the values.

Modules, in reading order:

  rows      whose each row of a layer's input is
  sketches  random maps of gradients into d numbers, which keep inner products on the average
  calls     which calls of torch functions are covered, and the probes behind each
  coverage  parameters whose use is not covered, and whether sequences stay apart, agreed upon by all ranks
  engine    training calls, validation passes, and the mode under which a model runs while it is watched
"""
