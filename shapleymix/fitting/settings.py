"""How to fit and compare: every keyword stands here, once; functions and the command line take theirs from here."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypedDict, TypeVar

from shapleymix.errors import UsageError
from shapleymix.tables.words import parse_number, parse_size, parse_whole

Size = float | str

Function = TypeVar("Function", bound=Callable[..., object])

AUTO = "auto"
LEVEL = 0.9
"""Probability of intervals."""
SEED = 0


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
        Folds of the cross-validation that gives the held-out error; 0 for none.
    min_tokens : Size
        Runs that give some language fewer tokens than this are left out (1.5e9 in the paper).
    min_own_tokens : Size, optional
        Losses of a target whose own language has fewer tokens than this are left out; 0 for one law for all losses. By
        default none are left out, but runs without the language get a model of their own if they behave differently.
    drop_warmup : float
        Checkpoints before this share of their run's last D are left out.
    last_only : bool
        Only the last checkpoint of each run is used, so that the law predicts final losses.
    """

    delta: float | None = None
    prior: float = 1e-5
    starts: int = 6
    bootstrap: int = 200
    folds: int = 10
    min_tokens: Size = 0.0
    min_own_tokens: Size | None = None
    drop_warmup: float = 0.0
    last_only: bool = False

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
        if not (isinstance(self.drop_warmup, (int, float)) and 0 <= self.drop_warmup < 1):
            hint = "give the share of each run to leave out, such as 0.25"
            raise UsageError(f"a warm-up of {self.drop_warmup} of each run", hint=hint)
        if not isinstance(self.last_only, bool):
            raise UsageError(f"last_only: {self.last_only!r:.60} is neither True nor False")


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
    drop_warmup: float
    last_only: bool


def with_settings(function: Function) -> Function:
    """Show in the signature and the text of a function that takes `Keywords` what each of them is."""
    own = inspect.signature(function)
    stated = [one for one in own.parameters.values() if one.kind != inspect.Parameter.VAR_KEYWORD]
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Settings)
        if one.name in Keywords.__annotations__
    ]
    entries = re.finditer(r"^ {4}(\w+) : .+\n(?: {8}.+\n)+", Settings.__doc__ or "", re.MULTILINE)
    texts = {entry[1]: entry[0] for entry in entries}
    before, raises, after = (function.__doc__ or "").partition("\n    Raises\n")
    vars(function)["__signature__"] = own.replace(parameters=[*stated, *shared])
    function.__doc__ = f"{before}{''.join(texts[one.name] for one in shared)}{raises}{after}"
    return function
