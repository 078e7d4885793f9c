"""Sweeps as data: which runs to train, what each handed back, and the log that they make; no process starts here.

Modules, in reading order:

  templates   the command of a run as a template: its placeholders checked by name, then filled in
  plans       planned runs, each known by a hash of what it is, and the file `runs.jsonl` that holds them
  listed      mixtures with names, in the order in which to train them
  controlled  mixtures that somebody has thought of: one source, some of them, all; and those of a table
  random      mixtures drawn at random, within bounds
  games       the coalitions that a Shapley value needs, all or a sample, and how sure the sample makes it
  grids       mixtures x sizes x tokens x seeds as a plan
  layout      the folder of a plan: where each run lies, and what its files are called
  results     what a run handed back, held to what was planned
  states      how far a plan is, by the files in its folder
  collecting  the results of plans as one run log, and what is missing
"""
