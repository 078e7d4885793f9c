"""How many losses 90% intervals hold, and how wide they are: within range, with few runs, at budgets left out.

An oracle's width is that which, around the same predictions, would just hold 90% of the losses. The repository's own
study is judged size by size, by the losses of runs with the target's own language.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from _data import FIXTURES, logs, suites
from _report import SMALL, finish, must, row, table
from bench_gains import Told, finals, one_choice

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.evidence import fold_masks, is_finished, own_tokens
from shapleymix.tables.words import format_size

LAW = "learned-base"
REPLICATES, OUTER = (20 if SMALL else 180), 4
FEW, DRAWS, JUDGED = (4, 6, 8, 12), 5, 60  # runs, draws of as many, and runs that each is judged on
TRUTHS, SCATTER, WEIGHTS = ("learned-base", "additive", "exponential"), 0.01, 30
FEWEST, WIDEST = 0.85, 2.5  # of losses inside beyond the fitted range, and of the oracle's width
LIKE = {
    "wiki40b": ("es=it", "fr=es", "it=es", "de=en", "ru=en"),
    "regmix": (
        "github=stackexchange",
        "github=europarl",
        "pile_cc=wikipedia_en",
        "arxiv=philpapers",
        "philpapers=arxiv",
    ),
}
"""Sources that no fitted run held, and what each is taken to be like, rightly or not."""
STUDY = FIXTURES / "study" / "log.csv"
COLUMNS = ("losses", "inside", "mean width", "of the oracle's", "bias")
Parts = Iterable[tuple[sm.RunLog, sm.RunLog]]
"""Runs to fit, and others to judge by."""


@dataclass(frozen=True)
class Held:
    """Log residuals of losses that no fit saw, which of them the intervals hold, and how wide these are."""

    residual: np.ndarray
    inside: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, parts: Parts, *, own: bool = False, along: bool = False) -> Held:
        """Those of several fits together; with `own` of runs that held the target's own language alone.

        They are of finished runs, or of losses `along` them.
        """
        each = [_one(fitted, judged, own, along) for fitted, judged in parts if len(judged)]
        return cls(*(np.concatenate(values) for values in zip(*each, strict=True)))

    @property
    def share(self) -> float:
        """The share inside."""
        return float(self.inside.mean())

    @property
    def ratio(self) -> float:
        """The mean width over the oracle's."""
        return float(self.width.mean()) / (2 * float(np.quantile(np.abs(self.residual), 0.9)))

    def show(self, *labels: str) -> Held:
        """One line of the table."""
        texts = f"{self.share:.1%}", f"{self.width.mean():.2%}", f"{self.ratio:.2f}", f"{self.residual.mean():+.2%}"
        row(*labels, len(self.residual), *texts)
        return self


def _one(log: sm.RunLog, judged: sm.RunLog, own: bool, along: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    checkpoints = "all" if along else "final"
    law = LAW if len(log.sources) > 1 else "chinchilla"
    fitted = sm.fit(log, law, bootstrap=REPLICATES, checkpoints=checkpoints)
    told = fitted.predict(judged.p, judged.N, judged.D)
    there = ~np.isnan(judged.loss) & (own_tokens(judged) > 0 if own else True)
    there &= is_finished(judged)[:, None] | along
    inside = (told.low <= judged.loss) & (judged.loss <= told.high)
    residual, width = np.log(judged.loss / told.losses), np.log(told.high / told.low)
    return residual[there], inside[there], width[there]


def main() -> None:
    if not SMALL:
        beyond()
        one_mixture()
        best_sizes()
        together()
        larger()
        within()
        likenesses()
    few()
    optima()
    if not SMALL:
        study()
    finish()


def beyond() -> None:
    """Sizes and tokens that no fitted run reaches."""
    table(f"Beyond the fitted range: 90% intervals of {LAW}", "log", "left out", *COLUMNS)
    for name, log in logs("5mix", "redpajama", "slimpajama").items():
        for what, kept, judged in designs(log):
            found = Held.of([(log.select(kept), log.select(judged))], along="half" in what).show(name, what)
            must(f"{name}, without {what}: share inside", found.share, FEWEST, ">=")
            must(f"{name}, without {what}: width over the oracle's", found.ratio, WIDEST)


def designs(log: sm.RunLog) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """What is left out, the rows to fit and the rows to predict."""
    sizes = np.unique(log.N)
    for count, word in ((1, "the largest size"), (2, "the two largest")):
        for size in sizes[-count:] if len(sizes) > count else ():
            yield f"{word}, N {format_size(size)}", sizes[-count] > log.N, size == log.N
    share = log.D / log.ends
    if (share < 1).any():
        yield "second half of each run", share <= 0.5, share > 0.5


def one_mixture() -> None:
    """Public suites without their largest N, D or N D, or but for the usual D / N; and OLMo's largest models."""
    table("One mixture: 90% intervals of chinchilla", "suite", "left out", *COLUMNS)
    shares = []
    for name, log in suites().items():
        for what, far in parts_of_suite(log).items():
            if far.any() and (~far).sum() > 5:
                found = Held.of([(log.select(~far), log.select(far))]).show(name, what)
                shares.append(found.share)
    must("public suites: share inside, mean over designs", float(np.mean(shares)), FEWEST, ">=")


def best_sizes() -> None:
    """The best N of a compute, that of a parabola through its runs, by fits without the two largest computes."""
    table("Best N of a compute: 90% intervals", "suite", "compute over the fitted", "inside", "factor, either way")
    found = []
    for name, log in suites().items():
        if len(log.targets) > 1:  # the ladder, whose runs are of no compute
            continue
        compute = np.array([float(run.split()[1]) for run in log.runs])
        levels = np.unique(compute)
        log = replace(log, p=np.ones((len(log), 1)), sources=("all",))
        fitted = sm.fit(log.select(compute <= levels[-3]), "chinchilla", bootstrap=REPLICATES, folds=0)
        for level in levels:
            x, y = np.log(log.N[compute == level]), np.log(log.loss[compute == level, 0])
            near = np.abs(x - x[y.argmin()]) < 1.5
            bend, slope, _ = np.polyfit(x[near], y[near], 2) if near.sum() > 4 else (-1, 0, 0)
            if bend > 0:
                best = sm.optimize_compute(fitted, 6 * float(np.exp(np.log(log.N * log.D)[compute == level].mean())))
                inside = best.N_low <= np.exp(-slope / bend / 2) <= best.N_high
                found.append((level / levels[-3], inside, np.sqrt(best.N_high / best.N_low)))
                row(name, f"{found[-1][0]:.2f}", inside, f"{found[-1][2]:.2f}")
    for what, far in (("within", lambda one: one < 1), ("at or beyond", lambda one: one >= 1)):
        share = float(np.mean([inside for off, inside, _ in found if far(off)]))
        must(f"best N {what} the fitted computes: share inside", share, FEWEST, ">=")


def parts_of_suite(log: sm.RunLog) -> dict[str, np.ndarray]:
    """What is left out, and which rows that are."""
    compute, ratio = log.N * log.D, np.log(log.D / log.N)
    if len(log.targets) > 1:  # the ladder, whose N is in steps
        return {"N above 3B": log.N > 3e9, "7B and 13B": log.N > 5e9}
    return {
        "N above a fourth of the most": log.N.max() / 4 < log.N,
        "D above a fourth of the most": log.D.max() / 4 < log.D,
        "N D above an eighth of the most": compute > compute.max() / 8,
        "D / N beyond e times the middle one": np.abs(ratio - np.median(ratio)) > 1,
    }


def together() -> None:
    """Other budgets of logs of which runs at one D / N alone are fitted."""
    table("At one D / N: 90% intervals at other budgets", "log", "D / N", *COLUMNS)
    for name, log in logs("slimpajama", "chinchilla").items():
        for ratio, reach in ((21.1, 0.1), (27.2, 0.1)) if len(log.sources) else ((10, 0.2), (20, 0.2), (40, 0.2)):
            off = np.abs(np.log(log.D / log.N / ratio))
            parts = [(log.select(off < reach), log.select(off > 0.4))]
            found = Held.of(parts, along=True).show(name, f"{ratio:g}")
            must(f"{name}, one D / N of {ratio:g}: share inside", found.share, FEWEST, ">=")


def larger() -> None:
    """What one trained mixture gains over others at sizes that no fitted run has."""
    table("Gains at larger sizes: 90% intervals", "log", "N fitted", "N judged", "gains", "inside")
    shares = []
    for name, log in {**logs("5mix", "redpajama", "slimpajama"), "study": sm.read_runs(STUDY)}.items():
        sizes = np.unique(log.N)
        for count, top in ((1, sizes[1]), (1, sizes[2]), (2, sizes[2])):
            fitted, others = sm.fit(log.select(sizes[count - 1] >= log.N), LAW, bootstrap=50), log.select(top == log.N)
            others, found, rng = finals(others), Told(), np.random.default_rng(0)
            surface = fitted.at(float(top), float(others.D[0]))
            for _ in range(WEIGHTS):
                some = others.select(rng.permutation(len(others))[:40])
                one_choice(surface, surface, some, rng.dirichlet(np.full(len(log.targets), 0.7)), rng, found)
            shares.append(np.mean(found.held))
            spread = ", ".join(map(format_size, sizes[:count].tolist()))
            row(name, spread, format_size(float(top)), len(found.held), f"{shares[-1]:.0%}")
    must("gains at larger sizes: share inside", float(np.mean(shares)), 0.85, ">=")
    must("gains at larger sizes: share inside", float(np.mean(shares)), 0.95)


def optima() -> None:
    """Ratios of the best mixture, and its gains over simple ones, by runs of laws that were fitted to real runs."""
    table(f"Optima of {LAW}: 90% intervals, weights and floors of .01", "truth", "runs", "ratios", "gains")
    log = logs("multilingual5")["multilingual5"]
    for law in TRUTHS[: 1 if SMALL else None]:
        truth = sm.fit(log, law, bootstrap=0, folds=0)
        for runs in (12,) if SMALL else (12, 30):
            told = [optimum(truth, log, runs, seed) for seed in range(1 if SMALL else WEIGHTS)]
            ratios, gains = (float(np.mean(np.concatenate(part))) for part in zip(*told, strict=True))
            row(law, runs, f"{ratios:.0%}", f"{gains:.0%}")
            if law == LAW:
                must(f"{runs} runs of {law}: ratios inside", ratios, FEWEST, ">=")
                must(f"{runs} runs of {law}: gains inside", gains, FEWEST, ">=")


def optimum(truth: sm.Fit, log: sm.RunLog, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Which ratios of the true optimum, and which gains of single runs, intervals hold."""
    rng, M = np.random.default_rng([runs, seed]), len(log.sources)

    def losses(p: np.ndarray) -> np.ndarray:
        known = truth.law(p, np.full(len(p), log.N[0]), np.full(len(p), log.D[0]))
        return known * np.exp(SCATTER * rng.standard_normal(known.shape))

    p = rng.dirichlet(np.full(M, 1.5), runs)
    columns = {"run": [f"r{i}" for i in range(runs)], "N": [log.N[0]] * runs, "D": [log.D[0]] * runs}
    columns |= {f"p_{name}": p[:, i] for i, name in enumerate(log.sources)}
    columns |= {f"loss_{name}": one for name, one in zip(log.targets, losses(p).T, strict=True)}
    w = rng.dirichlet(np.full(len(log.targets), 2.0))
    question = {"weights": dict(zip(log.targets, w.tolist(), strict=True)), "floors": dict.fromkeys(log.sources, 0.01)}
    fitted = sm.fit(pl.DataFrame(columns), LAW, bootstrap=REPLICATES)
    best, found = (sm.optimize(fit, float(log.N[0]), float(log.D[0]), **question) for fit in (truth, fitted))
    gains = [losses(np.stack([one.p, found.p])) @ w @ [1, -1] for one in found.baselines]
    held = [one.gain_low <= gain <= one.gain_high for one, gain in zip(found.baselines, gains, strict=True)]
    return (found.p_low - 1e-3 <= best.p) & (best.p <= found.p_high + 1e-3), np.array(held)


def within() -> None:
    """Mixtures that no fitted run has, by folds."""
    table(f"Held-out mixtures, {OUTER} folds: 90% intervals of {LAW}", "log", *COLUMNS)
    for name, log in logs("5mix", "redpajama", "slimpajama", "multilingual5", "regmix", "olmix", "wiki40b").items():
        must_be_within(name, Held.of(by_folds(log, fold_masks(log, OUTER))).show(name))


def likenesses() -> None:
    """Losses of runs with a source by fits to 80 runs without, in which it is taken to be like another."""
    table("90% intervals of sources without runs", "log", "like", *COLUMNS)
    each = []
    for name, log in logs(*LIKE).items():
        for like in LIKE[name]:
            p = log.p[:, log.sources.index(like.split("=")[0])]
            without, judged = np.flatnonzero(p == 0)[:80], np.flatnonzero(p > 0.05)[:100]
            known = sm.like(sm.fit(log.select(without), LAW, bootstrap=60, folds=4), like)
            found = known.predict(log.select(judged).align(known.sources, known.targets))
            measured = log.select(judged).align(known.sources, known.targets).loss
            inside = (found.low <= measured) & (measured <= found.high)
            held = Held(np.log(measured / found.losses).ravel(), inside.ravel(), np.log(found.high / found.low).ravel())
            each.append(held.show(name, like).share)
    must("sources like another: share inside, in the mean", float(np.mean(each)), FEWEST, ">=")


def few() -> None:
    """Runs drawn at random from logs of one size, so few of them; the others to judge by."""
    table(f"Few runs, {DRAWS} draws: 90% intervals of {LAW}", "log", "runs", *COLUMNS)
    for name, log in logs("multilingual5", "regmix", "olmix").items():
        for runs in FEW[-1:] if SMALL else FEW:
            orders = [np.random.default_rng([draw, runs]).permutation(len(log)) for draw in range(DRAWS)]
            parts = [(log.select(order[:runs]), log.select(order[runs : runs + JUDGED])) for order in orders]
            must_be_within(f"{name}, {runs} runs", Held.of(parts[: 1 if SMALL else None]).show(name, str(runs)))


def study() -> None:
    """The repository's own runs, whose losses of one N and D have more in common."""
    log, proof = (sm.read_runs(FIXTURES / "study" / name) for name in ("log.csv", "proof.csv"))
    table(f"The study: 90% intervals of {LAW}", "left out", "predicted", *COLUMNS)
    for N in np.unique(log.N):
        label = f"N {format_size(N)}"
        parts = [(kept, judged.select(judged.N == N)) for kept, judged in by_folds(log, fold_masks(log, OUTER))]
        found = Held.of(parts, own=True).show("mixtures, by folds", label)
        must(f"the study, {label}: share inside", found.share, 0.85, ">=")
        must(f"the study, {label}: share inside", found.share, 0.95)
        must(f"the study, {label}: width over the oracle's", found.ratio, 2.0)
        Held.of([(log.select(log.N != N), log.select(log.N == N))], own=True).show("one N", label)
    Held.of([(log, proof)], own=True).show("the runs of the proof", f"N {format_size(proof.N[0])}")


def by_folds(log: sm.RunLog, masks: np.ndarray) -> Parts:
    """Each mask's rows against the others."""
    return [(log.select(~mask), log.select(mask)) for mask in masks]


def must_be_within(label: str, found: Held) -> None:
    """88 to 93% inside."""
    must(f"{label}, within range: share inside", round(found.share, 2), 0.88, ">=")
    must(f"{label}, within range: share inside", round(found.share, 2), 0.93)


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
