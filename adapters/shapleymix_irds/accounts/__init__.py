"""Accounts of a run.

Modules, in reading order:

  ledger  phi, its standard errors and losses; what a checkpoint holds, and the SV matrix
  log     the log of evaluations: Parquet files from which the matrix can be made again
  step    the step between its calls and `commit`: sums over its calls, then over ranks
"""
