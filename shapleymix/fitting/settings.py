"""How to fit and compare: every keyword stands here, once; functions and the command line take theirs from here."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, TypedDict, TypeVar

from shapleymix.errors import UsageError
from shapleymix.tables.words import parse_choice, parse_number, parse_size, parse_whole

Size = float | str

Function = TypeVar("Function", bound=Callable[..., object])

AUTO = "auto"
LEVEL = 0.9
"""Probability of intervals."""
SEED = 0
FINAL, ALL = "final", "all"


@dataclass(frozen=True)
class Settings:
    """How to fit, and which rows to fit to.

    Attributes
    ----------
    delta : float, optional
        Huber's threshold on log residuals; `inf` is plain least squares. By default the law's own: the
        usual held-out error for `learned-base`, .001 for most others, as in Chinchilla's replications.
    prior : float
        Precision of the weak prior that pulls log coefficients towards their mean, as a share of the total weight times
        delta; the law's other priors scale with it.
    starts : int
        Number of starting points for each target that are followed to the end.
    bootstrap : int
        Number of bootstrap replicates for intervals; 0 for none.
    folds : int
        Folds of the cross-validation that gives the held-out error, and the scatter of runs in intervals; 0 for none.
        What is fitted is chosen in ten folds of its own.
    min_tokens : Size
        Runs that give some language fewer tokens than this are left out (1.5e9 in the paper).
    min_own_tokens : Size, optional
        Losses of a target whose own language has fewer tokens than this are left out; 0 for one law for all losses. By
        default none are left out; where runs without the language behave differently, a fit to all predicts them.
    checkpoints : str
        "final" to answer for losses at the end of a run, to which a checkpoint counts from .45 of the run's schedule
        on, by the fourth power of its share of it; "all" for losses along a run, to which all count alike.
    """

    delta: float | None = None
    prior: float = 1e-5
    starts: int = 6
    bootstrap: int = 200
    folds: int = 10
    min_tokens: Size = 0.0
    min_own_tokens: Size | None = None
    checkpoints: Literal["final", "all"] = FINAL

    def __post_init__(self) -> None:
        for name, least in WHOLE.items():
            parse_whole(getattr(self, name), name, least)
        for name in ("min_tokens", "min_own_tokens"):
            if getattr(self, name) is not None or name == "min_tokens":
                object.__setattr__(self, name, parse_size(getattr(self, name), name))
        if self.delta not in (None, math.inf) and not parse_number(self.delta, "delta") > 0:
            raise UsageError(f"delta: {self.delta} is not above 0", hint="leave delta out for the usual one")
        if parse_number(self.prior, "prior") < 0:
            raise UsageError(f"prior: {self.prior} is below 0", hint=f"the usual prior is {Settings.prior:g}")
        parse_choice(self.checkpoints, (FINAL, ALL), "reading of checkpoints")


WHOLE = {"starts": 1, "bootstrap": 0, "folds": 0}
"""Settings that count something, with the fewest."""


class Keywords(TypedDict, total=False):
    """What fitting, comparing and learning curves all take; see `Settings`."""

    delta: float | None
    prior: float
    starts: int
    folds: int
    min_tokens: Size
    min_own_tokens: Size | None
    checkpoints: Literal["final", "all"]


def with_settings(function: Function) -> Function:
    """Show in the signature and the text of a function that takes `Keywords` what each of them is."""
    own = inspect.signature(function)
    stated = [one for one in own.parameters.values() if one.kind != inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Settings)
        if one.name in Keywords.__annotations__
    ]
    entries = re.finditer(r"^(\w+) : .+\n(?: {4}.+\n?)+", inspect.cleandoc(Settings.__doc__ or ""), re.MULTILINE)
    texts = {entry[1]: entry[0].rstrip() for entry in entries}
    before, raises, after = inspect.cleandoc(function.__doc__ or "").partition("\n\nRaises\n")
    vars(function)["__signature__"] = own.replace(parameters=[*stated, *shared])
    function.__doc__ = "\n".join([before, *(texts[one.name] for one in shared)]) + raises + after
    return function
