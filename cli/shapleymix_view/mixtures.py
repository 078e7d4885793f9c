"""Figures of answers: a mixture with its rivals, a trade-off curve, a plan of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shapleymix import Design, Frontier, Mixture
from shapleymix.tables.words import format_size
from shapleymix_view.canvas import ACCENT, COLOURS, FAINT, INK, Picture, bars, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, MOST = 0.005, 16
"""Of more sources than `MOST`, those with a smaller ratio are drawn as one bar."""


def plot_mixture(mixture: Mixture) -> Picture:
    """Ratios with intervals and caps, the largest on top, and the gain over each rival."""
    order = np.argsort(-mixture.p, kind="stable")
    shown = order if len(order) <= MOST else order[mixture.p[order] >= SMALL]
    names = [mixture.sources[i] for i in shown]
    values, low, high = mixture.p[shown], mixture.p_low[shown], mixture.p_high[shown]
    if len(shown) < len(order):
        names.append(f"{len(order) - len(shown)} others")
        values = np.append(values, mixture.p.sum() - values.sum())
        low, high = np.append(low, np.nan), np.append(high, np.nan)
    rivals = [one for one in mixture.baselines if np.isfinite(one.gain)]

    def draw(figure: Figure) -> None:
        first, second = figure.subplots(1, 2, width_ratios=(3, 2)) if rivals else (figure.subplots(), None)
        bars(first, names, values, low, high, len(rivals))
        _caps(first, mixture, shown)
        first.set_xlabel("ratio")
        if second is not None:
            gain, worst, best = np.array([(one.gain, one.gain_low, one.gain_high) for one in rivals]).T
            bars(second, [f"over {one.name}" for one in rivals], gain, worst, best, len(names))
            second.axvline(0, color=INK, linewidth=0.6)
            second.set_xlabel("gain" if mixture.measure == "error" else "gain, nats")

    limits = " and caps (red ticks)" if (mixture.caps[shown] < 1).any() else ""
    right = "; on the right what it gains over other mixtures" if rivals else ""
    caption = (
        f"The mixture for N = {format_size(mixture.N)}, D = {format_size(mixture.D)}, with {mixture.level:.0%} "
        f"intervals{limits}{right}."
    )
    table = {"source": names, "p": values.tolist(), "low": low.tolist(), "high": high.tolist()}
    return picture("mixture", 1.1 + 0.22 * max(len(names), len(rivals)), draw, caption, table)


def _caps(axes: Axes, mixture: Mixture, shown: np.ndarray) -> None:
    for place, i in enumerate(shown.tolist()):
        if mixture.caps[i] < 1:
            axes.plot([mixture.caps[i]] * 2, [place - 0.4, place + 0.4], color="#c2410c", linewidth=1.4)


def plot_frontier(frontier: Frontier) -> Picture:
    """The trade-off between two sets of targets, and the mixtures along it."""
    first, second = (np.array([getattr(one, side) for one in frontier.entries]) for side in ("first", "second"))
    p = np.stack([one.p for one in frontier.entries])

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        left.plot(first, second, "o-", color=ACCENT)
        left.set(xlabel=_side(frontier.first_targets), ylabel=_side(frontier.second_targets))
        largest = np.argsort(-p.max(axis=0))[: len(COLOURS)]
        for place, i in enumerate(largest.tolist()):
            right.plot(first, p[:, i], "-", color=COLOURS[place], label=frontier.sources[i])
        others = np.setdiff1d(np.arange(p.shape[1]), largest)
        if len(others):
            right.plot(first, p[:, others].sum(axis=1), ":", color=FAINT, label=f"{len(others)} others")
        right.set(xlabel="along the curve (loss of the first)", ylabel="ratio")
        right.legend()

    caption = (
        f"Trade-off {frontier.between} at N = {format_size(frontier.N)}, D = {format_size(frontier.D)}: along the "
        "curve no mixture lowers one mean loss without raising the other. On the right the ratios."
    )
    table = {"first": first.tolist(), "second": second.tolist()}
    table |= {f"p_{name}": p[:, i].tolist() for i, name in enumerate(frontier.sources)}
    return picture("frontier", 3.0, draw, caption, table)


def _side(targets: Sequence[str]) -> str:
    """What an axis says of the targets of one side."""
    some = ", ".join(targets[:3])
    return f"mean loss of {some}{f' and {len(targets) - 3} more' if len(targets) > 3 else ''}, nats"


def plot_design(design: Design) -> Picture:
    """Planned mixtures as stacked bars, in order, and the expected error after each."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        bottom = np.zeros(len(design))
        for i, name in enumerate(design.sources):
            left.bar(range(1, len(design) + 1), design.p[:, i], bottom=bottom, color=COLOURS[i % len(COLOURS)],
                     alpha=1 - 0.35 * (i // len(COLOURS) % 3), label=name if i < 8 else None)  # fmt: skip
            bottom += design.p[:, i]
        left.set(xlabel="run", ylabel="ratio")
        figure.legend(loc="outside upper center", ncols=8)
        right.plot(range(1, len(design) + 1), 100 * design.error[1:], "o-", color=ACCENT)
        right.set(xlabel="runs", ylabel="expected error, %")

    caption = (
        f"{len(design)} mixtures to train next, the most useful first, after {design.trained} at hand, and the "
        "expected error of a loss after each."
    )
    table = {"run": list(design.runs), "error": design.error[1:].tolist()}
    table |= {f"p_{name}": design.p[:, i].tolist() for i, name in enumerate(design.sources)}
    return picture("design", 3.0, draw, caption, table)
