"""Accounts of a run: `step` sums one step, `ledger` all steps, `log` keeps them on disk, `matrix` reports them.

Modules, in reading order:

  blocks  stretches of a run, by which its calibrated values spread
  ledger  accounts of a run: phi, its standard errors, losses and tokens; everything that a checkpoint must hold
  log     the log of evaluations: Parquet files from which the matrix can be made again
  matrix  from a ledger to the core's SV matrix
  step    the step between `backward` and `commit`: sums over its calls, then over ranks
"""
