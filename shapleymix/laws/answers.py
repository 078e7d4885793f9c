"""What a law, a black box or a predictor answers, as losses; a wrong answer is an error that names who gave it."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from shapleymix.errors import FitError, ShapleyMixError, described
from shapleymix.records import FloatArray

Answer = TypeVar("Answer")
PACKAGE = Path(__file__).parents[1]
ABSURD = 1e100
"""What is beyond is no loss, and its square is near the end of floating point."""


def asked(name: str, question: Callable[[], Answer]) -> Answer:
    """The answer to a question that someone else's code is asked.

    Raises
    ------
    FitError
        If that code raises an error that is not ours, with its words, file and line.
    """
    try:
        return question()
    except ShapleyMixError:
        raise
    except Exception as error:
        message = f"law {name!r} raised {type(error).__name__}{_place(error)}: {error}"
        raise FitError(message, hint="mend the law's code") from error


def _place(error: Exception) -> str:
    """Where the asked code, the first that is not this package's, left its own file last."""
    calls = traceback.extract_tb(error.__traceback__)[1:]
    theirs = [call for call in calls if not Path(call.filename).is_relative_to(PACKAGE)] or calls
    lines = [call.lineno for call in theirs if call.filename == theirs[0].filename]
    return f" at {theirs[0].filename}:{lines[-1]}" if lines else ""


def as_losses(name: str, answer: object, shape: tuple[int, ...]) -> FloatArray:
    """An answer as doubles of the shape that was asked for.

    Raises
    ------
    FitError
        If it holds no real numbers, or has another shape.
    """
    hint = f"it must return real numbers of shape {shape}: runs, then targets in the log's order, after any replicates"
    try:
        found = np.asarray(answer)
        if found.dtype.kind in "OUS":
            found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise FitError(f"law {name!r} predicts {described(answer)}, not losses", hint=hint) from error
    if found.dtype.kind not in "fiu":
        raise FitError(f"law {name!r} predicts values of type {found.dtype}, not losses", hint=hint)
    if found.shape != shape:
        raise FitError(f"law {name!r} predicts losses of shape {found.shape}, expected {shape}", hint=hint)
    return found.astype(np.float64, copy=False)
