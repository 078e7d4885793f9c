"""Held-out error of the laws and their rivals: by grouped cross-validation, against the number of runs, and of runs of
a size that was not fitted, which is where checkpoints of a decaying learning rate mislead.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal

import numpy as np
from _data import FIXTURES, five_languages, logs, suites
from _report import SMALL, finish, must, on_all_cores, row, table

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.evidence import fold_masks, is_finished

LIMITS = {"regmix": 1.25, "5mix": 0.65, "redpajama": 0.59, "slimpajama": 0.47}
"""Mean PE in per cent that the default law must reach: an earlier law of ours did, with no base."""
FINAL = {"5mix": 0.50, "slimpajama": 0.50, "redpajama": 0.85}
"""The same of final losses where the largest size is left out."""
DEFAULT = "learned-base"
LAWS = (DEFAULT, "additive", "exponential", "mariner", "gbm")[: 1 if SMALL else 5]
SIZES = {
    "olmix": (12, 24, 36, 48, 72, 100), "regmix": (20, 35, 51, 100, 200), "multilingual5": (4, 6, 12, 20),
    "wiki40b": (24, 48, 128),
}  # fmt: skip
TESTED = 150  # at most, of the runs that a draw does not fit
DRAWS = 1 if SMALL else 5


def main() -> None:
    final_losses()
    one_mixture()
    for name, log in logs(*LIMITS).items():
        found = shown(name, sm.compare(log, LAWS))
        must(f"{name}, {DEFAULT}: mean held-out PE, %", round(found[DEFAULT], 2), LIMITS[name])
    matrices = {
        "exact SV": sm.shapley_values(FIXTURES / "multilingual5_coalitions.csv"),
        "IRDS, calibrated": sm.read_transfer(FIXTURES / "multilingual5_irds_raw.csv").calibrate(),
    }
    for name, matrix in matrices.items():
        laws = ("shapley", "shapley-tempered", DEFAULT)
        shown(f"multilingual5, {name}", sm.compare(five_languages(), laws, matrix))
    for name, log in logs(*SIZES).items():
        curves(name, log, SIZES[name][: 1 if SMALL else None])
    finish()


def final_losses() -> None:
    """Errors at the end of runs of the largest size, fitted to all rows alike, to the last, and by default."""
    ways = ("all alike", "last rows", "default")
    table(f"Final losses of the largest size, {DEFAULT}: PE, %", "log", "left out", *ways)
    study = sm.read_runs(FIXTURES / "study" / "log.csv")
    found = {"study": study.select(study.groups % 4 == 0)} if SMALL else logs(*FINAL)
    for name, log in found.items():
        last = log.select(is_finished(log))
        for what, folds in (("largest size", 1), ("largest size and mixtures", 4))[: 1 if SMALL else None]:
            given = {way: last if way == ways[1] else log for way in ways}
            errors = [beyond(rows, folds, "all" if way == ways[0] else "final") for way, rows in given.items()]
            row(name, what, *errors)
            if folds == 1:
                must(f"{name}, {what} left out: PE of final losses, %", errors[-1], FINAL.get(name, math.inf))


def one_mixture() -> None:
    """The two forms in N and D on public suites: in ten folds, and on the largest size."""
    laws = ("chinchilla", "kaplan")
    table(
        "One mixture: held-out PE, %", "suite", *(f"{law}, {what}" for what in ("folds", "largest N") for law in laws)
    )
    for name, log in suites().items():
        found = [sm.compare(log, laws, leave_largest_N=largest) for largest in (False, True)]
        row(name, *(f"{percent(entry):.2f}" for one in found for entry in one.entries))


def beyond(log: sm.RunLog, folds: int, checkpoints: Literal["final", "all"]) -> float:
    """Mean PE, in per cent, on finished runs of the largest size, by fits to smaller ones (of other mixtures)."""
    largest = log.N.max() == log.N
    off, seen = [], []
    for mask in fold_masks(log, folds) if folds > 1 else [largest]:
        test = log.select(mask & largest & is_finished(log))
        fit = sm.fit(log.select(~largest & ~mask), DEFAULT, bootstrap=0, folds=0, checkpoints=checkpoints)
        off.append(np.abs(fit.predict(test.p, test.N, test.D).losses - test.loss))
        seen.append(test.loss)
    return float(100 * (np.vstack(off).sum(axis=0) / np.vstack(seen).sum(axis=0)).mean())


def percent(entry: object) -> float:
    """Mean PE of a compared law."""
    scores = getattr(entry, "scores", None)
    return math.nan if scores is None else 100 * scores.mean["PE"]


def shown(title: str, comparison: sm.Comparison) -> dict[str, float]:
    """Print one comparison; mean PE of each law in per cent."""
    columns = ("law", "numbers per target", "held-out PE, %", "standard error", "R2", "Spearman")
    table(f"{title}: {comparison.design}, {comparison.rows} rows", *columns)
    for entry in comparison.entries:
        if entry.scores is None:
            row(entry.law, entry.parameters, entry.error, "", "", "")
            continue
        told = (percent(entry), 100 * entry.standard_error, *(entry.scores.mean[one] for one in ("R2", "spearman")))
        row(entry.law, "-" if entry.parameters >= 10**6 else entry.parameters, *(f"{value:.3g}" for value in told))
    print(f"\nto fit: {comparison.preferred()}; lowest error: {comparison.best()}")
    return {entry.law: percent(entry) for entry in comparison.entries}


def curves(name: str, log: sm.RunLog, sizes: tuple[int, ...]) -> None:
    """PE against the number of runs, every law on the same draws; the default law must be the best."""
    table(f"{name}: held-out PE, %, median of {DRAWS} draws", "runs", *map(str, sizes))
    found = {law: [median(law, log, size) for size in sizes] for law in LAWS}
    for law, errors in found.items():
        row(law, *(f"{error:.2f}" if error < 1000 else f"{error:.0e}" for error in errors))
    for place, size in enumerate(sizes):
        others = [errors[place] for law, errors in found.items() if law != DEFAULT]
        best = min((error for error in others if not math.isnan(error)), default=math.inf)
        must(f"{name}, {size} runs: {DEFAULT}, % (the best other)", found[DEFAULT][place], best)


def median(law: str, log: sm.RunLog, size: int) -> float:
    """The median error over the draws; NaN where the law refuses one."""
    orders = [np.random.default_rng(100 + draw).permutation(len(log)) for draw in range(DRAWS)]
    parts = [(law, log.select(order[:size]), log.select(order[size : size + TESTED])) for order in orders]
    return float(np.median(on_all_cores(error_of, parts)))


def error_of(law: str, learn: sm.RunLog, test: sm.RunLog) -> float:
    """Mean PE over targets in per cent; NaN where the law refuses."""
    try:
        predicted = sm.fit(learn, law, bootstrap=0, folds=0).predict(test.p, test.N, test.D).losses
    except sm.FitError:
        return math.nan
    return float(100 * (np.nanmean(np.abs(predicted - test.loss), axis=0) / test.loss.mean(axis=0)).mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
