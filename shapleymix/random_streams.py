"""Streams of random numbers: two purposes never draw the same ones from one seed.

A generator is made by `np.random.default_rng([seed, RandomStream.X])`, with more words where a purpose needs several.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from shapleymix.records import FloatArray, IntArray


class RandomStream(IntEnum):
    """The second word of every seed, by what is drawn."""

    CURVE = 2
    """Learning curves that the errors leave possible."""
    LIKE = 3
    """How far a source is from the one that it is taken to be like."""
    BELIEFS = 4
    """The centres of what a law believes, for each replicate."""
    EXPONENTS = 5
    """Exponents of budgets that hardly vary, from public runs."""
    BOOTSTRAP = 6
    """Weights of mixtures."""
    RECIPES = 7
    """Learning rates, shuffled among runs of one size."""
    RATES = 8
    """The centre of the prior of what repeated tokens are worth."""
    SEARCH = 10
    """Starting mixtures of a search without proof."""
    LINES = 11
    """Curves of tasks."""
    NOISE = 12
    """The scatter of runs, and the error of a law's form."""
    DESIGN = 15
    """Candidates among which runs are chosen."""
    SCORES = 16
    """The scatter of tasks' scores about their curves."""


def ranks_of(columns: FloatArray) -> IntArray:
    """The number (C,) of each column (R, C) by its values, row after row, the same whatever the columns' order."""
    return np.argsort(np.lexsort(np.round(columns[::-1], 9))) if columns.size else np.arange(columns.shape[1])
