"""How to fit and compare: every default stands here, once; the command line reads its own from here."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import Literal, TypedDict

from shapleymix.errors import UsageError
from shapleymix.tables.amounts import parse_whole
from shapleymix.tables.sizes import parse_size

Size = float | str

Purpose = Literal["within", "beyond"]
WITHIN, BEYOND = "within", "beyond"

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
        Huber's threshold on log residuals; `inf` is plain least squares. None for the law's own: the usual
        held-out error for `learned-base`, .001 for most others, as in Chinchilla's replications.
    prior : float
        Precision of the weak prior that pulls log coefficients towards their mean, as a share of the total weight times
        delta; what a law believes of its symbols weighs more or less in proportion.
    starts : int
        Number of starting points for each target that are followed to the end.
    iterations, tolerance : int or float
        Most iterations of the search, and the relative change at which it stops.
    threads : int
        Number of chunks that are worked on at once; the result does not depend on it.
    bootstrap : int
        Number of bootstrap replicates for intervals; 0 for none.
    folds : int
        Folds of the cross-validation that gives the held-out error; 0 for none.
    min_tokens : Size
        Runs that give some language fewer tokens than this are left out (1.5e9 in the paper).
    min_own_tokens : Size, optional
        Losses of a target whose own language has fewer tokens than this are left out. None leaves none out; but where
        runs without the language prove another regime, `fit` fits them apart (0 for one law in any case).
    drop_warmup : float
        Checkpoints before this share of their run's last D are left out.
    last_only : bool
        Only the last checkpoint of each run is used: final losses are then fitted, and no other is predicted well.
    purpose : str
        For which budgets `law="auto"` chooses: "within" the fitted ones, by folds of mixtures, or "beyond" them, by
        what a fit to the smaller sizes makes of the largest.
    """

    delta: float | None = None
    prior: float = 1e-5
    starts: int = 6
    iterations: int = 1000
    tolerance: float = 1e-8
    threads: int = 2
    bootstrap: int = 200
    folds: int = 10
    min_tokens: Size = 0.0
    min_own_tokens: Size | None = None
    drop_warmup: float = 0.0
    last_only: bool = False
    purpose: Purpose = WITHIN

    def __post_init__(self) -> None:
        known = {field.name: field.default for field in fields(self)}
        for name, least in WHOLE.items():
            if parse_whole(getattr(self, name), name, least) > MOST:
                raise UsageError(f"{name}: more than {MOST:,}", hint=f"the usual number is {known[name]}")
        for name in ("min_tokens", "min_own_tokens"):
            if getattr(self, name) is not None or name == "min_tokens":
                object.__setattr__(self, name, parse_size(getattr(self, name), name))
        if self.delta is not None:
            _real(self.delta, "delta", above=True)
        _real(self.tolerance, "tolerance", above=True)
        _real(self.prior, "prior", above=False)
        if not math.isfinite(self.prior):
            raise UsageError(f"prior: {self.prior} is not finite", hint=f"the usual prior is {Settings.prior:g}")
        if not isinstance(self.last_only, bool):
            raise UsageError(f"last_only: {self.last_only!r:.60} is neither True nor False")
        if not (isinstance(self.purpose, str) and self.purpose in (WITHIN, BEYOND)):
            known_purposes = f"the purposes are {WITHIN} and {BEYOND}: of budgets inside of the fitted ones, or outside"
            raise UsageError(f"purpose: {self.purpose!r:.60} is none", hint=known_purposes)


class CompareKeywords(TypedDict, total=False):
    """The keywords of `compare` that make `Settings`: what each means and its default stand there."""

    delta: float | None
    prior: float
    starts: int
    iterations: int
    tolerance: float
    threads: int
    folds: int
    min_tokens: Size
    min_own_tokens: Size | None
    drop_warmup: float
    last_only: bool


class FitKeywords(CompareKeywords, total=False):
    """The keywords of `fit` that make `Settings`: it draws replicates besides."""

    bootstrap: int
    purpose: Purpose


def require_purpose(settings: Settings, free: bool) -> None:
    """Refuse a purpose by which nothing is chosen: where the law is not `free`, but named.

    Raises
    ------
    UsageError
        If budgets beyond the fitted ones are the purpose and the law is named.
    """
    if settings.purpose == BEYOND and not free:
        hint = "leave it out (purpose), or let auto choose (law)"
        raise UsageError(f"purpose {BEYOND!r}: it says how 'auto' chooses, and the law is named", hint=hint)


MOST = 10**9
"""Of anything that is counted."""

WHOLE = {"starts": 1, "iterations": 1, "threads": 1, "bootstrap": 0, "folds": 0}
"""Settings that count something, with the fewest."""


def _real(given: float, name: str, *, above: bool) -> None:
    """Refuse what is no number, below 0, or (with `above`) 0 itself; infinity is a number."""
    known = isinstance(given, Real) and not isinstance(given, bool) and given == given
    if not known or (isinstance(given, int) and given > MOST) or given < 0 or (above and given == 0):
        wanted = "above 0" if above else "of at least 0"
        raise UsageError(f"{name}: {given!r:.60} is not a number {wanted}", hint=f"leave {name} out for the usual one")
