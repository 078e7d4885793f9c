"""Runs of a plan as processes: claimed, started, watched, ended. No scheduler: a pool here, SLURM by submitit.

Modules, in reading order:

  claims       a run is one process's: the lock that whoever runs it holds
  descendants  all processes of one run, however far they went from the program that started them
  children     a program and all that it starts, ended together
  leftovers    whole run logs of programs that nobody saw end
  attempts     one run: claimed, started, waited for, and what it left taken as its result
  gpus         which GPUs there are, and which of them each place in the pool has
  pool         runs of a plan, so many at a time, until each is finished or has failed too often
  watching     how far a sweep is, on a terminal and elsewhere
  sbatch       what sbatch is told, from what is typed
  queue        which runs SLURM has already
  slurm        a sweep as SLURM's arrays, by submitit
"""
