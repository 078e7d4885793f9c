"""Do gains hold what they say? Mixtures that were trained, chosen by fits that did not see them, against their losses.

    python tests/benchmarks/bench_gains.py [LAW] [DRAWS] [LOG...]

A law is fitted to some runs of a log, drawn at random. Of the other runs (at most `CANDIDATES` of them) it chooses the
one of the lowest predicted mean loss, for `WEIGHTS` random weightings of the targets. Against the chosen run stand one
at random, one that is predicted nearly as good, and the one nearest to uniform: the gain that is said, with its
interval and P(better), is held to the difference of the measured losses, seeds and all. The regret is the chosen run's
loss less that of the best run, which was known to nobody; what is said of it is the 90% quantile over draws of all that
is believed. `before` knows the spread of the replicates alone. Last, the luck of the choice: by how much promises
exceed what was measured, and what was taken off for it, in standard deviations of the gain. Where the replicates draw
the effect of a source, no run holds as much of it as the chosen one, and nothing is taken off.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from _data import shared_logs
from _report import finish, must, row, table
from scipy.special import ndtri

import shapleymix as sm
from shapleymix.errors import FitError, ShapleyMixWarning
from shapleymix.mixing.demands import Demands
from shapleymix.mixing.doubts import Gain
from shapleymix.mixing.fit_like import drawn_sources, little_told, misfit_of
from shapleymix.mixing.gains import Beliefs
from shapleymix.mixing.pieces import supplied
from shapleymix.mixing.problem import Problem
from shapleymix.records import FloatArray

LEVEL = 0.9
CANDIDATES, WEIGHTS, REPLICATES, DRAWN = 40, 12, 50, 400
NEAREST = 4
"""A near rival is one of the best quarter."""
SURE = (0.85, 0.95)
LOGS = {
    "regmix": ("regmix_1m_train.csv", (20, 35, 60, 100)),
    "olmix": ("olmix_dclm_30m.csv", (12, 24, 48, 90)),
    "5mix": ("mixlaws_5mix_160m.csv", (12,)),
    "redpajama": ("mixlaws_redpajama_70m.csv", (14, 25)),
    "slimpajama": ("dmsl_slimpajama_122m.csv", (14, 25, 40)),
    "multilingual5": ("multilingual5_runs.csv", (12, 20)),
}


@dataclass(frozen=True)
class Said:
    """One statement, and what was measured; `excess` and `luck` in standard deviations of the gain."""

    held: bool
    probability: float
    right: bool
    excess: float
    luck: float

    @classmethod
    def of(cls, gain: Gain, measured: float) -> Said:
        """A statement against the measured gain."""
        deviation = (gain.high - gain.low) / (2 * ndtri(0.5 + LEVEL / 2))
        return cls(
            gain.low <= measured <= gain.high,
            gain.probability,
            measured > 0,
            (gain.promised - measured) / deviation,
            (gain.promised - gain.value) / deviation,
        )


@dataclass
class Tally:
    """Statements of gains before and now, and whether regrets lay within what was said."""

    before: list[Said]
    now: list[Said]
    regrets: list[bool]


def main(law: str = "learned-base", draws: str = "3", *names: str) -> None:
    told = Tally([], [], [])
    table(f"{law}: gains over trained mixtures, {LEVEL:.0%} intervals", *HEADERS)
    for name, (pattern, counts) in LOGS.items():
        log = shared_logs(pattern) if not names or name in names else None
        if log is None:
            continue
        for runs in counts:
            found = tallied(finals(log), law, runs, int(draws))
            show(name, runs, found)
            for part in ("before", "now", "regrets"):
                getattr(told, part).extend(getattr(found, part))
    show("all", "", told)
    by_probability(told)
    excess, luck = (float(np.mean([getattr(one, name) for one in told.now])) for name in ("excess", "luck"))
    table("the luck of the choice, in standard deviations of the gain", "promised less measured", "taken off")
    row(f"{excess:.3f}", f"{luck:.3f}")
    must("gains within their interval, %", share([one.held for one in told.now]), 88, ">=")
    must("regrets within what was said, %", share(told.regrets), 88, ">=")
    must("statements of P(better) 85 to 95% that are right, %", share(sure(told.now)), 85, ">=")
    must("the same, at most", share(sure(told.now)), 96.5, "<=")
    must("luck that is not taken off, or too much of it", abs(excess - luck), 0.15)
    finish()


HEADERS = ("log", "runs", "gains", "held before, %", "held now, %", "regret within, %", "P ~ 90%: right before, %")
HEADERS = (*HEADERS, "right now, %")


def show(name: str, runs: object, found: Tally) -> None:
    """One row."""
    held = (share([one.held for one in part]) for part in (found.before, found.now))
    right = (f"{share(sure(part)):.0f} ({len(sure(part))})" for part in (found.before, found.now))
    if found.now:
        row(name, runs, len(found.now), *(f"{part:.0f}" for part in held), f"{share(found.regrets):.0f}", *right)
    else:
        row(name, runs, 0, "the law refuses", "", "", "", "")


def by_probability(told: Tally) -> None:
    """How often statements of each probability are right."""
    table("how often P(better) is right", "P(better)", "before: statements", "right, %", "now: statements", "right, %")
    edges = (0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.95, 0.99, 1.01)
    for low, high in pairwise(edges):
        cells: list[object] = []
        for part in (told.before, told.now):
            right = [one.right for one in part if low <= one.probability < high]
            cells += [len(right), f"{share(right):.0f}"]
        row(f"{low:.0%} to {min(high, 1):.0%}", *cells)


def share(held: list[bool]) -> float:
    """Per cent."""
    return 100 * float(np.mean(held)) if held else float("nan")


def sure(said: list[Said]) -> list[bool]:
    """Whether those statements are right whose probability is about 90%."""
    return [one.right for one in said if SURE[0] <= one.probability <= SURE[1]]


def finals(log: sm.RunLog) -> sm.RunLog:
    """The last rows of the runs at the largest N, of those at the D that most of them have."""
    log = log.select(log.N.max() == log.N)
    tokens, counts = np.unique(log.D, return_counts=True)
    full = counts == counts.max()
    return log.select(tokens[full].max() == log.D)


def tallied(log: sm.RunLog, law: str, runs: int, draws: int) -> Tally:
    """Statements of fits to some runs of a log about its others."""
    found = Tally([], [], [])
    for draw in range(draws):
        rng = np.random.default_rng([runs, draw])
        order = rng.permutation(len(log))
        try:
            fit = sm.fit(log.select(np.sort(order[:runs])), law, bootstrap=REPLICATES)
        except FitError:
            return found
        for _ in range(WEIGHTS):
            others = log.select(rng.permutation(order[runs:])[:CANDIDATES])
            w = rng.dirichlet(np.full(len(log.targets), 0.7))
            one_choice(fit, others, w, rng, found)
    return found


def one_choice(fit: sm.Fit, others: sm.RunLog, w: FloatArray, rng: np.random.Generator, into: Tally) -> None:
    """What is said of one choice among other runs, and whether it held."""
    N, D = float(others.N[0]), float(others.D[0])
    free = Demands(allow_unseen=True).bounds(fit.sources, D)
    problem, regime = Problem(fit.terms(N, D), w, free), supplied(fit, N, free)
    now = Beliefs(problem, fit.replicate_terms(N, D), misfit_of(fit, N, D), None, LEVEL, regime=regime)
    values = np.array([now.value(p) for p in others.p])
    replicated = np.stack([now.outlook(p).values for p in others.p], axis=1)  # (B, R)
    best, measured = int(values.argmin()), others.loss @ w
    choices = None if drawn_sources(fit, free) else others.p[replicated.argmin(axis=1)]
    now = replace(now, choices=choices, drawn=little_told(fit, fit.sources))
    before = replace(now, misfit=None, choices=None, drawn=None)
    for rival in rivals(others.p, values, best, rng):
        gained = float(measured[rival] - measured[best])
        for beliefs, told in ((before, into.before), (now, into.now)):
            gain = beliefs.gain(others.p[best], others.p[rival])
            told.append(Said.of(gain, gained))
    into.regrets.append(float(measured[best] - measured.min()) <= regret_said(now, others.p, replicated, best, rng))


def rivals(p: FloatArray, values: FloatArray, best: int, rng: np.random.Generator) -> Iterator[int]:
    """One at random, one predicted nearly as good, and the one nearest to uniform: none of them the chosen one."""
    ranked = [int(place) for place in np.argsort(values) if place != best]
    yield int(rng.choice(ranked))
    yield ranked[int(rng.integers(max(1, len(ranked) // NEAREST)))]
    yield max(ranked, key=lambda place: float(np.sqrt(p[place]).sum()))


def regret_said(beliefs: Beliefs, p: FloatArray, replicated: FloatArray, best: int, rng: np.random.Generator) -> float:
    """The quantile of the regret over draws of every candidate's loss: replicates, and the misfit at all of them."""
    losses = np.tile(replicated, (DRAWN // len(replicated), 1))
    misfit = beliefs.misfit
    if misfit is not None:
        at = list(zip(p, (beliefs.outlook(one).sensitivity for one in p), strict=True))
        joint = np.array([[misfit.alike(a, b) * misfit.covariance(x, y) for b, y in at] for a, x in at])
        losses = losses + rng.multivariate_normal(np.zeros(len(p)), joint, len(losses), method="eigh")
    return float(np.quantile(losses[:, best] - losses.min(axis=1), LEVEL))


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main(*sys.argv[1:])
