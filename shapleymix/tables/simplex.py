"""Mixtures, the points of the simplex: check, renormalise, read and write."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import DataError, Fault, Location, StoreError, UsageError, described
from shapleymix.files import read_json
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import Ratio, ratio_number
from shapleymix.tables.names import repeated
from shapleymix.tables.spelling import composed, near

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
        return _of_text(given, names)
    if isinstance(given, (str, os.PathLike)):
        return _saved(os.fspath(given), names)
    if isinstance(given, HasMixture):
        given = given.mixture
    if isinstance(given, Mapping):
        return _of_pairs([(str(name), _ratio(str(name), value)) for name, value in given.items()], names)
    return _in_order(given, names)


SEVERAL = {"mixture-grid": "at one N and one D", "frontier": "with the weights of one point"}
"""Results that hold several mixtures, and how to ask for one of them."""


def is_file_name(text: str) -> bool:
    """Whether a mixture that is given as text is the name of a saved one."""
    return text.strip().lower().endswith(".json")


def _of_text(text: str, names: Sequence[str]) -> FloatArray:
    if text.strip() == "uniform" and "uniform" not in names:
        return uniform(len(names))
    return _of_pairs(_pairs(text, names), names)


def _saved(path: str, names: Sequence[str]) -> FloatArray:
    """The mixture of a saved result, of what a command printed with `--json`, or of ratios by name alone."""
    document, place = read_json(path), Location(file=path)
    known = document if isinstance(document, dict) else {}
    found = known.get("mixture") if "kind" in known else known
    if not isinstance(found, dict) or not found or known.get("kind", "mixture") != "mixture":
        raise _no_mixture(known, place)
    try:
        return parse_mixture(found, names)
    except UsageError as error:
        raise StoreError(error.message, location=place, hint=error.hint, faults=error.faults) from error


_WRITTEN = "give what optimize wrote, or ratios by name"


def _no_mixture(document: Mapping[str, object], place: Location) -> StoreError:
    """What a file holds instead of one mixture, and how to get one."""
    kind, entries = document.get("kind"), document.get("entries")
    if not isinstance(kind, str):
        return StoreError("holds no mixture", location=place, hint=_WRITTEN)
    if kind in SEVERAL and isinstance(entries, list):
        hint = f"optimize and write the one that is meant: {SEVERAL[kind]}"
        return StoreError(f"holds {len(entries)} mixtures, expected one", location=place, hint=hint)
    holds = f"holds {'' if kind.endswith('s') else 'a '}{kind:.60}, expected a mixture"
    return StoreError(holds, location=place, hint=_WRITTEN)


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


def _ratio(name: str, value: Ratio) -> float:
    return value if type(value) is float else ratio_number(value, name)


def _of_pairs(written: list[tuple[str, float]], names: Sequence[str]) -> FloatArray:
    pairs = [(composed(name), ratio) for name, ratio in written]
    faults = [*_label_faults([name for name, _ in pairs], names), *_ratio_faults(pairs)]
    if faults:
        raise UsageError.of(faults, "the mixture")
    given = dict(pairs)
    ratios = np.array([given.get(name, 0.0) for name in names], dtype=np.float64)
    total = float(row_sums(ratios))
    if abs(total - 1) > ROUNDED:
        raise UsageError(f"the mixture sums to {total:.6g}, expected 1", hint=_sum_hint(given, total))
    return renormalise(ratios)


def format_mixture(p: ArrayLike, names: Sequence[str], digits: int | None = None) -> str:
    """`en=0.5,de=0.5`: exact without `digits`, so that `parse_mixture` gives the same ratios; zeros left out."""
    ratios = np.asarray(p, dtype=np.float64).tolist()
    parts = zip(names, ratios, strict=True)
    return ",".join(f"{name}={_written(ratio, digits)}" for name, ratio in parts if ratio != 0)


def _written(ratio: float, digits: int | None) -> str:
    return repr(ratio) if digits is None else f"{ratio:.{digits}g}"


def _pairs(text: str, names: Sequence[str]) -> list[tuple[str, float]]:
    pairs = []
    for part in text.split(","):
        name, equals, ratio = part.rpartition("=")
        try:
            pairs.append((name.strip(), ratio_number(ratio) if ratio.strip() != "nan" else math.nan))
        except UsageError:
            equals = ""
        if not equals:
            raise UsageError(f"{part.strip()!r} is no ratio", hint=_order_hint(text, names) or _MIXTURE_HINT)
    return pairs


_MIXTURE_HINT = "write a mixture like en=0.5,de=0.3,fr=0.2, uniform, or the .json of a saved one"


def _order_hint(text: str, names: Sequence[str]) -> str | None:
    """What `2:1:1` stands for, where it has as many parts as there are names."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        return None
    total = sum(parts)
    if len(parts) != len(names) or not (0 < total < math.inf) or min(parts) < 0:
        return None
    return f"by name: {','.join(f'{name}={part / total:.4g}' for name, part in zip(names, parts, strict=True))}"


def _label_faults(given: Sequence[str], names: Sequence[str]) -> list[Fault]:
    known = set(names)
    unknown = [
        Fault(f"{name!r} is not one of the sources", Location(), name, near(name, names))
        for name in dict.fromkeys(given)
        if name not in known
    ]
    return unknown + [Fault(f"{name!r} is given twice", Location(), name) for name in repeated(given)]


def _ratio_faults(pairs: Sequence[tuple[str, float]]) -> list[Fault]:
    return [
        Fault(f"{name}={ratio:g} is not a ratio between 0 and 1", Location(), f"{ratio:g}")
        for name, ratio in pairs
        if not (math.isfinite(ratio) and ratio >= 0)
    ]


def _sum_hint(given: Mapping[str, float], total: float) -> str | None:
    """What the user may have meant: percentages, or amounts that are to be shared out."""
    if total <= 0:
        return None
    shares = ",".join(f"{name}={value / total:.4g}" for name, value in given.items())
    return f"divided by their sum they are {shares}"
