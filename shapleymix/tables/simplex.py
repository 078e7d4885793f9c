"""Mixtures, the points of the simplex: check, renormalise, read and write."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import DataError, Fault, Location, StoreError, UsageError, described, did_you_mean
from shapleymix.files import read_json
from shapleymix.records import FloatArray
from shapleymix.tables.words import Ratio, ratio_number, repeated

ROUNDED = 5e-3
"""Largest distance of a sum of ratios from one that is taken for rounding (published logs print few digits)."""

EXACT = 1e-9
"""A sum of ratios this near to one is left as it is, so that reading does not change written numbers."""


def row_sums(p: ArrayLike) -> FloatArray:
    """Sums over the last axis that do not depend, to the last bit, on the order of the columns."""
    return np.sort(np.asarray(p, dtype=np.float64), axis=-1).sum(axis=-1)


def check(p: ArrayLike, tolerance: float = EXACT) -> FloatArray:
    """The mixture (..., M) as an array.

    Raises
    ------
    DataError
        If a ratio is negative or not finite, or a row does not sum to one within `tolerance`.
    """
    ratios = np.asarray(p, dtype=np.float64)
    if ratios.ndim == 0 or ratios.shape[-1] == 0:
        raise DataError("a mixture needs at least one ratio")
    if not np.isfinite(ratios).all():
        raise DataError("a mixture has a ratio that is not a finite number")
    if (ratios < 0).any():
        raise DataError(f"a mixture has a negative ratio, {ratios.min():g}")
    sums = np.atleast_1d(row_sums(ratios))
    worst = sums[np.argmax(np.abs(sums - 1))] if sums.size else 1.0
    if abs(worst - 1) > tolerance:
        raise DataError(f"a mixture sums to {worst:.6g}, expected 1")
    return ratios


def renormalise(p: ArrayLike) -> FloatArray:
    """Rows (..., M) divided by their sums; a row that sums to one within rounding noise is not touched."""
    ratios = np.asarray(p, dtype=np.float64)
    sums = row_sums(ratios)[..., None]
    return np.where(np.abs(sums - 1) > EXACT, ratios / np.where(sums > 0, sums, 1.0), ratios)


def uniform(size: int) -> FloatArray:
    """The mixture (size,) of equal ratios."""
    return np.full(size, 1.0 / size)


@runtime_checkable
class HasMixture(Protocol):
    """A result that holds a mixture, such as `Mixture`."""

    @property
    def mixture(self) -> Mapping[str, float]: ...


MixtureSpec = str | os.PathLike[str] | Mapping[str, Ratio] | Sequence[float] | FloatArray | HasMixture
"""Whatever may be given where a mixture is meant."""


def parse_mixture(given: MixtureSpec, names: Sequence[str]) -> FloatArray:
    """A mixture (M,) over `names`.

    Parameters
    ----------
    given : MixtureSpec
        `en=0.5,de=50%`, a mapping, ratios in the order of `names`, a `Mixture`, the `.json` file of a saved one or of
        `{"en": 0.5, "de": 0.5}`, or the word `uniform`. Names that are not given have ratio zero; a sum within 5e-3 of
        one is taken for rounding and renormalised.

    Raises
    ------
    UsageError
        If a part is no `name=ratio`, a name is unknown or repeated, or the ratios are no mixture.
    StoreError
        If a file cannot be read, or holds no mixture.
    """
    if isinstance(given, str) and not is_file_name(given):
        if given.strip() == "uniform" and "uniform" not in names:
            return uniform(len(names))
        return _of_pairs([_pair(part) for part in given.split(",")], names)
    if isinstance(given, (str, os.PathLike)):
        return _saved(os.fspath(given), names)
    if isinstance(given, HasMixture):
        given = given.mixture
    if isinstance(given, Mapping):
        return _of_pairs([(str(name), ratio_number(value, str(name))) for name, value in given.items()], names)
    return _in_order(given, names)


def is_file_name(text: str) -> bool:
    """Whether a mixture that is given as text is the name of a saved one."""
    return text.strip().lower().endswith(".json")


def _pair(part: str) -> tuple[str, float]:
    name, equals, ratio = part.rpartition("=")
    if not equals:
        hint = "write a mixture like en=0.5,de=0.3,fr=0.2, uniform, or the .json of a saved one"
        raise UsageError(f"{part.strip()!r} is no ratio", hint=hint)
    return name.strip(), ratio_number(ratio, name.strip())


def _saved(path: str, names: Sequence[str]) -> FloatArray:
    """The mixture of a saved result, of what a command printed with `--json`, or of ratios by name alone."""
    (document, _), place = read_json(path), Location(file=path)
    known = document if isinstance(document, dict) else {}
    kind = known.get("kind")
    found = known if kind is None else known.get("mixture")
    if not isinstance(found, dict) or not found:
        holds = "holds no mixture" if kind is None else f"holds a {kind!s:.60}, expected one mixture"
        raise StoreError(holds, location=place, hint="give what optimize wrote, or ratios by name")
    try:
        return parse_mixture(found, names)
    except UsageError as error:
        raise StoreError(error.message, location=place, hint=error.hint, faults=error.faults) from error


def _in_order(given: object, names: Sequence[str]) -> FloatArray:
    """Ratios in the order of the names."""
    hint = f"give a mapping, text such as en=0.5,de=0.5, or {len(names)} ratios in the order {', '.join(names[:5])}"
    try:
        ratios = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{described(given)} is no mixture", hint=hint) from error
    if ratios.shape != (len(names),):
        raise UsageError(f"a mixture of shape {ratios.shape}, expected ({len(names)},)", hint=hint)
    return _of_pairs(list(zip(names, ratios.tolist(), strict=True)), names)


def _of_pairs(pairs: list[tuple[str, float]], names: Sequence[str]) -> FloatArray:
    given = dict(pairs)
    unknown = [name for name in given if name not in names]
    faults = [
        Fault(f"{name!r} is not one of the sources", value=name, hint=did_you_mean(name, names)) for name in unknown
    ]
    faults += [Fault(f"{name!r} is given twice", value=name) for name in repeated([name for name, _ in pairs])]
    faults += [
        Fault(f"{name}={ratio:g} is not a ratio between 0 and 1", value=f"{ratio:g}")
        for name, ratio in pairs
        if not (np.isfinite(ratio) and ratio >= 0)
    ]
    if faults:
        raise UsageError.of(faults, "the mixture")
    ratios = np.array([given.get(name, 0.0) for name in names], dtype=np.float64)
    total = float(row_sums(ratios))
    if abs(total - 1) > ROUNDED:
        shares = ",".join(f"{name}={value / total:.4g}" for name, value in given.items()) if total > 0 else ""
        hint = f"divided by their sum they are {shares}" if shares else None
        raise UsageError(f"the mixture sums to {total:.6g}, expected 1", hint=hint)
    return renormalise(ratios)


def format_mixture(p: ArrayLike, names: Sequence[str], digits: int | None = None) -> str:
    """`en=0.5,de=0.5`: exact without `digits`, so that `parse_mixture` gives the same ratios; zeros left out."""
    ratios = np.asarray(p, dtype=np.float64).tolist()
    parts = zip(names, ratios, strict=True)
    return ",".join(
        f"{name}={ratio!r}" if digits is None else f"{name}={ratio:.{digits}g}" for name, ratio in parts if ratio != 0
    )
