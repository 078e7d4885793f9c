"""Text and tokens: from files to the batches of each step.

Modules, in reading order:

  sampler    which window of which language comes next: exact ratios by deficit counters, for any number of ranks
  documents  documents as stretches of flat arrays of tokens, and two hashes of each: its place and its content
  opened     files of text as streams: plain ones, or a stretch of their bytes, and packed ones
  textfiles  documents of text out of `.txt`, `.jsonl` (plain, gzip or zstd) and `.parquet` files
  tokens     text to token numbers: bytes, or a Hugging Face `tokenizers` JSON file
  ready      tokens that are on disk already: Megatron's `.bin` with `.idx`, or a flat `.npy`
  pieces     source files in pieces: stretches between two documents, each of which can be read by itself
  toy        artificial languages whose vocabularies overlap by known amounts: a corpus for a machine with no text
  streams    a stream: the documents of one split of one language, end to end, cut into windows of `seq` tokens
  corpus     a corpus: per language a training, a validation and a test stream of tokens, disjoint by document
  prepared   prepared corpora: text that was tokenised once, so that a run starts without reading it
  opening    from settings to a corpus: one that was prepared, or text, which one rank reads for all
  evaluate   test losses of each language, shared out over the ranks
  feed       batches of the next steps, made by a thread while the model trains on this one
"""
