"""What comes in: run logs, Shapley value matrices, languages tables, and the labels and numbers in them.

Modules, in reading order:

  words        sizes (243M), ratios and amounts by name (en=0.5,de=20%) as people type them, and labels to align
  mixtures     the points of the simplex: check, renormalise, read and write; those that people use by name
  sheets       any table as columns of cells with the lines they stand in, and columns as the bytes of a file
  runs         run logs in memory, and several as one
  run_reading  run logs read from tables: every fault of every cell at once
  transfer     transfer matrices: what a source does for a target, raw and normalised; how alike two are
  documents    documents out of files of text or tokens: all of them, or a sample in bounded memory
  languages    the languages table: families, weights and epochs; the unique tokens at hand of each source
"""
