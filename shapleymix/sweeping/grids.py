"""Mixtures x sizes x tokens x seeds as a plan: the one way from mixtures to runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.records import FloatArray
from shapleymix.sweeping.listed import Listed
from shapleymix.sweeping.plans import Plan, PlannedRun, plan_of
from shapleymix.sweeping.templates import DEFAULT, RATIO, Template, Words
from shapleymix.tables.simplex import format_mixture
from shapleymix.tables.sizes import parse_budget

MOST_RUNS = 1_000_000
Sizes = Mapping[str, float | str] | Sequence[float | str] | float | str
"""Sizes by the name of the model, or alone: `{"tiny": 23712}`, `[23712, 97600]`, `"243M"`."""


def grid(
    mixtures: Listed,
    N: Sizes,
    D: Sequence[float | str] | float | str,
    *,
    seeds: Sequence[int] = (0,),
    command: str = DEFAULT,
) -> Plan:
    """Every mixture at every size, token count and seed; mixtures change fastest, sizes slowest.

    Parameters
    ----------
    mixtures : Listed
        What to train on.
    N : Sizes
        Parameters without embeddings; where sizes have names, `{model}` of the command is that name.
    D : size or sequence of sizes
        Tokens.
    seeds : sequence of int
        Seeds of the runs.
    command : str
        How a run is started, with placeholders: `{mixture}` (en=0.5,de=0.5), `{p_en}` (its ratio of en), `{sources}`
        (en,de), `{N}`, `{model}`, `{D}`, `{seed}`, `{name}`, `{out}` (the folder of the run) and `{id}`.

    Raises
    ------
    UsageError
        If a placeholder is unknown, one that would tell runs apart is missing, or a size or seed is none.
    """
    sizes, tokens, chosen = _sizes(N), [parse_budget(one, "D") for one in _listed(D)], _seeds(seeds)
    total = len(mixtures) * len(sizes) * len(tokens) * len(chosen)
    if total > MOST_RUNS:
        raise UsageError(f"{total:,} runs are more than a plan holds, {MOST_RUNS:,}", hint="make several plans")
    template = Template.of(command, mixtures.sources)
    _check_told_apart(template, sizes, tokens, chosen)
    ratios = [_exact(row) for row in mixtures.p]
    runs = [
        _run(template, mixtures, place, ratios[place], size, D, seed)
        for size, D, seed, place in product(sizes, tokens, chosen, range(len(mixtures)))
    ]
    plan = plan_of(mixtures.sources, runs, mixtures.notices)
    _check_commands(plan)
    return plan


def _run(
    template: Template,
    mixtures: Listed,
    place: int,
    ratios: FloatArray,
    size: tuple[str | None, float],
    D: float,
    seed: int,
) -> PlannedRun:
    sources, name = mixtures.sources, mixtures.names[place]
    model, N = size
    values = {f"{RATIO}{source}": repr(ratio) for source, ratio in zip(sources, ratios.tolist(), strict=True)}
    values |= {"mixture": format_mixture(ratios, sources), "sources": ",".join(sources), "name": name}
    values |= {"N": _number(N), "D": _number(D), "seed": str(seed), "model": model or ""}
    mixture = dict(zip(sources, ratios.tolist(), strict=True))
    return PlannedRun(name, mixture, N, D, seed, template.filled(values))


def _exact(p: FloatArray) -> FloatArray:
    """Ratios (M,) whose sum is 1 to rounding, so that no reader finds them to be rounded."""
    return p / p.sum()


def _sizes(given: Sizes) -> list[tuple[str | None, float]]:
    """(name, N) of each size; the name is None where none was given."""
    if isinstance(given, Mapping):
        found: list[tuple[str | None, float]] = [(name, parse_budget(N, "N")) for name, N in given.items()]
    else:
        found = [(None, parse_budget(one, "N")) for one in _listed(given)]
    if not found:
        raise UsageError("no N is given", hint="give a size, such as tiny=23712")
    return found


def _listed(given: Sequence[float | str] | float | str) -> list[float | str]:
    return [given] if isinstance(given, (str, int, float, np.number)) else list(given)


def _seeds(given: Sequence[int]) -> list[int]:
    for seed in given:
        if type(seed) is not int or seed < 0:
            raise UsageError(f"seed {seed!r:.40} is not a whole number of at least 0")
    if len(set(given)) < len(given):
        raise UsageError("a seed is given twice", hint="give each seed once")
    return list(given)


def _check_told_apart(
    template: Template, sizes: Sequence[tuple[str | None, float]], tokens: Sequence[float], seeds: Sequence[int]
) -> None:
    """What differs between runs must be said to them."""
    several = {"D": len(set(tokens)) > 1, "seed": len(seeds) > 1}
    for name, many in several.items():
        if many and not template.says(name):
            raise UsageError(f"the command never says {{{name}}}, in which runs differ", hint=f"put {{{name}}} into it")
    if len(sizes) > 1 and not (template.says("N") or template.says("model")):
        raise UsageError("the command never says {N} or {model}, in which runs differ", hint="put one of them into it")
    if template.says("model") and any(name is None for name, _ in sizes):
        hint = "name the sizes (tiny=23712,mini=97600), or write the model into the command"
        raise UsageError("{model} of the command is the name of a size, and a size has none", hint=hint)


def _check_commands(plan: Plan) -> None:
    """Runs that differ are not started alike: a command may say the ratios of some sources only."""
    first: dict[Words, PlannedRun] = {}
    for run in plan.runs:
        if (other := first.setdefault(run.command, run)) is not run:
            message = f"the command is the same for the mixtures {other.name} and {run.name}"
            raise UsageError(message, hint="put {mixture} into it, or the ratio of every source")


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
