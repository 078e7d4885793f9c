"""What each target counts: numbers, a table's column, or the inverse of monolingual losses.

Axes: M sources, K targets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shapleymix.errors import DataError, UsageError, did_you_mean
from shapleymix.files import is_table_name
from shapleymix.fitting.own_fit import AnyFit
from shapleymix.fitting.surface import Surface
from shapleymix.mixing.asked import MEAN, NORMALIZED, UNWEIGHTED, Asked
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages, column_of, own_data, paths_of, read_languages
from shapleymix.tables.words import amounts, parse_number, parse_positive


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
