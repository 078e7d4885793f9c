"""Sweeps of proxy runs: plans as data, trained on this machine or on SLURM, and collected as one run log.

>>> from shapleymix_sweep.mixtures import coalitions
>>> from shapleymix_sweep.grids import grid
>>> from shapleymix_sweep.plans import collect, read_plan, state_of
>>> from shapleymix_sweep.running import Pool
>>> grid(coalitions(["en", "de"]), {"tiny": 23712}, "600k").write("game.jsonl")
>>> plan = read_plan("game.jsonl")
>>> Pool(plan).run(jobs=2)
>>> log = collect([state_of(plan)])

Modules, in reading order:

  mixtures  mixtures to train: in use, drawn at random, or every coalition of the sources
  plans     the runs to train, the file that holds them, and what they have left, collected as one run log
  grids     plans of every mixture at every size, and the command of each run
  running   training on this machine: one run, claimed, started and ended; and so many at a time
  slurm     the runs of a plan as SLURM's arrays
  engines   files with which Kubernetes, Ray and others train a plan
"""
