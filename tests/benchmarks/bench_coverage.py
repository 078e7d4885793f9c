"""How many losses 90% intervals hold, and how wide they are: within range, with few runs, at budgets left out.

Prints the results' coverage tables, the exponents of the public isoFLOP suites (`shapleymix/fitting/exponents.py`),
what the last checkpoints alone are good for, and the repository's own study, size by size. An oracle's width is that
which, around the same predictions, would just hold 90% of the losses. Coverage and width are the median of three sets
of replicates, with the range of the three.
`bench_coverage.py LAW` measures another law than the default.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from _data import FIXTURES, SHARED, five_languages, regmix, shared_logs, slimpajama
from _report import finish, must, row, table

import shapleymix as sm
from shapleymix.fitting.evidence import fold_masks, own_tokens
from shapleymix.fitting.questions import progress
from shapleymix.laws import Law
from shapleymix.tables.sizes import format_size

LAW = sys.argv[1] if len(sys.argv) > 1 else "learned-base"
REPLICATES, FOLDS, OUTER = 60, 5, 4
SETS = 3  # of so many replicates, each as good as another seed
FEW, DRAWS, JUDGED = (4, 6, 8, 12), 5, 60  # runs, draws of as many, and runs that each is judged on
FEWEST, WIDEST = 0.85, 2.5  # of losses inside beyond the fitted range, and of the oracle's width


@dataclass(frozen=True)
class Held:
    """Log residuals (R,) of losses that a fit did not see, and by each set of replicates (S, R) which of them the
    intervals hold, and how wide these are."""

    residual: np.ndarray
    inside: np.ndarray
    width: np.ndarray

    @classmethod
    def of(cls, fit: sm.Fit, log: sm.RunLog, counted: np.ndarray | None = None) -> Held:
        """The losses of a log under a fit, or those that are counted (R, K)."""
        each = [one.predict(log.p, log.N, log.D) for one in parted(fit)]
        residual = np.log(log.loss / each[0].losses)
        there = ~np.isnan(residual) & (True if counted is None else counted)
        inside = np.stack([((told.low <= log.loss) & (log.loss <= told.high))[there] for told in each])
        return cls(residual[there], inside, np.stack([np.log(told.high / told.low)[there] for told in each]))

    @classmethod
    def together(cls, parts: list[Held]) -> Held:
        """Several as one."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in vars(parts[0])))

    @property
    def share(self) -> float:
        """The share inside: the median of the sets of replicates."""
        return float(np.median(self.inside.mean(axis=1)))

    @property
    def ratio(self) -> float:
        """The mean width over the oracle's: the median of the sets of replicates."""
        return float(np.median(self.width.mean(axis=1))) / self.oracle

    @property
    def oracle(self) -> float:
        """The width that would just have held 90%."""
        return 2 * float(np.quantile(np.abs(self.residual), 0.9))

    def show(self, *labels: str) -> None:
        """One line of the table."""
        row(*labels, *self.cells())

    def cells(self) -> tuple[str, ...]:
        """Losses, coverage, width, ratio to the oracle's, bias."""
        each, width = self.inside.mean(axis=1), f"{np.median(self.width.mean(axis=1)):.2%}"
        share, between = f"{self.share:.1%}", f"{each.min():.1%} .. {each.max():.1%}"
        return str(len(self.residual)), share, between, width, f"{self.ratio:.2f}", f"{self.residual.mean():+.2%}"


COLUMNS = ("losses", "inside", "of three sets", "mean width", "of the oracle's", "bias")


def main() -> None:
    suites()
    sized = {
        "5mix": shared_logs("mixlaws_5mix_*.csv"),
        "redpajama": shared_logs("mixlaws_redpajama_*.csv"),
        "slimpajama": slimpajama(),
        "multilingual5": shared_logs("multilingual5_runs.csv"),
    }
    present = {name: log for name, log in sized.items() if log is not None}
    beyond(present)
    within(present)
    few()
    predicted(present)
    if "slimpajama" in present:
        checkpoints(present["slimpajama"])
    study()
    finish()


def suites() -> None:
    """Exponents of each public suite, and how fast its loss falls in the middle of its budgets."""
    path = SHARED / "extra" / "isoflops_public.csv"
    if not path.exists():
        print("skipped: no isoFLOP suites in the shared data")
        return
    with path.open(encoding="utf-8") as file:
        rows = [line for line in csv.DictReader(file) if line["outlier"] == "false"]
    table("Public isoFLOP suites", "suite", "points", "alpha", "beta", "-dlogL/dlogN", "-dlogL/dlogD")
    exponents = []
    for name in dict.fromkeys(line["experiment"] for line in rows):
        values = np.array(
            [[float(line[key]) for key in ("N", "D", "loss")] for line in rows if line["experiment"] == name]
        )
        runs, empty = tuple(map(str, range(len(values)))), np.zeros((len(values), 0))
        log = sm.RunLog(runs, values[:, 0], values[:, 1], empty, values[:, 2:], (), ("loss",))
        law = sm.fit(log, "chinchilla", bootstrap=0, folds=0).law
        middle = np.exp(np.log(values[:, :2]).mean(axis=0))
        steps = [
            np.log(law(empty[:1], middle[:1] * a, middle[1:] * b))[0, 0] for a, b in ((1, 1), (1.01, 1), (1, 1.01))
        ]
        slopes = [(steps[0] - step) / np.log(1.01) for step in steps[1:]]
        symbols = float(law.alpha[0]), float(law.beta[0])  # type: ignore[attr-defined]
        exponents.append(symbols)
        row(name, len(values), *(f"{value:.3f}" for value in (*symbols, *slopes)))
    logs = np.log(exponents)
    spread = ", ".join(
        f"{symbol} {centre:.2f}, standard deviation of its log {deviation:.2f}"
        for symbol, centre, deviation in zip(
            ("alpha", "beta"), np.exp(logs.mean(axis=0)), logs.std(axis=0), strict=True
        )
    )
    print(f"\ngeometric means: {spread}")


def designs(log: sm.RunLog) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """What is left out, what is predicted of it, the rows to fit and the rows to predict."""
    sizes = np.unique(log.N)
    for count, word in ((1, "the largest size"), (2, "the two largest")):
        if len(sizes) > count:
            kept = sizes[-count] > log.N
            for size in sizes[-count:]:
                yield word, f"N {format_size(size)}, {size / sizes[-count - 1]:.1f} times", kept, size == log.N
    share = progress(log)
    if (share < 1).any():
        yield "second half of each run", "D up to 2 times", share <= 0.5, share > 0.5


def beyond(logs: dict[str, sm.RunLog]) -> None:
    """Sizes and tokens that no fitted run reaches."""
    table(f"Beyond the fitted range: 90% intervals of {LAW}", "log", "left out", "predicted", *COLUMNS)
    for name, log in logs.items():
        for word, what, kept, judged in designs(log):
            found = Held.of(fitted(log.select(kept)), log.select(judged))
            found.show(name, word, what)
            label = f"{name}, without {word}, {what}"
            must(f"{label}: share inside", found.share, FEWEST, ">=")
            must(f"{label}: width over the oracle's", found.ratio, WIDEST)


def within(logs: dict[str, sm.RunLog]) -> None:
    """Mixtures that no fitted run has, by folds."""
    there = {"multilingual5, N = 97,600": five_languages(), "regmix": regmix(), "olmix": shared_logs("olmix_*.csv")}
    table(f"Held-out mixtures, {OUTER} folds: 90% intervals of {LAW}", "log", *COLUMNS)
    for name, log in ({key: logs[key] for key in logs if key != "multilingual5"} | there).items():
        if log is not None:
            masks = fold_masks(log, OUTER)
            found = Held.together([Held.of(fitted(log.select(~mask)), log.select(mask)) for mask in masks])
            found.show(name)
            must_be_within(name, found)


def few() -> None:
    """Runs drawn at random from logs of one size, so few of them; the others to judge by."""
    table(f"Few runs, {DRAWS} draws: 90% intervals of {LAW}", "log", "runs", *COLUMNS)
    for name, log in {
        "multilingual5": five_languages(),
        "regmix": regmix(),
        "olmix": shared_logs("olmix_*.csv"),
    }.items():
        for runs in FEW if log is not None else ():
            found = Held.together([Held.of(fitted(kept), judged) for kept, judged in drawn(log, runs)])
            found.show(name, str(runs))
            must_be_within(f"{name}, {runs} runs", found)


def drawn(log: sm.RunLog, runs: int) -> Iterator[tuple[sm.RunLog, sm.RunLog]]:
    """So many runs at random, and others."""
    for draw in range(DRAWS):
        order = np.random.default_rng([draw, runs]).permutation(len(log))
        yield log.select(order[:runs]), log.select(order[runs : runs + JUDGED])


def must_be_within(label: str, found: Held) -> None:
    """88 to 93% inside."""
    must(f"{label}, within range: share inside", round(found.share, 2), 0.88, ">=")
    must(f"{label}, within range: share inside", round(found.share, 2), 0.93)


def predicted(logs: dict[str, sm.RunLog]) -> None:
    """What fits to all sizes say of the next larger ones, whose logs are not at hand."""
    budgets = [(name, N, 3.1e10) for name in ("5mix", "redpajama") for N in (3.02e8, 8.05e8)]
    budgets += [("slimpajama", 1.3e9, 5e10), ("slimpajama", 2.7e9, 1e11)]
    table("Sizes to come, uniform mixture", "log", "N", "D", "target", "loss", "low", "high")
    fits = {name: fitted(logs[name]) for name in dict.fromkeys(name for name, _, _ in budgets) if name in logs}
    for name, N, D in budgets:
        if name in fits:
            told = fits[name].predict("uniform", N, D)
            for j, target in enumerate(told.targets):
                numbers = (f"{float(values[0, j]):.3f}" for values in (told.losses, told.low, told.high))
                row(name, format_size(N), format_size(D), target, *numbers)


def checkpoints(log: sm.RunLog) -> None:
    """Errors on final losses and on all checkpoints, by which checkpoints were fitted."""
    share, largest = progress(log), log.N.max() == log.N
    last = share == 1
    masks = fold_masks(log, OUTER)
    table(
        f"SlimPajama's checkpoints, {LAW}: held-out PE, %",
        "fitted", "last, held-out mixtures", "all, held-out mixtures", "last, largest size", "all, largest size",
    )  # fmt: skip
    for word, keep in (("all", share > 0), ("second half of each run", share > 0.5), ("last of each run", last)):
        folds = [errors(log, keep & ~mask, mask, last) for mask in masks]
        row(
            word, *(f"{value:.2f}" for value in (*np.mean(folds, axis=0), *errors(log, keep & ~largest, largest, last)))
        )


def study() -> None:
    """The repository's own runs, whose losses of one N and D have more in common: those with the target's language."""
    log, proof = (sm.read_runs(FIXTURES / "study" / name) for name in ("log.csv", "proof.csv"))
    sizes, cells = np.unique(log.N), np.unique([log.N, log.D], axis=1).T
    left_out = {
        "mixtures, by folds": fold_masks(log, OUTER),
        "one N and D": [(log.N == N) & (log.D == D) for N, D in cells],
        "one N": [log.N == N for N in sizes],
    }
    table(f"The study: 90% intervals of {LAW}", "left out", "predicted", *COLUMNS)
    for what, masks in left_out.items():
        fits = [fitted(log.select(~mask)) for mask in masks]
        for N in sizes:
            parts = [(fit, log.select(mask & (log.N == N))) for fit, mask in zip(fits, masks, strict=True)]
            found = Held.together([with_own(fit, one) for fit, one in parts if len(one)])
            found.show(what, f"N {format_size(N)}")
            if what == "mixtures, by folds":
                must(f"the study, N {format_size(N)}: share inside", found.share, 0.85, ">=")
                must(f"the study, N {format_size(N)}: share inside", found.share, 0.95)
                must(f"the study, N {format_size(N)}: width over the oracle's", found.ratio, 2.0)
    with_own(fitted(log), proof).show("the runs of the proof", f"N {format_size(proof.N[0])}")


def with_own(fit: sm.Fit, log: sm.RunLog) -> Held:
    """The losses of runs with the target's own language."""
    return Held.of(fit, log, own_tokens(log) > 0)


def errors(log: sm.RunLog, kept: np.ndarray, judged: np.ndarray, last: np.ndarray) -> tuple[float, float]:
    """PE in per cent of the last checkpoints among the judged rows, and of all of these."""
    law = sm.fit(log.select(kept), LAW, bootstrap=0, folds=0).law
    found = []
    for rows in (judged & last, judged):
        loss = log.loss[rows]
        error = np.abs(law(log.p[rows], log.N[rows], log.D[rows]) - loss)
        found.append(100 * float((error.mean(axis=0) / loss.mean(axis=0)).mean()))
    return found[0], found[1]


def fitted(log: sm.RunLog) -> sm.Fit:
    """A fit with intervals, from all sets of replicates."""
    return sm.fit(log, LAW, bootstrap=SETS * REPLICATES, folds=FOLDS)


def parted(fit: sm.Fit) -> list[sm.Fit]:
    """The same fit with each of the sets of replicates alone."""
    rows = [slice(number * REPLICATES, (number + 1) * REPLICATES) for number in range(SETS)]
    return [
        replace(
            fit,
            replicates=some(fit.replicates, one),
            absent=None if fit.absent is None else replace(fit.absent, replicates=some(fit.absent.replicates, one)),
            repetition=None if fit.repetition is None else replace(fit.repetition, rates=some_rates(fit, one)),
        )
        for one in rows
    ]


def some_rates(fit: sm.Fit, rows: slice) -> np.ndarray | None:
    """The rates of repetition of some of the replicates."""
    rates = None if fit.repetition is None else fit.repetition.rates
    return None if rates is None else rates[rows]


def some(law: Law | None, rows: slice) -> Law | None:
    """Some of the replicates of a law; what all share has no axis for them."""
    if law is None:
        return None
    return law.mapped(lambda known, value: value[rows] if value.ndim > len(known.axes) else value)


if __name__ == "__main__":
    main()
