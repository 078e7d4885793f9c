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
from shapleymix.errors import InfeasibleError
from shapleymix.files import Json, plain
from shapleymix.fitting.coverage import BUDGET_SLACK
from shapleymix.fitting.residual import ALONE, TOGETHER
from shapleymix.laws.pieces import MATRICES, SOURCES
from shapleymix.mixing.bounds import Families, families_of
from shapleymix.mixing.goal import Goal
from shapleymix.mixing.polytope import REGIME
from shapleymix.mixing.question import Question
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages, Parents
from shapleymix.tables.words import amounts, parse_ratio

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
    table = asked.get("languages")
    if isinstance(table, Mapping):
        numbers = {name: table[name] for name in ("available_tokens", "weight", "max_epochs", "bytes_per_token")}
        held: dict[str, Any] = {
            name: None if one is None else np.array(one, dtype=np.float64) for name, one in numbers.items()
        }
        held |= {name: tuple(table[name]) for name in ("names", "family", "notices")}
        held |= {name: table[name] for name in ("origin", "digest", "nested")}
        asked["languages"] = Languages(**held)
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
        "constraints of your own": asked.get("constraints"),
        "scores on tasks": mixture.measure == "error",
        "a law without convex pieces": np.isnan(mixture.gap),
        "a source that is taken to be like another": fit.coverage.alike,
    }
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
    sizes, tokens = (_steps(now, fitted) for now, fitted in ((mixture.N, fit.N_range), (mixture.D, fit.D_range)))
    budgets = [_budget(fit, N, D, wider, mixture.p) for N in sizes for D in tokens]
    first = next(one for one in budgets if "floor" in one)
    shared = {key: first[key] for key in (*FIELDS, *ALIKE) if key in first}
    ranges = {
        "p": fit.coverage.whole_p_range.tolist(),
        "N": list(map(float, fit.N_range)),
        "D": list(map(float, fit.D_range)),
        "slack": BUDGET_SLACK,
    }
    return {
        "sources": list(mixture.sources),
        "rows": rows_of(mixture.families, mixture.sources),
        "targets": list(mixture.targets),
        "sizes": sizes,
        "tokens": tokens,
        "start": {
            "n": sizes.index(mixture.N),
            "d": tokens.index(mixture.D),
            "weights": _sliders(own).tolist(),
            "caps": given.tolist(),
        },
        "shared": shared,
        "budgets": [{key: value for key, value in one.items() if shared.get(key) != value} for one in budgets],
        "available": [None if np.isnan(one) else one for one in mixture.available.tolist()],
        "rivals": [
            {"name": one.name, "p": mixture.rest_of(one.p).tolist()}
            for one in mixture.baselines
            if np.isfinite(one.objective)
        ],
        "residual": _residual(fit),
        "worst": own.goal.worst,
        "kl": own.goal.kl,
        "ranges": ranges,
        "unit": own.unit,
        "level": f"{own.level:.0%}",
        "losses": own.surface.unit.name,
        "p": mixture.p.tolist(),
        "closed": ((own.within.upper <= 0) | np.any(own.within.rows[own.within.rigid] != 0, axis=0)).tolist(),
        "weighed": own.asked.weights is not None,
        "command": ["shapleymix", "optimize", name],
        "flags": list(_flags(asked, mixture.sources)),
    }


def _residual(fit: Fit) -> Json:
    """What the law misses of mixtures: roots of the runs' ratios (G, M), and by how much each pulls targets (G, K)."""
    left = fit.residual
    numbers = {"roots": np.sqrt(left.p), "pull": left.pull}
    rounded = {name: np.round(one, DIGITS).tolist() for name, one in numbers.items()}
    return rounded | {"counted": np.flatnonzero(left.counted).tolist(), "alone": ALONE, "together": TOGETHER}


def _steps(now: float, fitted: FloatArray) -> list[float]:
    """A grid from the least fitted value to `AHEAD` times the mixture's, or the largest fitted, that holds its own."""
    low, high = min(float(fitted[0]), now), max(float(fitted[1]), AHEAD * now)
    return sorted({now, *(float(f"{one:.2g}") for one in np.geomspace(low, high, STEPS))})


def _sliders(question: Question) -> FloatArray:
    """The weights (K,) as they were typed; ones where losses are divided by those of monolingual models."""
    weights = question.weights
    return np.ones_like(weights.raw) if weights.unit else weights.raw


def _budget(fit: Fit, N: float, D: float, asked: Mapping[str, Any], p: FloatArray) -> dict[str, Json]:
    """Bounds and pieces of the law at one budget, and the ends of the objective's interval at the mixture p (M,) as
    shares of it; the reason why there are none.
    """
    try:
        question = sm.problem(fit, N, D, **asked)
    except InfeasibleError as error:
        return {"reason": error.message}
    within, surface = question.within, question.surface
    raised = (np.array(within.floor_origin) == REGIME) & np.isin(np.arange(len(within.lower)), surface.own)
    edge = np.where(surface.own >= 0, np.where(raised, within.lower, np.inf)[surface.own], 0.0)
    edge = np.where(np.isfinite(edge), edge, np.where(surface.own >= 0, surface.edge, 0.0))
    return goal_document(question.goal) | {
        "lower": np.where(raised, 0.0, within.lower).tolist(),
        "own": surface.own.tolist(),
        "edge": edge.tolist(),
        "unit": (question.weights.raw / _sliders(question)).tolist() if question.weights.unit else None,
        "spread": _spread(question, p),
        "read": (within.supply.read / D).tolist() if within.supply.read.any() else None,
    }


def goal_document(goal: Goal) -> dict[str, Json]:
    """The pieces of the law and the bounds of a goal, as the page's solver takes them."""
    within, pieces = goal.within, goal.pieces
    rows, limits, equal = within.sums()
    sides = [[row, limit] for row, limit in zip(rows.tolist(), limits.tolist(), strict=True)]
    found: dict[str, Json] = {
        "form": pieces.form,
        "lower": within.lower.tolist(),
        "upper": within.upper.tolist(),
        "equal": sides[:equal],
        "rows": sides[equal:],
        "ball": None if within.ball is None else plain(vars(within.ball)),
        "anchor": plain(goal.anchor),
    }
    for name in FIELDS:
        value = getattr(pieces, name)
        found[name] = None if value is None else plain(np.broadcast_to(value, _shape(name, pieces.phi)))
    return found


def _spread(question: Question, p: FloatArray) -> Json:
    ends = np.array(question.objective_interval(p)) / question.objective(p)
    return ends.tolist() if np.isfinite(ends).all() else None


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
