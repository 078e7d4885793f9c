"""Engines take a problem and return p, nothing else."""
