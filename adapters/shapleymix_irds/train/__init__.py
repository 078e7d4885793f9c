"""Train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run.

Modules, in reading order:

  settings     sizes of decoders, and every setting of a run, a flag and a key of CONFIG.toml
  corpus       the streams of tokens of each language, disjoint by document, and which window of which comes next
  model        a Llama-style decoder: RMSNorm, rotary positions, SwiGLU, untied embeddings
  distributed  one process or many, and the model wrapped for them
  checkpoint   checkpoints that are whole or not there
  outputs      what a run writes into its folder, and the model as a folder that `transformers` loads
  loop         the training loop, from the first step or the last checkpoint to the results
  app          the command line, plain errors, exit codes
"""
