"""Prepared corpora: text that was tokenised once, so that a run starts without reading it.

A prepared folder holds, for each language, the tokens of each split end to end (`en/train.tokens`: unsigned integers
of 8, 16 or 32 bits, little endian), a row for each document (`en/train.documents`: where it ends, its place, the hash
of its tokens), and `manifest.json`, which says how it was made, what it holds and what of.

Modules, in reading order:

  manifest  what a prepared folder says of itself
  folder    the folder while it is prepared: whose it is, and what of it is finished
  writing   a piece of a source, written as tokens and rows of its splits
  merging   the pieces of a language, put end to end
  pool      work that is shared out over processes
  prepare   from a folder of text to a prepared one; continues what was begun
  verify    a prepared folder, read through and compared with its hashes
  mapped    a prepared folder as a corpus to train on
  command   `shapleymix-irds prepare`
"""
