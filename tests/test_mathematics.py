"""A reader with the page on the mathematics and a fit's JSON gets the numbers that `predict` prints."""

import json
from math import exp, log, sqrt
from pathlib import Path

import numpy as np
import pytest

from shapleymix.fitting.fit import Fit, fit
from shapleymix.tables.run_reading import read_runs

pytestmark = pytest.mark.usefixtures("one_prior")


def core(law: dict, j: int, N: float, D: float) -> float:
    return law["E"][j] + law["A"][j] / N ** law["alpha"][j] + law["B"][j] / D ** law["beta"][j]


def worth(p: float, D: float, U: float | None, rate: float) -> float:
    if U is None or D * p <= U:
        return p
    return U * (1 + (1 - exp(-rate * (D * p / U - 1))) / rate) / D


def harm(p: float, N: float, D: float, U: float | None) -> float:
    return 0.0 if U is None or D * p <= U else (N / U) * (D / U) * (p - U / D) ** 3


def loss(law: dict, j: int, p: list[float], N: float, D: float, own_harm: float) -> float:
    gamma, N0, D0 = law["gamma"][j], law["first_N"][j], law["first_D"][j]
    start, between, there = core(law, j, N0, D0), core(law, j, N, D0), core(law, j, N, D)
    g = exp((law["eta"][j] * log(start / between) + law["zeta"][j] * log(between / there)) / gamma)
    own, u = ([row[j] for row in law[name]] for name in ("own", "u"))
    h = sum(o * one / gamma for o, one in zip(own, u, strict=True)) * law["even"][j] ** law["a"][j]
    R = (1 + g * h) / (1 + h)
    total = sum(
        (g if o else 1) * one / gamma * ratio ** (law["a"][j] if o else law["c"][j])
        for o, one, ratio in zip(own, u, p, strict=True)
    )
    return there * (law["floor"][j] + (1 - law["floor"][j]) * ((1 + total) / R) ** -gamma + own_harm)


def alike(p: list[float], q: list[float], held: list[bool]) -> float:
    """k(p, q), where runs hold these sources."""
    apart = [abs(sqrt(a) - sqrt(b)) for a, b in zip(p, q, strict=True)]
    alone = [exp(-one / 0.15) for one, there in zip(apart, held, strict=True) if there]
    return (sum(alone) / len(alone) + exp(-sum(apart))) / 2


def residual(left: dict, j: int, p: list[float]) -> float:
    """r_j(p)."""
    runs = [g for g, weight in enumerate(left["weight"]) if weight[j] > 0]
    P, share, held = (
        [left["p"][g] for g in runs], left["share"], [any(column) for column in zip(*left["p"], strict=True)],
    )  # fmt: skip
    A = [[share * alike(a, b, held) for b in P] for a in P]
    for row, g in enumerate(runs):
        A[row][row] += (1 - share) / left["weight"][g][j]
        for column, other in enumerate(runs):
            A[row][column] += (1 - share) * 100 * (left["size"][g] == left["size"][other])
    pull = np.linalg.solve(A, [left["left"][g][j] for g in runs]) if runs else []
    return sum(share * alike(p, q, held) * by for q, by in zip(P, pull, strict=True))


@pytest.mark.parametrize("name", ["multilingual5_runs.csv", "repetition_runs.csv"])
def test_the_pages_formulas_give_what_predict_prints(name: str, fixtures: Path, tmp_path: Path):
    log_ = read_runs(fixtures / name)
    fit(log_, "learned-base", bootstrap=0, folds=3).save(tmp_path / "fit.json")
    known, found = json.loads((tmp_path / "fit.json").read_text()), Fit.load(tmp_path / "fit.json")
    rows = log_.select(np.flatnonzero(log_.trained)[::17])
    printed = found.predict(rows.p, rows.N, rows.D, unique=rows.unique).losses
    unique = np.full(rows.p.shape, np.nan) if rows.unique is None else rows.unique
    for row, (p, N, D) in enumerate(zip(rows.p.tolist(), rows.N.tolist(), rows.D.tolist(), strict=True)):
        limits = [None if np.isnan(U) else float(U) for U in unique[row]]
        log_h, *log_R = known["repetition"]["symbols"]
        q = [worth(one, D, U, exp(-R)) for one, U, R in zip(p, limits, log_R, strict=True)]
        harms = dict(zip(known["sources"], (harm(one, N, D, U) for one, U in zip(p, limits, strict=True)), strict=True))
        own = [dict(zip(known["sources"], p, strict=True)).get(target, 1.0) for target in known["targets"]]
        for j in range(len(known["targets"])):
            law = known["absent"]["law"] if known["absent"] and own[j] < 1e-6 else known["law"]
            there = exp(log_h) * harms[known["targets"][j]]
            left = (known["absent"] if known["absent"] and own[j] < 1e-6 else known)["residual"]
            missed = exp(residual(left, j, p))
            assert loss(law, j, q, N, D, there) * missed == pytest.approx(printed[row, j], rel=1e-9)
