"""Train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run.

Modules, in reading order:

  shapes      sizes of decoders: the named ones, and the learning rate that suits a size
  settings    every setting of a run, a flag and a key of CONFIG.toml, and what follows from them
  toy         artificial languages whose vocabularies overlap by known amounts
  text        documents out of files: text, or tokens that are on disk already
  corpus      for each language a training, a validation and a test stream of tokens, disjoint by document
  model       a Llama-style decoder: RMSNorm, rotary positions, SwiGLU, untied embeddings
  world       one process or many, and the model wrapped for them
  feed        which window of which language comes next, and the batches of each step
  checkpoint  checkpoints that are whole or not there
  export      the trained model as a folder that `transformers` loads
  outputs     what a run writes into its folder: run log, summary, metrics
  loop        the training loop, from the first step or the last checkpoint to the results
  app         the command line, plain errors, exit codes
"""
