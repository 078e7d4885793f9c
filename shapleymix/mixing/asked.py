"""What is asked of a mixture, as it is written: the keywords that every door takes, each spelt once, and the weights of
targets that they ask for.

>>> Asked(fit, "243M", "100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)

Axes: M sources, K targets.
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

from shapleymix.errors import DataError, UsageError, caution, described, did_you_mean
from shapleymix.files import Json, is_table_name
from shapleymix.fitting.own_fit import AnyFit, FitSpec
from shapleymix.fitting.settings import Size
from shapleymix.fitting.surface import Score, Surface
from shapleymix.mixing.answers import Answer
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.constraints import Constraint
from shapleymix.records import FloatArray, Record
from shapleymix.tables.languages import Languages, column_of, own_data, paths_of, read_languages
from shapleymix.tables.mixtures import MixtureSpec, Rivals
from shapleymix.tables.words import amounts, parse_choice, parse_level, parse_number, parse_positive, parse_whole

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


@dataclass(frozen=True)
class Weights:
    """What each target counts.

    Attributes
    ----------
    raw : array (K,)
        Multiplies the losses; of the mean objective it is divided by its sum.
    origin : str
        Where the weights are from.
    notices : tuple of str
        What a user should know of them.
    unit : str
        Unit of a loss times its weight, where they change that; the mean is then that of the K products.
    """

    raw: FloatArray
    origin: str
    notices: tuple[str, ...] = ()
    unit: str = ""

    def of(self, objective: str, plain: str) -> tuple[FloatArray, str]:
        """Weights (K,) of the mean or the worst objective, and the unit of that, where losses have a `plain` one.

        Of the worst loss the largest weight is 1; where weights differ, a weighted loss is no loss of any target.
        """
        if self.unit:
            return self.raw / (len(self.raw) if objective == MEAN else 1), self.unit
        if objective == MEAN:
            return self.raw / self.raw.sum(), plain
        alike = np.ptp(self.raw[self.raw > 0]) == 0
        return self.raw / self.raw.max(), plain if alike else f"weighted {plain}"


def weights_of(fit: AnyFit, surface: Surface, asked: Asked) -> Weights:
    """The weights of the targets that the keywords of a problem ask for.

    `unweighted` (the mean of the losses), `normalized` (the mean of losses divided by those of monolingual models;
    ShapleyLaw paper, "Mixture Optimization"), numbers by target, or a languages table with weights. Targets without a
    number get 0, which the notices say. Tasks are weighed by the scores' own rule.

    Raises
    ------
    UsageError, DataError
        If a weight is for no target, negative, or all are zero.
    """
    given, table, score, targets = asked.weights, asked.table, asked.score, surface.targets
    nothing, origin = np.full(len(targets), np.nan), UNWEIGHTED if given is None else "given"
    if isinstance(given, os.PathLike) or is_table_name(given):
        given = read_languages(os.fspath(given))
    if given is None and score is None:
        given = UNWEIGHTED if table is None or table.weight is None else table
    if isinstance(given, Languages):
        if given.weight is None:
            hint = "add the column, or use unweighted or normalized weights"
            raise DataError(f"{given.origin} has no column 'weight'", hint=hint)
        return _of_numbers(column_of(given, "weight", targets), targets, f"table {given.origin}")
    if isinstance(given, str) and given == UNWEIGHTED:
        return Weights(np.ones(len(targets)), "unweighted: the mean of the losses")
    if isinstance(given, str) and given == NORMALIZED:
        if score is not None:
            raise UsageError("normalized weights are of losses, not of scores", hint="give weights of tasks")
        return _normalize(fit, surface, amounts(nothing, asked.monolingual, targets, parse_positive, "monolingual"))
    if isinstance(given, str) and "=" not in given:
        raise UsageError(f"unknown weights {given!r}", hint=did_you_mean(given, (UNWEIGHTED, NORMALIZED)))
    if score is not None and (given is None or isinstance(given, (str, Mapping))):
        given = score.weights(given, asked.objective)
    return _of_numbers(amounts(nothing, given, targets, parse_number, "weights"), targets, origin)


def _normalize(fit: AnyFit, surface: Surface, measured: FloatArray) -> Weights:
    """Inverse monolingual losses: measured (K,), nats, where given, else predicted at an even mixture of own data."""
    targets = surface.targets
    own = own_data(paths_of(surface.sources, fit.parents, targets), targets)
    alone = np.where(own.any(axis=0), own, 1.0) / np.maximum(own.sum(axis=0), 1)
    predicted = np.diag(fit.at(surface.N, surface.D).mean(alone.T))
    predicted = np.where(own.any(axis=0), predicted, np.nan)
    losses, known = np.where(np.isnan(measured), predicted, measured), ~np.isnan(measured)
    if lacking := [target for target, loss in zip(targets, losses.tolist(), strict=True) if not loss > 0]:
        hint = "give the measured ones, or use other weights"
        raise UsageError(f"there is no monolingual loss of {', '.join(lacking)} for normalized weights", hint=hint)
    origin = "measured" if known.all() else "measured where given, else predicted" if known.any() else "predicted"
    raw, origin = 1 / (losses * surface.unit.per_nat), f"normalized: inverse monolingual loss, {origin}"
    return Weights(raw, origin, unit="times the monolingual loss")


def _of_numbers(numbers: FloatArray, targets: tuple[str, ...], origin: str) -> Weights:
    """Weights of numbers (K,), NaN where a target has none."""
    raw = np.nan_to_num(numbers)
    if (raw < 0).any() or not raw.any():
        raise UsageError(f"weights ({origin}) must not be negative, nor all zero")
    absent = [name for name, number in zip(targets, numbers, strict=True) if np.isnan(number)]
    notices = (f"no weight for {', '.join(absent)}: counted as 0",) if absent else ()
    return Weights(raw, origin, notices)


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
