"""Whether an optimum lies on a plateau, where the loss hardly depends on the ratios: then they say nothing.

So it is where all data are repeated thousands of times: what a source still gives does not depend on how often it is
seen. Replicates end where the fitted law does, and an interval of no width would pretend to know the ratios.
"""

from __future__ import annotations

import numpy as np

from shapleymix.mixing.problem import Problem
from shapleymix.records import BoolArray, FloatArray

MORE = 0.1
"""What is given more of a source, of all tokens."""
LEAST = 1e-3
"""A source with less room than that below its cap tells nothing."""
ALIKE = 1e-8
"""Of the loss: a smaller change is none."""


def plateau(problem: Problem, p: FloatArray) -> BoolArray:
    """Sources (M,) of which a tenth of all tokens more, at the cost of the others in proportion, changes no loss."""
    room = np.minimum(MORE, problem.constraints.upper - p)
    told = (room > LEAST) & (p < 1 - MORE)
    share = np.where(told, room / np.maximum(1 - p, MORE), 0.0)
    moved = (1 - share[:, None]) * p + share[:, None] * np.eye(len(p))
    here = float(problem.value(p))
    with np.errstate(invalid="ignore"):
        return told & (np.abs(problem.value(moved) - here) <= ALIKE * abs(here))
