"""What is asked of a mixture, from the words of the command line to what the core takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shapleymix.errors import UsageError, did_you_mean
from shapleymix_cli.console import Output
from shapleymix_cli.inputs import TABLES, read_table

if TYPE_CHECKING:
    from shapleymix.mixing.bounds import Group
    from shapleymix.tables.languages import Languages

WORDS = ("unweighted", "normalized")
_GROUP = re.compile(r"(?:(?P<name>[^:<>=]+):)?(?P<members>[^:<>=]+)(?P<sign><=|>=|=)(?P<bound>[^<>=]+)")


def demands_of(
    out: Output,
    targets: Sequence[str],
    *,
    weights: str | None,
    monolingual: str | None,
    objective: str,
    languages: str | None,
    available: str | None,
    max_epochs: str | None,
    caps: Sequence[str],
    floors: Sequence[str],
    min_tokens: str | None,
    groups: Sequence[str],
    anchor: str | None,
    kl: float,
    method: str,
    allow_nonconvex: bool,
    rivals: Sequence[str],
    alpha: float,
    level: float,
    seed: int,
) -> dict[str, Any]:
    """The keyword arguments of `shapleymix.optimize`."""
    if languages and available:
        raise UsageError("--available and --languages exclude each other", hint="one of them says what there is")
    _require("--max-epochs", max_epochs, "--languages or --available", languages or available)
    _require("--monolingual", monolingual, "--weights normalized", weights == WORDS[1])
    _require("--anchor", anchor, "--kl", kl)
    _require("--kl", kl, "--anchor", anchor)
    table = read_table(out, languages)
    return {
        "weights": _weights(out, weights, table),
        "monolingual": None if monolingual is None else _of_targets("--monolingual", monolingual, targets),
        "objective": objective,
        "available": table if available is None else pairs("--available", available, _size),
        "epochs": None if max_epochs is None else one_or_pairs("--max-epochs", max_epochs, float),
        "caps": _merged("--cap", caps),
        "floors": _merged("--floor", floors),
        "min_tokens": None if min_tokens is None else one_or_pairs("--min-tokens", min_tokens, _size),
        "groups": [group_of(text) for text in groups],
        "anchor": None if anchor is None else mixture_of(anchor),
        "kl": kl,
        "method": method,
        "allow_nonconvex": allow_nonconvex,
        "baselines": dict(_named_rival(text) for text in rivals),
        "smoothing": alpha,
        "level": level,
        "seed": seed,
    }


def _require(option: str, given: Any, other: str, there: Any) -> None:
    """An option that would do nothing without another is a mistake, not a wish to be passed over."""
    if given and not there:
        raise UsageError(f"{option} does nothing without {other}", hint=f"give {other}, or leave out {option}")


def _of_targets(option: str, text: str, targets: Sequence[str]) -> dict[str, float]:
    found = pairs(option, text, float)
    for name in found:
        if name not in targets:
            raise UsageError(f"{option}: {name!r} is not one of the targets", hint=did_you_mean(name, targets))
    return found


def _weights(out: Output, given: str | None, table: Languages | None) -> Any:
    """A word, numbers by target, or a languages table; by default the weights of `--languages` if it has them."""
    if given is None:
        if table is None or table.weight is None:
            return WORDS[0]
        out.note([f"the targets are weighted as {table.origin} says; --weights unweighted ignores that"])
        return table
    if "=" in given and not given.lower().endswith(TABLES):
        return pairs("--weights", given, float)
    return given if given in WORDS or not given.lower().endswith(TABLES) else read_table(out, given)


def pairs(option: str, text: str, read: Callable[[str], float]) -> dict[str, float]:
    """`en=0.5,de=0.2` as a mapping; each name once, each value finite."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, word = (piece.strip() for piece in part.rpartition("="))
        value = _number(option, word, read) if equals and name else math.nan
        if math.isnan(value):
            raise UsageError(f"{option}: {part.strip()!r} is no name=value", hint="write it like en=0.5,de=0.2")
        if name in found:
            raise UsageError(f"{option}: {name!r} is given twice")
        found[name] = value
    return found


def one_or_pairs(option: str, text: str, read: Callable[[str], float]) -> float | dict[str, float]:
    """One number for all, or `en=4,de=2`."""
    return pairs(option, text, read) if "=" in text else _number(option, text, read)


def _number(option: str, word: str, read: Callable[[str], float]) -> float:
    try:
        value = read(word)
    except UsageError as error:
        raise UsageError(f"{option}: {error.message}", hint=error.hint) from error
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{option}: {word!r} is not a number")
    return value


def _size(text: str) -> float:
    from shapleymix.tables.sizes import parse_size

    return parse_size(text)


def _merged(option: str, texts: Sequence[str]) -> dict[str, float] | None:
    return pairs(option, ",".join(texts), float) if texts else None


def group_of(text: str) -> Group:
    """A bound on a summed ratio from `en+de<=0.6`, `cjk:zh+ja>=0.1` or `en+de=0.5`."""
    from shapleymix.mixing.bounds import Group

    found = _GROUP.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--group: {text!r} is no bound", hint="write it like 'en+de<=0.6' or 'cjk: zh+ja>=0.1'")
    bound = _number("--group", found["bound"].strip(), float)
    if not 0 <= bound <= 1:
        raise UsageError(f"--group: {bound:g} is not a ratio between 0 and 1")
    members = tuple(name.strip() for name in found["members"].split("+"))
    lower = bound if found["sign"] != "<=" else 0.0
    upper = bound if found["sign"] != ">=" else 1.0
    return Group(members, lower, upper, found["name"].strip() if found["name"] else None)


def mixture_of(text: str) -> Any:
    """A mixture as the core reads it, or the one that a saved result holds."""
    if not text.lower().endswith(".json"):
        return text
    from shapleymix.mixing.mixtures import Mixture

    return Mixture.load(text).mixture


def _named_rival(text: str) -> tuple[str, Any]:
    """`plan=en=0.5,de=0.5` has a name; `en=0.5,de=0.5` and `old.json` are their own."""
    name, equals, rest = text.partition("=")
    try:
        float(rest.split(",")[0])
    except ValueError:
        return (name.strip(), mixture_of(rest)) if equals else (text, mixture_of(text))
    return text, mixture_of(text)
