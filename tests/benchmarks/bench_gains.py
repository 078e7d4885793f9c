"""Whether what is said of gains holds: runs of real logs that no fit saw, compared with one another.

A law is fitted to some runs of a log. Of others at the same N and D, the one is chosen that the law predicts to have
the lowest weighted loss, for random weights. Against three rivals (one at random, one predicted nearly as good, and
the one nearest to uniform) the gain that is said, with its interval and P(better), is held to the difference of the
measured losses. The regret is the chosen run's loss less that of the best run; what is said of it is its 90% quantile
over joint samples of all of them. One column is an ablation: the intervals of replicates alone, without the field of
what the law misses.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import numpy as np
from _data import FIXTURES, logs
from _report import SMALL, finish, must, row, table

import shapleymix as sm
from shapleymix.errors import FitError, ShapleyMixWarning

LAW, LEVEL, SURE = "learned-base", 0.9, (0.85, 0.95)
CANDIDATES, WEIGHTS, REPLICATES, DRAWS = (10, 2, 10, 1) if SMALL else (40, 12, 50, 3)
OF_GAINS = ("gains", "held, %", "without the field, %", "regret within, %", "P ~ 90%: right, %", "regret")
NEAREST = 4
"""A near rival is one of the best quarter."""
COUNTS = {
    "regmix": (20, 35, 60, 100),
    "olmix": (12, 24, 48, 90),
    "5mix": (12,),
    "redpajama": (14,),
    "slimpajama": (14, 25),
    "multilingual5": (12,) if SMALL else (12, 20),
    "wiki40b": (24, 128),
}
FAST, MANY = "multilingual5", 1 if SMALL else 14
"""Draws of the smallest log, whose 28 runs leave few others to judge by."""


@dataclass
class Told:
    """Which gains their intervals held, P(better) of each and whether it was right, and which regrets were within.

    `bare` are the gains that intervals without the field of misfits held, `lost` the regrets in nats.
    """

    held: list[bool] = field(default_factory=list)
    bare: list[bool] = field(default_factory=list)
    probability: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    regrets: list[bool] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)

    def add(self, other: Told) -> None:
        for name, values in vars(other).items():
            getattr(self, name).extend(values)

    def right_between(self, low: float, high: float) -> list[bool]:
        """Whether the statements of such a probability are right."""
        return [right for right, P in zip(self.right, self.probability, strict=True) if low <= P < high]

    def show(self, *labels: object) -> None:
        """One line of the table."""
        sure = self.right_between(*SURE)
        shares = (f"{percent(held):.0f}" for held in (self.held, self.bare, self.regrets))
        texts = (*shares, f"{percent(sure):.0f} ({len(sure)})")
        row(*labels, len(self.held), *texts, f"{np.mean(self.lost):.3f}")


def main() -> None:
    whole = Told()
    table(f"{LAW}: gains over trained mixtures, {LEVEL:.0%} intervals", "log", "runs", *OF_GAINS)
    for name, log in logs(*COUNTS).items():
        for runs in COUNTS[name]:
            found = Told()
            for draw in range(MANY if name == FAST else DRAWS):
                one = told(finals(log), runs, draw)
                found.add(one)
                if draw < DRAWS:  # each line of the table weighs alike in what is true of all
                    whole.add(one)
            found.show(name, runs)
    whole.show("all", "")
    table("how often P(better) is right", "P(better)", "statements", "right, %")
    for low, high in pairwise((0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.95, 0.99, 1.01)):
        right = whole.right_between(low, high)
        row(f"{low:.0%} to {min(high, 1):.0%}", len(right), f"{percent(right):.0f}")
    without_one_target()
    far_larger_models()
    sure = percent(whole.right_between(*SURE))
    must("gains within their interval, %", percent(whole.held), 88, ">=")
    must("regrets within what was said, %", percent(whole.regrets), 88, ">=")
    must("statements of P(better) 85 to 95% that are right, %", sure, 85, ">=")
    must("the same, at most", sure, 96.5)
    finish()


def without_one_target() -> None:
    """Where Wiki-40B's regret comes from: the losses of Romanian lie in two clusters, with none between."""
    table("Wiki-40B, 128 runs, eight draws: regrets, nats", "weights", "regret")
    for log in logs("wiki40b").values():
        for words, left_out in (("of all targets", None), ("of all but ro", log.targets.index("ro"))):
            row(words, f"{np.mean([told(finals(log), 128, draw, left_out).lost for draw in range(8)]):.3f}")


def far_larger_models() -> None:
    """Of RegMix's 62 models of 1B parameters and 25B tokens, what its runs of 1.3M parameters and 1B tokens tell."""
    far = sm.read_runs(FIXTURES / "regmix_1b.csv")
    heads = ("law", "runs", "PE, %", "losses inside, %", "Spearman", "of Pile-CC", *OF_GAINS)
    table("RegMix's models of 1B parameters by fits to those of 1.3M", *heads)
    for small in logs("regmix").values():
        for law, runs in product((LAW, "gbm"), (35, 100, len(small))):
            rng = np.random.default_rng(runs)
            fit = sm.fit(small.select(rng.permutation(len(small))[:runs]), law, bootstrap=REPLICATES)
            others, found = far.align(fit.sources, fit.targets), Told()
            surfaces = fit.at(1e9, 25e9), replace(fit, noise=None).at(1e9, 25e9)
            for _ in range(8 * WEIGHTS):
                one_choice(*surfaces, others, rng.dirichlet(np.full(len(fit.targets), 0.7)), rng, found)
            scores = sm.evaluate(fit, others).scores
            ranks = scores.mean["spearman"], scores.spearman[fit.targets.index("pile_cc")]
            texts = (f"{100 * scores.mean['PE']:.0f}", f"{100 * scores.mean['coverage']:.0f}")
            found.show(law, runs, *texts, *(f"{rank:.3f}" for rank in ranks))


def percent(held: list[bool]) -> float:
    return 100 * float(np.mean(held)) if held else float("nan")


def finals(log: sm.RunLog) -> sm.RunLog:
    """The last rows of the runs at the largest N, of those at the D that most of them have."""
    log = log.select(log.N.max() == log.N)
    tokens, counts = np.unique(log.D, return_counts=True)
    return log.select(tokens[counts == counts.max()].max() == log.D)


def told(log: sm.RunLog, runs: int, draw: int, left_out: int | None = None) -> Told:
    """What a fit to some runs of a log says about its others, with one target of no weight."""
    found, rng = Told(), np.random.default_rng([runs, draw])
    order = rng.permutation(len(log))
    try:
        fit = sm.fit(log.select(np.sort(order[:runs])), LAW, bootstrap=REPLICATES)
    except FitError:
        return found
    budget = float(log.N[0]), float(log.D[0])
    surfaces = fit.at(*budget), replace(fit, noise=None).at(*budget)
    for _ in range(WEIGHTS):
        others = log.select(rng.permutation(order[runs:])[:CANDIDATES])
        w = rng.dirichlet(np.full(len(log.targets), 0.7))
        w[[] if left_out is None else left_out] = 0.0
        one_choice(*surfaces, others, w, rng, found)
    return found


def one_choice(
    surface: sm.Surface, bare: sm.Surface, others: sm.RunLog, w: np.ndarray, rng: np.random.Generator, into: Told
) -> None:
    """What is said of one choice among other runs, with the field of misfits and without, and whether it held."""
    others = others.select(np.isfinite(surface.mean(others.p)).all(axis=1))  # where a loss is predicted at all
    values, measured = surface.mean(others.p) @ w, others.loss @ w
    best = int(values.argmin())
    for rival in rivals(others.p, values, best, rng):
        gains = [one.gain(others.p[best], others.p[rival], lambda losses: losses @ w, LEVEL) for one in (surface, bare)]
        gain, gained = gains[0], float(measured[rival] - measured[best])
        for held, one in zip((into.held, into.bare), gains, strict=True):
            held.append(one.low <= gained <= one.high)
        into.probability.append(gain.probability)
        into.right.append(gained > 0)
    joint = surface.sample(others.p) @ w
    regret = float(np.quantile(joint[:, best] - joint.min(axis=1), LEVEL))
    into.lost.append(float(measured[best] - measured.min()))
    into.regrets.append(into.lost[-1] <= regret)


def rivals(p: np.ndarray, values: np.ndarray, best: int, rng: np.random.Generator) -> Iterator[int]:
    """One at random, one predicted nearly as good, and the one nearest to uniform: none of them the chosen one."""
    ranked = [int(place) for place in np.argsort(values) if place != best]
    yield int(rng.choice(ranked))
    yield ranked[int(rng.integers(max(1, len(ranked) // NEAREST)))]
    yield max(ranked, key=lambda place: float(np.sqrt(p[place]).sum()))


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
