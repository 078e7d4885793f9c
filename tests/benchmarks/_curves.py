"""Held-out PE against the number of runs, for every law and rival on the same draws."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from _data import five_languages, regmix, shared_logs
from _report import row, table

import shapleymix as sm

DEFAULT = "learned-base"  # what `auto` takes unless another is clearly better; `--laws auto` asks that, for an hour
LAWS = (DEFAULT, "additive", "exponential", "mariner", "hellinger", "gbm")
SIZES = {
    "olmix": (12, 24, 36, 48, 72, 100),
    "regmix": (20, 35, 51, 100, 200),
    "multilingual5": (4, 8, 12, 20),
}
TESTED = 150  # at most, of the runs that a draw does not fit
DRAWS = 5
PROTOTYPE = "base, prototype"
# math.md's base law as first tried, least squares and a grid: `predict(P[train], Y[train], P[test], own)` of
# ../shared/prototypes/learned_base.py on the draws below, all targets (half an hour; it is no part of this repository)
MEASURED: dict[str, dict[int, float]] = {
    "olmix": {12: 6.05, 24: 4.41, 36: 3.94, 48: 3.63, 72: 3.55, 100: 3.28},
    "regmix": {20: 2.46, 35: 2.03, 51: 1.98, 100: 1.79, 200: 1.6},
    "multilingual5": {4: 3.14, 8: 1.74, 12: 1.60, 20: 1.30},
}


@dataclass
class Curves:
    """Median PE over the draws in per cent, by log, law and number of runs; CPU seconds by law."""

    draws: int
    error: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, log: sm.RunLog, laws: Sequence[str]) -> None:
        """Fit every law to every draw of one log, and print the log's table."""
        sizes = SIZES[name]
        found = self.error.setdefault(name, {PROTOTYPE: MEASURED[name]} if name in MEASURED else {})
        table(f"{name}: held-out PE, %, median of {self.draws} draws", "runs", *map(str, sizes))
        if PROTOTYPE in found:
            row(PROTOTYPE, *(cell(found[PROTOTYPE].get(size)) for size in sizes))
        for law in laws:
            start = time.process_time()
            found[law] = {size: self.median(law, log, size) for size in sizes}
            self.seconds[law] = self.seconds.get(law, 0.0) + time.process_time() - start
            row(law, *(cell(found[law][size]) for size in sizes))

    def median(self, law: str, log: sm.RunLog, size: int) -> float:
        """Median over the draws; NaN where the law refuses one."""
        return float(np.median([error_of(law, *draw(log, size, seed)) for seed in range(self.draws)]))

    def best(self, name: str, size: int, without: str) -> float:
        """The lowest error of all others."""
        others = (by_size.get(size, math.nan) for law, by_size in self.error[name].items() if law != without)
        return min((error for error in others if not math.isnan(error)), default=math.nan)


def cell(error: float | None) -> str:
    """A table's cell: blank where there is no error, short where it explodes."""
    if error is None or math.isnan(error):
        return "-"
    return f"{error:.2f}" if error < 1000 else f"{error:.0e}"


def draw(log: sm.RunLog, size: int, seed: int) -> tuple[sm.RunLog, sm.RunLog]:
    """Runs to fit, and others to test."""
    order = np.random.default_rng(100 + seed).permutation(len(log))
    return log.select(order[:size]), log.select(order[size : size + TESTED])


def error_of(law: str, learn: sm.RunLog, test: sm.RunLog) -> float:
    """Mean PE over targets in per cent; NaN where the law refuses."""
    try:
        found = sm.fit(learn, law, bootstrap=0, folds=10 if law == "auto" else 0, threads=1)
    except sm.FitError:
        return math.nan
    predicted = found.law.losses(test.p, test.N, test.D)
    return float(100 * (np.abs(predicted - test.loss).mean(axis=0) / test.loss.mean(axis=0)).mean())


def laws_here(wanted: Sequence[str]) -> list[str]:
    """The wanted laws without those that are not installed."""
    return [law for law in wanted if law != "gbm" or importlib.util.find_spec("lightgbm")]


def curve_logs(wanted: Sequence[str]) -> dict[str, sm.RunLog]:
    """The logs at hand."""
    makers = {"olmix": lambda: shared_logs("olmix_dclm_30m.csv"), "regmix": regmix, "multilingual5": five_languages}
    found = {name: makers[name]() for name in wanted}
    return {name: log for name, log in found.items() if log is not None}


def draw_figure(curves: Curves, path: Path) -> None:
    """PE against runs, a panel a log; as text where there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"\nno matplotlib: {path} is not drawn")
        for by_law in curves.error.values():
            text_chart(by_law)
        return
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(curves.error), 3.6), layout="constrained")
    panels = figure.subplots(1, len(curves.error), squeeze=False)[0]
    for panel, (name, by_law) in zip(panels, curves.error.items(), strict=True):
        lowest = min(min(line.values()) for line in by_law.values() if line)
        for law, by_size in by_law.items():
            shown = {size: error for size, error in by_size.items() if error < 6 * lowest}  # NaN is not
            bold = {"linewidth": 2.6, "color": "black"} if law == DEFAULT else {"linewidth": 1.1}
            panel.plot(list(shown), list(shown.values()), marker="o", markersize=3, label=law, **bold)
        panel.set(title=name, xlabel="runs fitted", xscale="log", yscale="log")
        ticks = SIZES[name]
        panel.set_xticks(ticks, labels=[str(size) for size in ticks], minor=False)
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
    panels[0].set_ylabel("held-out PE, %")
    panels[-1].legend(fontsize=7)
    with rc_context({"svg.hashsalt": "curves", "svg.fonttype": "none"}):  # the same bytes again, and text as text
        figure.savefig(path, metadata={"Date": None})
    print(f"\n{path} is drawn")


def text_chart(by_law: Mapping[str, Mapping[int, float]], width: int = 60) -> None:
    """A bar a law at the largest number of runs, for terminals."""
    size = max(size for line in by_law.values() for size in line)
    there = {law: line[size] for law, line in by_law.items() if line.get(size, math.nan) < 100}
    top = max(there.values())
    print(f"\nPE with {size} runs, %")
    for law, error in sorted(there.items(), key=lambda item: item[1]):
        print(f"{law:>18} {'#' * round(width * error / top)} {error:.2f}")
