"""What `--json` prints and `-o` writes.

Modules, in reading order:

  example      the tables of the examples: where the program keeps them, and copies of them for the user
  laws         a law as JSON: formula, parameters, needs, assumption and reference
  plain        JSON documents: one a call on standard output, with a schema version, exact numbers, and no NaN
  scores       scores as JSON: `mean` and `targets`, with the same keys wherever a law was scored
  fits         a fit as JSON
  learning_curve  a learning curve as JSON
  transfer     transfer matrices, where they are from, and how alike two are, as JSON
  writing      writing results with `-o`: with the call in their provenance, and a word of what was written
  mixtures     optimal mixtures as JSON and as a table: one is the document in which it is saved; several are a grid
  runs         a run log, and what a table holds for one, as JSON
  baselines    baselines as JSON and as a table
  sweeps       plans of runs, and how far they are, as JSON
  predictions  predictions, and mixtures side by side, as JSON and as a table
"""
