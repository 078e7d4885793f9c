"""Mixtures, the points of the simplex: check, renormalise, read and write; and those that people use by name.

`uniform`, `natural` (in proportion to the tokens n_i at hand), `temperature:T` (p_i ~ n_i^(1/T), T >= 1, as in
multilingual pretraining since Arivazhagan et al. 2019: T = 1 is natural, a larger T is more even), `unimax:E` (as even
as at most E epochs of each source allow) and `text:DIR` (of the least weighted loss of n-gram models of that text).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from shapleymix.errors import DataError, Location, StoreError, UsageError, did_you_mean
from shapleymix.files import read_json
from shapleymix.records import FloatArray
from shapleymix.tables import words

ROUNDED = 5e-3
"""Largest distance of a sum of ratios from one that is taken for rounding (published logs print few digits)."""

EXACT = 1e-9
"""A sum of ratios this near to one is left as it is, so that reading does not change written numbers."""


def row_sums(p: ArrayLike) -> FloatArray:
    """Sums over the last axis that do not depend, to the last bit, on the order of the columns."""
    return np.sort(np.asarray(p, dtype=np.float64), axis=-1).sum(axis=-1)


def check(p: FloatArray) -> None:
    """Refuse rows (R, M) that are no mixtures.

    Raises
    ------
    DataError
        If a ratio is negative or not finite, or a row misses a sum of one by more than rounding.
    """
    if not np.isfinite(p).all():
        raise DataError("a mixture has a ratio that is not a finite number")
    if (p < 0).any():
        raise DataError(f"a mixture has a negative ratio, {p.min():g}")
    off = row_sums(p) - 1
    if (np.abs(off) > ROUNDED).any():
        raise DataError(f"a mixture sums to {1 + off[np.abs(off).argmax()]:.6g}, expected 1")


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


MixtureSpec = str | os.PathLike[str] | Mapping[str, float | str] | Sequence[float] | FloatArray | HasMixture
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
    given = given.mixture if isinstance(given, HasMixture) else words.by_index(given)
    if isinstance(given, os.PathLike) or (isinstance(given, str) and is_file_name(given)):
        return _read_saved(os.fspath(given), names)
    if isinstance(given, str) and given.strip() == "uniform" and "uniform" not in names:
        return uniform(len(names))
    if isinstance(given, (str, Mapping)):
        hint = "write a mixture like en=0.5,de=0.5, uniform, or its .json"
        pairs = words.parse_pairs(given, words.ratio_number, "the mixture", hint)
        words.require_names(pairs, names, "the mixture")
        ratios = np.array([pairs.get(name, 0.0) for name in names])
    else:
        ratios = words.in_order(given, names, words.ratio_number, "the mixture")
    if (ratios < 0).any():
        raise UsageError(f"the mixture of {names[int(ratios.argmin())]!r}: {ratios.min():g} is below 0")
    total = float(row_sums(ratios))
    if abs(total - 1) > ROUNDED:
        shares = ",".join(f"{name}={value / total:.4g}" for name, value in zip(names, ratios, strict=True) if value > 0)
        hint = f"divided by their sum they are {shares}" if shares else None
        raise UsageError(f"the mixture sums to {total:.6g}, expected 1", hint=hint)
    return renormalise(ratios)


def is_file_name(text: str) -> bool:
    """Whether a mixture that is given as text is the name of a saved one."""
    return text.strip().lower().endswith(".json")


_BY_NAME = "give what optimize wrote, or a file with one mixture: its ratios by name"


def _read_saved(path: str, names: Sequence[str]) -> FloatArray:
    """The mixture of a saved result, of what a command printed with `--json`, or of ratios by name alone."""
    (document, _), place = read_json(path), Location(file=path)
    known = document if isinstance(document, dict) else {}
    kind = known.get("kind")
    found = known if kind is None else known.get("mixture")
    if not isinstance(found, dict) or not found:
        holds = "holds no mixture" if kind is None else f"holds a {kind!s:.60}, expected one mixture"
        raise StoreError(holds, location=place, hint=_BY_NAME)
    try:
        return parse_mixture(found, names)
    except UsageError as error:
        raise StoreError(error.message, location=place, hint=error.hint or _BY_NAME, faults=error.faults) from error


def format_mixture(p: ArrayLike, names: Sequence[str]) -> str:
    """`en=0.5,de=0.5`, exact, so that `parse_mixture` gives the same ratios; zeros left out."""
    ratios = np.asarray(p, dtype=np.float64).tolist()
    return ",".join(f"{name}={ratio!r}" for name, ratio in zip(names, ratios, strict=True) if ratio != 0)


NAMES = ("natural", "temperature", "text", "unimax", "uniform")
USUAL = ("uniform", "natural", "temperature:2", "unimax:1", "unimax:4")
"""What a table of baselines shows."""

ONCE = 1.0 + 1e-6

Rivals = Mapping[str, MixtureSpec] | Sequence[MixtureSpec] | str
_FORMS = "known: uniform, natural, temperature:T, unimax:E, text:DIR"


def baseline(
    text: str, sources: Sequence[str], available: FloatArray, D: float, weights: FloatArray | None = None
) -> FloatArray:
    """The mixture (M,) that a name stands for.

    Parameters
    ----------
    text : str
        `uniform`, `natural`, `temperature:T` (p_i ~ n_i^(1/T), T >= 1), `unimax:E` or `text:DIR`.
    sources : sequence of str (M,)
        Labels, for messages.
    available : array (M,)
        Unique tokens at hand, NaN where not known.
    D : float
        Tokens to train on.
    weights : array (M,), optional
        What the loss of each source counts for `text:DIR`; equal by default.

    Raises
    ------
    UsageError
        If there is no such name, its number is missing or not above 0, T is below 1, or the tokens of a source are not
        known; and of `text:DIR` those of reading it.
    """
    kind, colon, number = (part.strip() for part in text.partition(":"))
    if kind not in NAMES or bool(colon) != (kind in ("temperature", "text", "unimax")):
        raise UsageError(f"{text!r} is no baseline", hint=did_you_mean(kind, NAMES) if kind not in NAMES else _FORMS)
    if kind == "uniform":
        return uniform(len(sources))
    if kind == "text":
        from shapleymix.game.text import first_mixture  # here: the game stands above the tables

        return first_mixture(number, tuple(sources), (*(np.ones(len(sources)) if weights is None else weights),))
    unknown = [name for name, tokens in zip(sources, available.tolist(), strict=True) if np.isnan(tokens)]
    if unknown or not available.any():
        hint = "give a languages table, or available tokens by name"
        lacking = ", ".join(map(repr, unknown[:5])) or "a source"
        raise UsageError(f"{kind!r} needs the available tokens of {lacking}", hint=hint)
    value = 1.0 if kind == "natural" else words.parse_positive(number, f"the number of {text!r}")
    if kind != "unimax":
        if value < 1:
            hint = f"for p ~ tokens^{value:g} write temperature:{1 / value:.4g}"
            raise UsageError(f"{text!r}: a temperature below 1 is less even than natural; T is 1 or more", hint=hint)
        return smooth(available, 1 / value)
    if (needed := _epochs_needed(available, D)) > value * (1 + 1e-9):  # the realised epochs would be others
        most = f"{value:g} epochs of all sources are {words.format_size(value * float(np.nansum(available)))} tokens"
        hint = f"take unimax:{np.ceil(needed * 100) / 100:g} or more, or a smaller D"
        raise UsageError(f"{text!r} does not fill D = {words.format_size(D)}: {most}", hint=hint)
    return unimax(available, D, value)


def usual(available: FloatArray, D: float) -> tuple[str, ...]:
    """The names of `USUAL` that stand for a mixture here: without a UniMax whose epochs do not fill D."""
    return tuple(name for name in USUAL if _epochs_needed(available, D) <= float(name.partition("unimax:")[2] or "inf"))


def _epochs_needed(available: FloatArray, D: float) -> float:
    """Epochs of everything that make D tokens."""
    total = float(np.nansum(available))
    return D / total if total > 0 else np.inf


def is_name(text: str, sources: Sequence[str]) -> bool:
    """Whether a text is meant as the name of a baseline, not as ratios, a file or a source."""
    known = "=" not in text and not is_file_name(text) and text.partition(":")[0].strip() in NAMES
    return known and text.strip() not in sources


def smooth(available: FloatArray, alpha: float) -> FloatArray:
    """p_i ~ available_i^alpha (Conneau and Lample 2019; ShapleyLaw paper, "Mixture Optimization Baselines")."""
    sizes = np.asarray(available, dtype=float)
    share = np.where(sizes > 0, (sizes / sizes.max()) ** alpha, 0.0)
    return share / share.sum()


def unimax(available: FloatArray, D: float, epochs: float) -> FloatArray:
    """UniMax (Chung et al. 2023, Algorithm 1): sources in ascending order of tokens, each takes an equal share of
    what is left of D among the sources left, but at most `epochs` times its tokens. Where all together cannot fill
    D, their takings are normalised, and the realised epochs exceed `epochs` by the same factor everywhere."""
    taken, rest = np.zeros(len(available)), float(D)
    for place, source in enumerate(np.argsort(available, kind="stable").tolist()):
        taken[source] = min(epochs * float(available[source]), rest / (len(available) - place))
        rest -= taken[source]
    return taken / taken.sum()


def mixtures_of(
    mixtures: Rivals, sources: Sequence[str], available: FloatArray, D: float, weights: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Several mixtures (M,) by their names.

    Raises
    ------
    UsageError
        If a mixture is none, or two have one name.
    """
    return {name: mixture_of(given, sources, available, D, weights) for name, given in rivals_of(mixtures).items()}


def epochs_of(p: FloatArray, available: FloatArray, D: float) -> FloatArray:
    """p D / available (M,): NaN where the tokens are not known, or none are there and none are asked for."""
    used = p * D
    bare = np.where(used > 0, np.inf, np.nan)
    return np.divide(used, available, out=np.where(np.isnan(available), np.nan, bare), where=available > 0)


def shares_of_bytes(p: FloatArray, size: FloatArray) -> FloatArray:
    """Ratios of bytes (M,) by the bytes of a token of each source (M,); NaN if one that is held has no such number."""
    amount = np.where(p > 0, p * size, 0.0)
    return amount / amount.sum()


def mixture_of(
    given: MixtureSpec, sources: Sequence[str], available: FloatArray, D: float, weights: FloatArray | None = None
) -> FloatArray:
    """A mixture (M,) from whatever may be given for one: a baseline's name, or what `parse_mixture` takes."""
    if isinstance(given, str) and is_name(given, sources):
        if not sources:
            raise UsageError("there are no sources to mix", hint="the log had none: ask for N and D alone")
        return baseline(given, sources, available, D, weights)
    return parse_mixture(given, sources)


def baselines_beside(
    sources: Sequence[str], available: FloatArray, given: Rivals, D: float, weights: FloatArray | None = None
) -> dict[str, FloatArray]:
    """Uniform, then smoothed and natural where every corpus size is known, then the given mixtures.

    Raises
    ------
    UsageError
        If two different mixtures have one name, or one cannot be read.
    """
    known = np.isfinite(available).all() and available.any()
    names = ("uniform", "temperature:2", "natural") if known else ("uniform",)
    found = {name: baseline(name, sources, available, D) for name in names}
    for name, p in mixtures_of(given or (), sources, available, D, weights).items():
        if name in found and not np.allclose(found[name], p, rtol=0, atol=1e-12):
            raise _one_name(name)
        found[name] = p
    return found


def rivals_of(given: Rivals | None) -> dict[str, MixtureSpec]:
    """Mixtures to compare with, by name; `plan=en=0.5,de=0.5` has one, any other is its own.

    Raises
    ------
    UsageError
        If two different mixtures have one name (the same one twice is one).
    """
    if given is None or isinstance(given, Mapping):
        return {str(name): mixture for name, mixture in (given or {}).items()}
    found: dict[str, MixtureSpec] = {}
    for place, mixture in enumerate([given] if isinstance(given, str) or not isinstance(given, Sequence) else given):
        name, meant = _split_name(mixture, place)
        if name in found and not (isinstance(meant, str) and found[name] == meant):
            raise _one_name(name)
        found[name] = meant
    return found


def _one_name(name: str) -> UsageError:
    return UsageError(f"two mixtures are named {name!r}", hint="give each its own name: NAME=MIX")


def _split_name(given: MixtureSpec, place: int) -> tuple[str, MixtureSpec]:
    if not isinstance(given, str):
        return (os.fspath(given) if isinstance(given, os.PathLike) else f"mixture {place + 1}", given)
    name, equals, rest = given.partition("=")
    ratio = words.double(rest.split(",")[0].strip().removesuffix("%"))
    return (name.strip(), rest.strip()) if equals and not np.isfinite(ratio) else (given, given)
