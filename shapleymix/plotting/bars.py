"""A mixture as bars, with its intervals and bounds, beside its rivals and what it gains over them.

Legend: M sources.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.errors import printable
from shapleymix.fitting.measures import LOSS
from shapleymix.mixing.gains import Rival
from shapleymix.mixing.mixtures import Mixture
from shapleymix.plotting.canvas import WIDTH, in_letters
from shapleymix.plotting.marks import COLOURS, FAINT, INK, colour, mark
from shapleymix.plotting.pictures import Picture, picture
from shapleymix.plotting.ticks import label_axis, shortened
from shapleymix.records import FloatArray
from shapleymix.tables.frames import Columns
from shapleymix.tables.sizes import format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6
"""So many rivals are drawn, the first ones: one over another, more would not be told apart."""


def plot_mixture(mixture: Mixture | str | os.PathLike[str]) -> Picture:
    """A mixture's ratios with their intervals, caps and floors; its rivals, and what it gains over each.

    Parameters
    ----------
    mixture : Mixture or path
        The mixture, or the file in which one was saved.

    Returns
    -------
    Picture
        The figure with its caption and numbers.

    Raises
    ------
    UsageError, StoreError
        If it is no mixture, or cannot be read.
    """
    found = Mixture.taken(mixture)
    rivals = [rival for rival in found.baselines if not np.array_equal(rival.p, found.p)][:MOST]
    gains = [rival for rival in rivals if np.isfinite(rival.gain)]
    return picture(
        "mixture",
        2.7 + (0.5 + 0.17 * len(gains) if gains else 0.0),
        lambda figure: _draw(figure, found, rivals, gains),
        _caption(found, rivals, gains),
        _table(found, rivals),
        labels=(*found.sources, *(rival.name for rival in rivals)),
    )


def _draw(figure: Figure, found: Mixture, rivals: list[Rival], gains: list[Rival]) -> None:
    if not gains:
        _bars(figure.subplots(), found, rivals)
    else:
        heights = [2.2, 0.35 + 0.17 * len(gains)]
        upper, lower = figure.subplots(2, 1, height_ratios=heights)
        _bars(upper, found, rivals)
        _gains(lower, found, gains)
    figure.legend(loc="outside upper center", ncols=4)


def _bars(axes: Axes, found: Mixture, rivals: list[Rival]) -> None:
    """Bars of the ratios; a line across each bound, and the rivals' marks side by side over each bar."""
    places = np.arange(len(found.sources))
    spread = np.nan_to_num(np.clip([found.p - found.p_low, found.p_high - found.p], 0, None))
    axes.bar(
        places, found.p, 0.72, yerr=spread if spread.any() else None, color=COLOURS[5], label="this mixture",
        error_kw={"elinewidth": 0.8, "capsize": 2, "ecolor": INK},
    )  # fmt: skip
    for bounds, active, label, style in (
        (found.caps, found.caps < 1, "cap", "-"),
        (found.floors, found.floors > 0, "floor", ":"),
    ):
        if active.any():
            edges = places[active] - 0.44, places[active] + 0.44
            axes.hlines(bounds[active], *edges, color=INK, linestyle=style, linewidth=1.0, label=label)
    sides = np.linspace(-0.27, 0.27, len(rivals) + len(rivals) % 2)  # an even number: none hides the interval
    for number, (rival, shift) in enumerate(zip(rivals, sides.tolist(), strict=False)):
        axes.plot(
            places + shift, rival.p, mark(number), color=colour(number + 1), markersize=3.6,
            label=in_letters(shortened(rival.name)), markeredgecolor="white", markeredgewidth=0.3,
        )  # fmt: skip
    axes.set_ylim(0, None)
    axes.set_ylabel("ratio of tokens")
    label_axis(axes, "x", found.sources, (WIDTH * 72 - 50) / len(places))


def _gains(axes: Axes, found: Mixture, gains: list[Rival]) -> None:
    """What the mixture gains over each rival, with the interval of one run of each."""
    middle, low, high = (np.array([getattr(one, name) for one in gains]) for name in ("gain", "gain_low", "gain_high"))
    spread = np.nan_to_num(np.clip([middle - low, high - middle], 0, None))
    for place, one in enumerate(gains):
        number = next(number for number, rival in enumerate(found.baselines) if rival is one)
        axes.errorbar(
            middle[place], place, xerr=spread[:, [place]], fmt=mark(number), color=colour(number + 1), elinewidth=0.8,
            capsize=2, markersize=3.6,
        )  # fmt: skip
    axes.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    axes.set_ylim(len(gains) - 0.5, -0.5)
    label_axis(axes, "y", [one.name for one in gains], 12.0)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"gain over it, {_unit(found)}")


def _caption(found: Mixture, rivals: list[Rival], gains: list[Rival]) -> str:
    budget = f"N = {format_size(found.N)}, D = {format_size(found.D)}"
    listed = ", ".join(f"{printable(name)} {ratio:.3f}" for name, ratio in _largest(found.sources, found.p))
    what = f"{found.told} ({found.weights_origin.split(':')[0]})"
    parts = [f"Mixture for {budget}: {listed}; {what}."]
    if np.isfinite(found.p_low).any():
        parts.append(f"Bars on ratios: {found.level:.0%} intervals of the optimum.")
    if gains:
        told = ", ".join(f"{printable(one.name)} {_gain(one)}" for one in gains)
        parts.append(f"Gain over rivals in {_unit(found)}, {found.level:.0%} intervals for one run of each: {told}.")
    hidden = len(found.baselines) - len(rivals)
    same = [rival.name for rival in found.baselines if np.array_equal(rival.p, found.p)]
    parts += [f"It is {printable(name)} itself." for name in same]
    if hidden > len(same):
        parts.append(f"{hidden - len(same)} further rivals are not drawn.")
    return " ".join([*parts, *([found.verdict[:1].upper() + found.verdict[1:] + "."] if found.verdict else [])])


def _gain(one: Rival) -> str:
    return f"{one.gain:z.4f} ({one.gain_low:z.4f} .. {one.gain_high:z.4f})"


def _largest(names: tuple[str, ...], values: FloatArray, most: int = 8) -> list[tuple[str, float]]:
    """The names with the largest values, in the order of the names."""
    chosen = np.sort(np.argsort(-values, kind="stable")[:most])
    return [(names[i], float(values[i])) for i in chosen.tolist()]


def _table(found: Mixture, rivals: list[Rival]) -> Columns:
    """One row per mixture and source; gains stand in the rows of their rival."""
    blank = np.full(len(found.sources), np.nan)
    names = ["this mixture", *(rival.name for rival in rivals)]
    p = np.concatenate([found.p, *(rival.p for rival in rivals)])
    own = {"low": found.p_low, "high": found.p_high, "floor": found.floors, "cap": found.caps}
    return {
        "mixture": [name for name in names for _ in found.sources],
        "source": list(found.sources) * len(names),
        "ratio": p,
        **{name: np.concatenate([values, *([blank] * len(rivals))]) for name, values in own.items()},
        **{
            name: np.concatenate([blank, *(np.full(len(blank), getattr(rival, name)) for rival in rivals)])
            for name in ("gain", "gain_low", "gain_high")
        },
    }


def _unit(found: Mixture) -> str:
    """What gains are counted in."""
    return "nats" if found.measure == LOSS else "score"
