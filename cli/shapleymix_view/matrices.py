"""Transfer matrices as heat maps, and how well two of them agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shapleymix import TransferMatrix
from shapleymix.errors import UsageError
from shapleymix.records import FloatArray
from shapleymix_view.canvas import ACCENT, FAINT, Picture, picture, readable_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_NUMBERS = 12
"""Up to so many sources and targets, each cell shows its number."""


def plot_transfer(matrix: TransferMatrix, other: TransferMatrix | None = None) -> Picture:
    """One matrix, or two side by side, of Shapley values in nats where both have them, else normalised.

    Parameters
    ----------
    matrix, other : TransferMatrix
        What each source (row) does for each target (column).
    """
    shown = [matrix] if other is None else [matrix, other.aligned(matrix.sources, matrix.targets)]
    raw = all(one.sv is not None for one in shown)
    values = [np.asarray(one.sv if raw else one.nsv) for one in shown]
    off = [np.where(_diagonal(matrix), np.nan, one) for one in values]
    top = max(float(np.nanmax(np.abs(one))) for one in off) if len(matrix.sources) > 1 else 1.0

    def draw(figure: Figure) -> None:
        for axes, one in zip(np.ravel(figure.subplots(1, len(values))), values, strict=True):
            _heat_map(axes, one, matrix, top)

    unit = "nats of loss drop" if raw else "normalised Shapley values"
    caption = (
        f"What each source (row) does for each target (column), {unit}; colours end at the largest off the diagonal."
    )
    rows = [(s, t) for s in matrix.sources for t in matrix.targets]
    table = {"source": [s for s, _ in rows], "target": [t for _, t in rows]}
    table |= {f"value{place or ''}": one.ravel().tolist() for place, one in enumerate(values)}
    return picture("transfer", 1.2 + 0.28 * len(matrix.sources), draw, caption, table)


def plot_agreement(one: TransferMatrix, other: TransferMatrix) -> Picture:
    """The normalised values of two matrices against each other, with their cosine and Pearson correlation."""
    other = other.aligned(one.sources, one.targets)
    if len(one.sources) * len(one.targets) < 3:
        raise UsageError("two matrices of fewer than three values agree in nothing", hint="give larger ones")
    own, x, y = _diagonal(one), one.nsv, other.nsv

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--")
        axes.plot(x[own], y[own], "s", color=FAINT, label="a language for itself")
        axes.plot(x[~own], y[~own], "o", color=ACCENT, label="for another")
        axes.set(xlabel="first matrix, normalised", ylabel="second matrix, normalised")
        axes.legend()

    told = [
        f"cosine {_cosine(a, b):.3f}, Pearson {np.corrcoef(a, b)[0, 1]:.3f}"
        for a, b in ((x.ravel(), y.ravel()), (x[~own], y[~own]))
    ]
    caption = f"Two transfer matrices: {told[0]}; off the diagonal {told[1]}."
    return picture("agreement", 4.2, draw, caption, {"first": x.ravel().tolist(), "second": y.ravel().tolist()})


def _diagonal(matrix: TransferMatrix) -> np.ndarray:
    return np.array([[source == target for target in matrix.targets] for source in matrix.sources])


def _cosine(a: FloatArray, b: FloatArray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _heat_map(axes: Axes, values: FloatArray, matrix: TransferMatrix, top: float) -> None:
    image = axes.imshow(values, cmap="RdBu", vmin=-top, vmax=top, aspect="auto")
    axes.set_xticks(range(len(matrix.targets)), matrix.targets, rotation=45 if len(matrix.targets) > 6 else 0)
    axes.set_yticks(range(len(matrix.sources)), matrix.sources)
    if max(values.shape) > MOST_NUMBERS:
        return
    for (i, j), value in np.ndenumerate(values):
        colour = readable_on(image.to_rgba(np.array([value]))[0, :3].tolist())
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=colour)
