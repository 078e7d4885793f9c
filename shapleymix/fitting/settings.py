"""How to fit and compare: every default stands here, once; the command line reads its own from here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from shapleymix.errors import UsageError
from shapleymix.tables.words import parse_choice, parse_number, parse_size, parse_whole

Size = float | str

Purpose = Literal["within", "beyond"]
WITHIN, BEYOND = "within", "beyond"
FINAL, ALL = "final", "all"

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
    checkpoints : str
        "final" to answer for losses at the end of a run, to which a checkpoint counts by the fourth power of its share
        of the run's schedule; "all" for losses along a run, to which all count alike.
    purpose : str
        For which budgets `law="auto"` chooses a law: "within" the fitted ones (by cross-validation over mixtures), or
        "beyond" them (by how well fits to the smaller sizes predict the largest).
    """

    delta: float | None = None
    prior: float = 1e-5
    starts: int = 6
    bootstrap: int = 200
    folds: int = 10
    min_tokens: Size = 0.0
    min_own_tokens: Size | None = None
    checkpoints: Literal["final", "all"] = FINAL
    purpose: Purpose = WITHIN

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
        parse_choice(self.purpose, (WITHIN, BEYOND), "purpose")


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


WHOLE = {"starts": 1, "bootstrap": 0, "folds": 0}
"""Settings that count something, with the fewest."""
