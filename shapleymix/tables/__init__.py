"""What comes in: run logs, Shapley value matrices, languages tables, and the labels and numbers in them.

Modules, in reading order:

  names        ordered labels: align one table's labels to another's, or say what is missing
  sizes        sizes as people type them: `243M` parameters, `100B` tokens, `1e22` FLOPs
  amounts      ratios, percentages and amounts of every source as people write them: 40%, en=0.5,de=20%
  simplex      mixtures, the points of the simplex: check, renormalise, read and write
  sheets       any table as columns of cells with the lines they stand in, and columns as the bytes of a file
  runs         run logs in memory, and several as one
  run_reading  run logs read from tables: every fault of every cell at once
  transfer     transfer matrices: what a source does for a target, raw and normalised; how alike two are
  languages    the languages table: families, weights and epochs; the unique tokens at hand of each source
  baselines    mixtures that people use without a law, by their usual names, and how often they repeat tokens
"""
