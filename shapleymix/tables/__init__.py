"""What comes in: run logs, Shapley value matrices, languages tables, and the labels and numbers in them.

Modules, in reading order:

  spelling          one spelling for one name, and names that look alike
  names             ordered labels: align one table's labels to another's, or say what is missing
  sizes             sizes as people type them: `243M` parameters, `100B` tokens, `1e22` FLOPs
  amounts           ratios, percentages and lists of them as people write them: 40%, en=0.5,de=20%
  simplex           mixtures, the points of the simplex: check, renormalise, read and write
  frames            results as data frames: one tidy table each
  cells             what a reader of a format hands on: columns of cells, and the line of each row
  separated         text with a mark between columns, and points or commas for decimals
  training_logs     what trainers leave behind: trainer_state.json of Hugging Face, Megatron's log
  json_tables       JSON: an object a line, an array of objects, an object of columns
  dict_cells        cells that hold a mapping, as columns of their own
  panels            charts of Weights & Biases, exported: three columns for each run and metric
  formats           the bytes of a file as columns of cells: which reader
  sheets            any table as cells of text with the lines they stand in
  writing           columns as the bytes of a file, by the ending of its name
  similarity        how alike two transfer matrices are
  runs              run logs in memory
  addresses         names of sources that are no files: stores and projects of other tools
  importing         tables as other tools keep them, in the columns of a run log
  sources           runs where other tools keep them: folders, databases, servers
  joining           several run logs as one
  run_ids           ids of runs: made where a table has none, and each once for each D
  percent_signs     cells such as `62%`, in the unit of their column
  run_columns       which column of a run log is what; what is missing, misspelt or means nothing
  merging           exported charts of several metrics as one table
  several           the logs of one call, each with how it is read
  examining         what a table holds for a run log, and a first map of it
  other_layouts     what to say of tables that are no run logs as they stand
  run_reading       run logs read from tables: every fault of every cell at once
  transfer          transfer matrices: what a source does for a target, raw and normalised
  transfer_reading  transfer matrices read from tables, tidy or wide
  languages         the languages table: families, available tokens, weights, and epochs
  by_source         amounts of every source: by name, in order, or one for all; the unique tokens at hand
  baselines         mixtures that people use without a law, by their usual names
  repetition        how often a mixture sees each token, and a warning above once
"""
