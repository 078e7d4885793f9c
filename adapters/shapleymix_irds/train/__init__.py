"""Train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run.

Modules, in reading order:

  agreement      what one rank meets, all ranks raise
  disk           the folder of a run: it can be written to, has room, and is no other process's
  telling        what a run says on standard error: its progress, and what ended it, once and with an exit code
  leaving        how a process of a run ends: with what it wrote, not with what frees it
  shapes         sizes of decoders: the named ones, and the learning rate that suits a size
  speed          how fast a run is: tokens a second, share of the devices' peak, peak memory
  settings       every setting of a training run: a flag and a key of CONFIG.toml
  limits         what settings may be: each by itself, and those that do not go together
  config         settings of a run that fit together, and what follows from them: its length, evaluations and name
  settings_file  CONFIG.toml: settings under their own names, below headings that mean nothing
  mixtures       the mixture a run trains on: written out, or in a file
  optimisers     the optimiser of a run: AdamW, SGD, Muon or Adafactor, in groups with learning rates of their own
  distributed    one process or many: the world, wrapping a model for it, and the few collectives the loop needs
  attention      causal attention over whole sequences, or within the documents of packed ones
  model          a Llama-style decoder: RMSNorm, rotary positions, SwiGLU, untied embeddings
  data           text and tokens: from files to the batches of each step
  plan           when a run is measured: which steps IRDS evaluates and after which ones it takes the loss drop
  fresh          whether a run sees each sequence once: then training sequences can stand in for validation text
  results        what a run leaves behind: rows of the run log, and a summary of what was trained on what
  showing        what a run shows while it goes on
  saving         what outlives a process: checkpoints, and the model that is left
  stopping       signals that ask a run to stop at the end of a step
  setup          the parts of a run: model, optimiser, loss, tracker
  step           one optimiser step over the global batch: this rank's gradients, the losses of all, the update
  loop           the training loop: one model, one mixture, from the first step or from the last checkpoint
  launch         from settings to a finished run
  app            the command line: settings from flags and CONFIG.toml, then one run, with plain errors and exit codes
"""
