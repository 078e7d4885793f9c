"""The question of a mixture, opened again: convex pieces and token caps at a grid of budgets, for the page's sliders.

The page's script knows one law's pieces and bounds at each budget, nothing of growth in N and D: the core is asked at
every budget of the grid. What it does not know is told instead of shown: see `unmoved`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy as np

import shapleymix as sm
from shapleymix import Fit, Mixture
from shapleymix.errors import InfeasibleError, Location, ShapleyMixError
from shapleymix.files import Json, plain
from shapleymix.fitting.residual import ALONE, TOGETHER
from shapleymix.laws.pieces import MATRICES, SOURCES
from shapleymix.mixing.answers import Rival
from shapleymix.mixing.bounds import Families, families_of
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import REGIME
from shapleymix.mixing.question import MOST_FLOORS, Question
from shapleymix.mixing.reporting import beyond_runs
from shapleymix.records import FloatArray, decode_fields
from shapleymix.tables.languages import Languages, Parents
from shapleymix.tables.words import amounts, format_size, parse_ratio

STEPS = 5
"""Sizes N and token counts D of the grid, beside the mixture's own."""
AHEAD = 10.0
"""The grid ends at so many times the mixture's budget, or at the largest that was fitted."""
DIGITS = 11
"""Decimals of what the law misses of runs: objectives are the terminal's to 1e-9."""
FIELDS = ("floor", "scale", "gamma", "phi", "s", "base", "unique", "rate", "harm")
ALIKE = ("unit", "own", "edge", "equal", "rows", "ball", "anchor", "read")
"""What budgets have in common, mostly."""
MIXTURES = ("near", "after", "anchor", "kept")
USUAL = {one.name: one.default for one in signature(sm.problem).parameters.values()}
"""Keywords that no command needs to say."""


def opened(mixture: Mixture) -> dict[str, Any]:
    """The keywords of `problem` that a stored mixture was asked with."""
    asked: dict[str, Any] = dict(mixture.asked)
    if isinstance(table := asked.get("languages"), Mapping):
        known: dict[str, Any] = decode_fields(Languages, table, Location("languages"))
        asked["languages"] = Languages(**known)
    if isinstance(asked.get("downstream"), Mapping):
        asked["downstream"] = sm.Downstream.from_document(asked["downstream"])
    return {name: value for name, value in asked.items() if name not in ("what_if", "compare_to", "constraints")}


def rows_of(families: Families, names: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Rows with the places of their names: where that halves them parents and families, and the other names alone."""
    found: list[tuple[str, list[int]]] = []
    alone = dict.fromkeys(range(len(names)))
    for name, members in sorted(families.items(), key=lambda one: -len(one[1])):
        places = [place for place in alone if names[place] in members]
        if 1 < len(places) == len(members) < len(names):
            found.append((name, places))
            alone = {place: None for place in alone if place not in places}
    rows = [*found, *((names[place], [place]) for place in alone)]
    return rows if 2 * len(rows) <= len(names) else [(name, [place]) for place, name in enumerate(names)]


def summed(matrix: sm.TransferMatrix, parents: Parents = MappingProxyType({})) -> sm.TransferMatrix | None:
    """What parents do for parents, nats: sums over sources, means over targets; None where nothing folds."""
    rows, columns = (rows_of(families_of(None, each, parents), each) for each in (matrix.sources, matrix.targets))
    if matrix.sv is None or (len(rows), len(columns)) == matrix.sv.shape:
        return None
    sums = np.stack([matrix.sv[places].sum(axis=0) for _, places in rows])
    means = np.stack([sums[:, places].mean(axis=1) for _, places in columns], axis=1)
    return sm.TransferMatrix.from_sv(means, [name for name, _ in rows], [name for name, _ in columns])


def unmoved(fit: Fit, mixture: Mixture) -> str:
    """Why no slider can move this question; empty where they can."""
    if (mixture.sources, mixture.targets) != (fit.sources, fit.targets):
        return "scores on tasks" if mixture.measure == "error" else "another fit"
    asked = mixture.asked
    known = {
        "constraints of your own": asked.get("constraints"), "scores on tasks": mixture.measure == "error",
        "a law without convex pieces": np.isnan(mixture.gap),
        "a source that is taken to be like another": fit.coverage.alike,
    }  # fmt: skip
    return ", ".join(name for name, there in known.items() if there)


def document(fit: Fit, mixture: Mixture, name: str) -> dict[str, Json]:
    """What the page's script is given.

    Parameters
    ----------
    fit, mixture : Fit and Mixture
        The fit, and the mixture at which the page begins.
    name : str
        What the command line that the page shows calls the fit.

    Raises
    ------
    ShapleyMixError
        If the question cannot be asked again, as where the fit is not the mixture's.
    """
    asked = opened(mixture)
    own = sm.problem(fit, mixture.N, mixture.D, **asked)
    given = amounts(np.ones(len(fit.sources)), asked.get("caps"), fit.sources, parse_ratio, "caps")
    nothing = {source: 0.0 for source, cap in zip(fit.sources, given, strict=True) if cap == 0}
    wider = {**asked, "caps": nothing or None}  # sources that are left out have another law: they stay out
    sizes, tokens = grid(fit, mixture).values()
    budgets = [_budget(fit, N, D, wider) for N in sizes for D in tokens]
    first = next(one for one in budgets if "floor" in one)
    shared = {key: first[key] for key in (*FIELDS, *ALIKE) if key in first}
    start = {"n": sizes.index(mixture.N), "d": tokens.index(mixture.D), "weights": _sliders(own), "caps": given}
    start |= {"rival": first_rival(mixture)}
    known = {
        "sources": mixture.sources, "targets": mixture.targets, "sizes": sizes, "tokens": tokens, "start": start,
        "told": {"n": [*map(format_size, sizes)], "d": [*map(format_size, tokens)]}, "available": mixture.available,
        "rivals": [{"name": one.name, "p": mixture.rest_of(one.p), "gains": one.gains} for one in rivals_of(mixture)],
        "losses": mixture.losses,
        "residual": _residual(fit), "worst": own.goal.worst, "kl": own.goal.kl, "ranges": fit.coverage.whole_p_range,
        "closed": (own.within.upper <= 0) | np.any(own.within.rows[own.within.rigid] != 0, axis=0), "unit": own.unit,
        "weighed": own.asked.weights is not None, "command": ["shapleymix", "optimize", name],
        "flags": [*_flags(asked, mixture.sources)], "shared": shared,
        "budgets": [{key: value for key, value in one.items() if shared.get(key) != value} for one in budgets],
    }  # fmt: skip
    return {key: plain(value) for key, value in known.items()}


def rivals_of(mixture: Mixture) -> list[Rival]:
    """The other mixtures that have a number."""
    return [one for one in mixture.baselines if np.isfinite(one.objective)]


def first_rival(best: Mixture) -> int:
    """The place of the rival that a page begins with: the best one that may be trained instead."""
    others = rivals_of(best)
    may = [place for place, one in enumerate(others) if one.within_bounds and not np.array_equal(one.p, best.p)]
    return min(may or range(len(others)), key=lambda place: others[place].objective, default=-1)


def _residual(fit: Fit) -> dict[str, Any]:
    """What the law misses of mixtures: roots of the runs' ratios (G, M), by how much each pulls targets (G, K), and the
    jumps of each target's losses."""
    left, known = fit.residual, fit.jumps
    numbers = {"roots": np.round(np.sqrt(left.p), DIGITS), "pull": np.round(left.pull, DIGITS)}
    each = () if known is None else zip(known.low.T, known.high.T, known.height, strict=True)
    jumps = [{"low": low, "high": high, "height": height} for low, high, height in each] or None
    numbers |= {"counted": np.flatnonzero(left.counted), "alone": ALONE, "together": TOGETHER}
    return numbers | {"jumps": jumps, "most": MOST_FLOORS}


def grid(fit: Fit, mixture: Mixture) -> dict[str, list[float]]:
    """Steps of N and D, as even as their logarithms allow: through the mixture's own, from the least that was fitted to
    `AHEAD` times the mixture's, or the largest fitted.
    """
    found = {}
    for name, now, fitted in (("N", mixture.N, fit.N_range), ("D", mixture.D, fit.D_range)):
        low, high = min(float(fitted[0]), now), max(float(fitted[1]), AHEAD * now)
        step = np.log(high / low) / STEPS
        places = range(round(np.log(low / now) / step), round(np.log(high / now) / step) + 1)
        found[name] = [float(f"{now * np.exp(step * k):.2g}") if k else now for k in places]
    return found


def scan(fit: Fit, mixture: Mixture) -> dict[str, FloatArray]:
    """Steps of N and of D with the objective of the mixture and its interval there (4, steps); NaN where none is."""
    asked, found = opened(mixture), {}
    for name, steps in grid(fit, mixture).items():
        rows = np.full((4, len(steps)), np.nan)
        rows[0] = steps
        for place, step in enumerate(steps):
            try:
                one = sm.problem(fit, **{"N": mixture.N, "D": mixture.D, name: step}, **asked)
            except ShapleyMixError:
                continue
            rows[1:, place] = one.objective(mixture.p), *one.objective_interval(mixture.p)
        found[name] = rows
    return found


def say_far(beyond: Mapping[str, float]) -> tuple[str, str]:
    """How far a budget lies beyond the runs, in a word and in small print."""
    if not (far := {name: factor for name, factor in beyond.items() if factor > 1}):
        return ("inside", "the runs' N and D") if beyond else ("–", "the runs are not known")
    names = [one for one in ("N", "D") if one in far] or [max(far, key=lambda one: far[one])]
    said = "off the line of runs" if names == ["line"] else f"{', '.join(names)} beyond runs"
    return f"× {float(f'{max(far.values()):.3g}'):,.10g}", said


def _sliders(question: Question) -> FloatArray:
    """The weights (K,) as they were typed; ones where losses are divided by those of monolingual models."""
    weights = question.weights
    return np.ones_like(weights.raw) if weights.unit else weights.raw


def _budget(fit: Fit, N: float, D: float, asked: Mapping[str, Any]) -> dict[str, Json]:
    """Bounds and pieces of the law at one budget; the reason why there are none."""
    try:
        question = sm.problem(fit, N, D, **asked)
    except InfeasibleError as error:
        return {"reason": error.message}
    within, surface = question.within, question.surface
    raised = (np.array(within.floor_origin) == REGIME) & np.isin(np.arange(len(within.lower)), surface.own)
    edge = np.where(surface.own >= 0, np.where(raised, within.lower, np.inf)[surface.own], 0.0)
    edge = np.where(np.isfinite(edge), edge, np.where(surface.own >= 0, surface.edge, 0.0))
    raw, unit = question.weights.raw, question.weights.unit
    found = {
        "lower": np.where(raised, 0.0, within.lower), "own": surface.own, "edge": edge,
        "unit": raw / _sliders(question) if unit else None, "far": say_far(beyond_runs(question)),
        "read": within.supply.read / D if within.supply.read.any() else None,
    }  # fmt: skip
    return goal_document(question.goal) | {key: plain(value) for key, value in found.items()}


def goal_document(goal: Goal) -> dict[str, Json]:
    """The pieces of the law and the bounds of a goal, as the page's solver takes them."""
    within, pieces = goal.within, goal.pieces
    rows, limits, equal = within.sums()
    sides = [[row, limit] for row, limit in zip(rows.tolist(), limits.tolist(), strict=True)]
    ball = None if within.ball is None else plain(vars(within.ball))
    found: dict[str, Json] = {"form": pieces.form, "lower": within.lower.tolist(), "upper": within.upper.tolist()}
    found |= {"equal": sides[:equal], "rows": sides[equal:], "ball": ball, "anchor": plain(goal.anchor)}
    for name in FIELDS:
        value = getattr(pieces, name)
        found[name] = None if value is None else plain(np.broadcast_to(value, _shape(name, pieces.phi)))
    return found


def _shape(name: str, phi: FloatArray) -> tuple[int, ...]:
    M, K = phi.shape
    return (M, K) if name in MATRICES else (M,) if name in SOURCES else (K,)


def _flags(asked: Mapping[str, Any], sources: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The other options of the command line that asks the same."""
    for name, value in asked.items():
        if name in ("weights", "caps", "downstream") or value in (None, False, (), []) or USUAL.get(name) == value:
            continue
        if name in MIXTURES and isinstance(value, list):
            value = dict(zip(sources, value, strict=True))
        for one in value if name == "groups" and not isinstance(value, str) else [value]:
            if isinstance(one, Languages):
                text = one.origin
            elif isinstance(one, Mapping):
                text = ",".join(f"{key}={ratio}" for key, ratio in one.items())
            elif isinstance(one, (list, tuple)):
                text = ",".join(map(str, one))
            else:
                text = "" if one is True else str(one)
            yield f"--{name.replace('_', '-')}", text
