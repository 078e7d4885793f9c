"""What is asked of a mixture, as it is written: the keywords that every door takes, each spelt once.

>>> Asked(fit, "243M", "100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, fields, is_dataclass
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import numpy as np

from shapleymix.errors import UsageError, caution, described, did_you_mean
from shapleymix.files import Json
from shapleymix.fitting.own_fit import FitSpec
from shapleymix.fitting.settings import Size
from shapleymix.fitting.surface import Score
from shapleymix.mixing.answers import Answer
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.constraints import Constraint
from shapleymix.records import FloatArray, Record
from shapleymix.tables.languages import Languages
from shapleymix.tables.mixtures import MixtureSpec, Rivals
from shapleymix.tables.words import parse_choice, parse_level, parse_number, parse_positive, parse_whole

P = ParamSpec("P")
T = TypeVar("T")

UNWEIGHTED, NORMALIZED = "unweighted", "normalized"
MEAN, WORST = "mean", "worst"

WeightSpec = str | os.PathLike[str] | Mapping[str, float | str] | Sequence[float] | FloatArray | Languages
"""Whatever may be given for weights: a word, numbers by target or in their order, a languages table or its file."""


@dataclass(frozen=True)
class Asked(Bounds):
    """The keywords of `problem`, each explained there; what files hold is read.

    Raises
    ------
    DataError, UsageError
        If one is out of range, or does nothing without another.
    """

    fit: FitSpec
    N: Size
    D: Size
    _: KW_ONLY
    unit: str = "nats"
    weights: WeightSpec | None = None
    monolingual: Mapping[str, float | str] | str | None = None
    objective: str = MEAN
    anchor: MixtureSpec | None = None
    kl: float = 0.0
    constraints: Sequence[Constraint] = ()
    compare_to: Rivals = ()
    what_if: Sequence[str] | str = ()
    downstream: Score | str | os.PathLike[str] | None = None
    allow_unseen: bool = False
    level: float = 0.9
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_choice(self.objective, (MEAN, WORST), "objective")
        parse_level(self.level)
        parse_whole(self.seed, "seed")
        if not isinstance(self.constraints, (list, tuple)) or not all(map(callable, self.constraints)):
            hint = "give a list of functions from ratios by name to cvxpy constraints: lambda p: p['en'] <= 0.5"
            raise UsageError(f"constraints: {described(self.constraints)} holds no functions", hint=hint)
        if (parse_number(self.kl, "kl") == 0) != (self.anchor is None):
            raise UsageError("anchor and kl go together", hint="for instance the anchor uniform, and kl 0.1")
        if self.anchor is not None:
            parse_positive(self.kl, "kl")
        for option, other, there in (
            ("max_epochs", "languages or available", self.table is not None or self.available is not None),
            ("monolingual", f"weights {NORMALIZED!r}", str(self.weights) == NORMALIZED),
        ):
            if getattr(self, option) is not None and not there:
                raise UsageError(f"{option} does nothing without {other}", hint=f"give {other}, or leave out {option}")
        if self.downstream is not None and self.unit != "nats":
            raise UsageError("unit is of losses, not of scores", hint="leave out unit or downstream")

    @cached_property
    def score(self) -> Any:
        """The calibrated tasks, a `Score`; None where losses are meant."""
        if not isinstance(self.downstream, (str, os.PathLike)):
            return self.downstream
        from shapleymix.scores import Downstream

        return Downstream.load(self.downstream)

    def to_document(self) -> dict[str, Json]:
        """The keywords that were given, as JSON holds them; functions by their names."""
        given = {one.name: getattr(self, one.name) for one in fields(self) if one.kw_only}
        given["downstream"] = self.score
        kept = {name: one for name, one in given.items() if not (one is None or (isinstance(one, tuple) and not one))}
        return json.loads(json.dumps(kept, default=_plain))


def _plain(value: Any) -> Any:
    if hasattr(value, "mixture"):
        return dict(value.mixture)
    if isinstance(value, Record):
        return value.to_document()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else getattr(value, "__name__", type(value).__name__)


def takes_keywords(function: Callable[..., T]) -> Callable[..., T]:
    """The function, with the keywords of `Asked` in place of its `**keywords`; others are refused by name.

    What its answers warn of reaches Python's `warnings`, too.
    """
    own = signature(function)
    explicit = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    asked = [one for one in signature(Asked).parameters.values() if one.kind is one.KEYWORD_ONLY]
    shown = own.replace(parameters=[*explicit, *(one for one in asked if one.name not in own.parameters)])

    @wraps(function)
    def checked(*args: Any, **given: Any) -> T:
        for name in given:
            if name not in shown.parameters:
                hint = did_you_mean(name, list(shown.parameters))
                raise UsageError(f"{function.__name__}() has no keyword {name!r}", hint=hint)
        found = function(*args, **given)
        answers = found if isinstance(found, tuple) else [found]
        caution(dict.fromkeys(text for one in answers if isinstance(one, Answer) for text in one.warnings))
        return found

    vars(checked)["__signature__"] = shown
    return checked


def is_called_as(_: Callable[P, object]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """What type checkers are told of a function: that it takes what another takes."""
    return lambda function: function
