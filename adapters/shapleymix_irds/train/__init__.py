"""Train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run.

Modules, in reading order:

  shapes       sizes of decoders: the named ones, and the learning rate that suits a size
  speed        how fast a run is: tokens a second, share of the devices' peak, peak memory
  settings     every setting of a training run: a flag and a key of CONFIG.toml
  limits       what settings may be: each by itself, and those that do not go together
  config       settings of a run that fit together, and what follows from them: its length, evaluations and name
  settings_file  CONFIG.toml: settings under their own names, below headings that mean nothing
  agreement    what one rank meets, all ranks raise
  disk         the folder of a run: it can be written to, has room, and is no other process's
  optimisers   the optimiser of a run: AdamW, SGD, Muon or Adafactor, in groups with learning rates of their own
  checksums    the checksums of a folder, in the format of `sha256sum`
  shards       one rank's part of a checkpoint: a safetensors file of the blocks that it holds
  tensors      the tensors of a run by name: those of the model, and those that its optimiser keeps
  checkpoint   checkpoints that are whole or not there: weights, optimiser, data position and tracker of one step
  recorded     what a checkpoint says of its run, held against what a run can have
  resuming     where a run goes on: at its newest checkpoint that is whole, if it is the same run
  distributed  one process or many: the world, wrapping a model for it, and the few collectives the loop needs
  mixtures     the mixture a run trains on: written out, or in a file
  attention    causal attention over whole sequences, or within the documents of packed ones
  model        a Llama-style decoder: RMSNorm, rotary positions, SwiGLU, untied embeddings
  plan         when a run is measured: which steps IRDS evaluates and after which ones it takes the loss drop
  sampler      which window of which language comes next: exact ratios by deficit counters, for any number of ranks
  telling      what a run says on standard error: its progress, and what ended it, once and with an exit code
  stopping     signals that ask a run to stop at the end of a step
  app          the command line: settings from flags and CONFIG.toml, then one run, with plain errors and exit codes
  measured     what a run has measured so far, for those who look on
  telemetry    what a run shows and keeps: its metrics, as plain lines and in metrics.jsonl
  heat         a matrix as a heat table
  picture      a matrix as a picture and as a text
  live         the live view of a run on a terminal
  loggers      TensorBoard, and Weights & Biases
  documents    documents as stretches of flat arrays of tokens, and two hashes of each: its place and its content
  opened       files of text as streams: plain ones, or a stretch of their bytes, and packed ones
  textfiles    documents of text out of `.txt`, `.jsonl` (plain, gzip or zstd) and `.parquet` files
  tokens       text to token numbers: bytes, or a Hugging Face `tokenizers` JSON file
  ready        tokens that are on disk already: Megatron's `.bin` with `.idx`, or a flat `.npy`
  pieces       source files in pieces: stretches between two documents, each of which can be read by itself
  toy          artificial languages whose vocabularies overlap by known amounts: a corpus for a machine with no text
  streams      a stream: the documents of one split of one language, end to end, cut into windows of `seq` tokens
  corpus       a corpus: per language a training, a validation and a test stream of tokens, disjoint by document
  prepared     prepared corpora: text that was tokenised once, so that a run starts without reading it
  opening      from settings to a corpus: one that was prepared, or text, which one rank reads for all
  fresh        whether a run sees each sequence once: then training sequences can stand in for validation text
  evaluate     test losses of each language, shared out over the ranks
  feed         batches of the next steps, made by a thread while the model trains on this one
  results      what a run leaves behind: rows of the run log, and a summary of what was trained on what
  exported     the folder of an exported model: new, empty, or an earlier export as it was written
  export       a trained model as a folder that `transformers` loads, in safetensors of at most 5 GB each
  export_command  `shapleymix-irds export`
  setup        the parts of a run: model, optimiser, loss, tracker
  step         one optimiser step over the global batch: this rank's gradients, the losses of all, the update
  loop         the training loop: one model, one mixture, from the first step or from the last checkpoint
  launch       from settings to a finished run
"""
