"""Sweeps of proxy runs: plans as data, trained on this machine or on SLURM, and collected as one run log.

>>> from shapleymix_sweep.mixtures import coalitions
>>> from shapleymix_sweep.plans import grid, read_plan
>>> from shapleymix_sweep.pool import Pool
>>> from shapleymix_sweep.results import collect, state_of
>>> grid(coalitions(["en", "de"]), {"tiny": 23712}, "600k").write("game.jsonl")
>>> plan = read_plan("game.jsonl")
>>> Pool(plan).run(jobs=2)
>>> log = collect([state_of(plan)])

Modules, in reading order:

  mixtures  mixtures to train: listed by hand, in use, drawn at random, or every coalition of the sources
  plans     the runs to train, each known by a hash of what it is, and the file that holds them
  results   what the runs have left, held to what was planned, and collected as one run log
  running   one run: claimed, started, and ended together with all that it started
  pool      the runs of a plan on this machine, so many at a time
  slurm     the runs of a plan as SLURM's arrays
"""
