"""The figures: of fits and what is said of laws, of transfer matrices, of mixtures; and one way to draw any result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np

from shapleymix import Comparison, Design, Downstream, Fit, Frontier, LearningCurve, Mixture, TransferMatrix
from shapleymix.errors import ShapleyMixWarning, UsageError, described
from shapleymix.fitting.evidence import Logs, one_log, own_tokens
from shapleymix.fitting.held_out import score
from shapleymix.records import FloatArray
from shapleymix.tables.languages import LanguagesSpec, languages_of, unit_of
from shapleymix.tables.words import format_size
from shapleymix_view.canvas import ACCENT, COLOURS, FAINT, INK, MARKS, Picture, bars, panels, picture, readable_on, wide
from shapleymix_view.page_data import rows_of, summed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MOST_PANELS = 24
"""So many targets or tasks are drawn, the first ones."""
MOST_LETTERS = 16
"""Of the name of a rival, beside which bars must have room."""


def plot_fit(
    fit: Fit, log: Logs, *, against: str = "theta", unit: str = "nats", languages: LanguagesSpec | None = None
) -> Picture:
    """Each target's loss at the last checkpoints of a log, a colour for each size, against Theta or the prediction.

    Parameters
    ----------
    fit : Fit
        The fit.
    log : RunLog, path, or a sequence of them
        The runs, those that were fitted or others.
    against : {"theta", "prediction"}
        What lies along the horizontal axis; a law without Theta is drawn against its predictions.
    unit : {"nats", "bpb"}
        Unit of the losses; bits a byte need `languages` with `bytes_per_token`.
    languages : table or path, optional
        The languages table.
    """
    rows = replace(one_log(log).align(fit.sources, fit.targets), parents=fit.parents)
    rows = rows.select(rows.trained & (rows.ends_by(None) == rows.D))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        said = fit.predict(rows)
    scale = unit_of(unit, languages_of(languages), fit.targets, fit.parents)
    loss, mean, low, high = (one * scale.per_nat for one in (rows.loss, said.losses, said.low, said.high))
    pieces = fit.law.pieces(rows.N, rows.D) if against == "theta" and fit.sources else None
    by_theta = pieces is not None and pieces.form == "power"
    x = pieces.theta(rows.p) if pieces is not None and by_theta else mean
    count, sizes = min(len(fit.targets), MOST_PANELS), np.unique(rows.N)
    there = ~np.isnan(rows.loss) & ~np.isnan(said.losses)

    without = own_tokens(rows) == 0

    def draw(figure: Figure) -> None:
        for j, axes in enumerate(panels(figure, count)):
            for place, N in enumerate(sizes.tolist()):
                some, colour = (N == rows.N) & there[:, j], COLOURS[place % len(COLOURS)]
                axes.vlines(x[some, j], low[some, j], high[some, j], color=colour, alpha=0.3, linewidth=1.6)
                for hollow, label in ((False, f"N = {format_size(N)}"), (True, None)):
                    shown = some & (without[:, j] == hollow)
                    axes.plot(x[shown, j], loss[shown, j], MARKS[place % len(MARKS)], color=colour, label=label,
                              markersize=3, markerfacecolor="white" if hollow else colour)  # fmt: skip
            if by_theta:
                _logarithmic(axes, x[there[:, j], j])
            else:
                ends = [float(np.nanmin(x[:, j])), float(np.nanmax(x[:, j]))]
                axes.plot(ends, ends, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
            axes.set_title(fit.targets[j], fontweight="bold", pad=3)
        figure.supylabel(f"loss, {scale.name}", fontsize=8)
        for axes in figure.axes[max(count - wide(count), 0) : count]:
            axes.set_xlabel("Theta" if by_theta else f"predicted loss, {scale.name}")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=8)

    mean = score(fit.targets, rows.loss, said.losses, said.low, said.high).mean
    error, inside = mean["PE"], mean["coverage"]
    few = f" for {count} of {len(fit.targets)} targets" if count < len(fit.targets) else ""
    hollow = ", hollow marks those of runs without the target's language" if without[there].any() else ""
    caption = (
        f"Loss ({scale.name}) of each run{few} against {'Theta' if by_theta else 'its prediction'} under law "
        f"{fit.law.name}; lines are the {said.level:.0%} intervals of single runs{hollow}. These runs: PE {error:.2%}"
        f"{'' if np.isnan(inside) else f', {inside:.0%} within their interval'}."
    )
    r, k = np.nonzero(there)
    table = {"run": [rows.runs[i] for i in r], "target": [fit.targets[j] for j in k], "x": x[r, k].tolist()}
    table |= {"loss": loss[r, k].tolist(), "low": low[r, k].tolist(), "high": high[r, k].tolist()}
    return picture("fit", 0.95 + (1.75 if wide(count) < 4 else 1.4) * -(-count // wide(count)), draw, caption, table)


def _logarithmic(axes: Axes, values: FloatArray) -> None:
    """A logarithmic axis with a tick at each end and one between, as plain numbers."""
    low, high = (float(np.nanmin(values)), float(np.nanmax(values))) if len(values) else (1.0, 1.0)
    ticks = sorted({float(f"{one:.2g}") for one in np.geomspace(low, high, 3).tolist()})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{one:g}" for one in ticks])
    axes.minorticks_off()


def plot_compare(comparison: Comparison) -> Picture:
    """The held-out errors of laws on the same runs, the best on top, with standard errors."""
    scored = [(one.law, one.scores.mean["PE"], one.standard_error) for one in comparison.entries if one.scores]
    if not scored:
        raise UsageError("no law of the comparison could be scored", hint="compare laws that the log allows")
    names, values, errors = map(list, zip(*sorted(scored, key=lambda one: one[1]), strict=True))
    PE, error = 100 * np.array(values), 100 * np.array(errors)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        bars(axes, names, PE, PE - error, PE + error)
        axes.set_xlabel("held-out error (PE), %")

    design = f"{comparison.design}, {comparison.rows} rows"
    caption = f"Held-out errors of {len(names)} laws: {design}; bars with standard errors."
    table = {"law": names, "PE": values, "standard_error": errors}
    return picture("compare", 0.9 + 0.2 * len(names), draw, caption, table)


def plot_learning_curve(curve: LearningCurve) -> Picture:
    """Held-out error against the number of mixtures, and how far more would bring it."""
    shown = sorted({*curve.mixtures.tolist(), *curve.ahead.tolist()})

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.errorbar(curve.mixtures, 100 * curve.PE, 100 * curve.error, fmt="o", color=INK, label="measured")
        axes.plot(curve.ahead, 100 * curve.expected, color=ACCENT, label="expected")
        axes.fill_between(curve.ahead, 100 * curve.low, 100 * curve.high, color=ACCENT, alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel="mixtures fitted", ylabel="held-out error (PE), %")
        axes.set_xticks(shown, [f"{one:.0f}" for one in shown])
        axes.minorticks_off()
        axes.legend()

    caption = f"Held-out error of law {curve.law} against the number of mixtures; the band holds {curve.level:.0%}."
    table = {"mixtures": curve.ahead.tolist(), "PE": curve.expected.tolist(), "low": curve.low.tolist()}
    return picture("learning curve", 3.0, draw, caption, table | {"high": curve.high.tolist()})


def plot_downstream(tasks: Downstream) -> Picture:
    """The scores of runs on each task against the losses of its language, and the line through them."""
    found = tasks.calibrations[:MOST_PANELS]

    def draw(figure: Figure) -> None:
        for axes, one in zip(panels(figure, len(found)), found, strict=True):
            line = np.linspace(one.losses.min(), one.losses.max(), 60)
            axes.plot(one.losses, one.scores, "o", color=INK, markersize=3)
            axes.plot(line, one.score(line), color=ACCENT)
            axes.set_title(f"{one.label}: held-out R2 {one.held_out_R2:.2f}", pad=3)
            axes.set(xlabel="loss, nats", ylabel="score")

    table: dict[str, list[Any]] = {"task": [one.label for one in found for _ in one.losses]}
    table |= {"loss": np.concatenate([one.losses for one in found]).tolist()}
    table |= {"score": np.concatenate([one.scores for one in found]).tolist()}
    more = f" (the first {len(found)} of {len(tasks.calibrations)})" if len(found) < len(tasks.calibrations) else ""
    caption = f"Scores on {len(found)} tasks{more} against losses, and the curve that predicts held-out mixtures best."
    return picture("downstream", 0.6 + 1.75 * -(-len(found) // wide(len(found))), draw, caption, table)


MOST_NUMBERS = 12
"""Up to so many sources and targets, each cell shows its number; of more, parents stand for their sources."""


def plot_transfer(matrix: TransferMatrix, *others: TransferMatrix) -> Picture:
    """One matrix, or several side by side, of Shapley values in nats where all have them, else normalised.

    Parameters
    ----------
    matrix, others : TransferMatrix
        What each source (row) does for each target (column).
    """
    folded = summed(matrix) if not others and max(matrix.nsv.shape) > MOST_NUMBERS else None
    matrix = folded or matrix
    shown = [matrix, *(one.align(matrix.sources, matrix.targets) for one in others)]
    raw = all(one.sv is not None for one in shown)
    values = [np.asarray(one.sv if raw else one.nsv) for one in shown]
    off = [np.where(matrix.off_diagonal, one, np.nan) for one in values]
    top = max(float(np.nanmax(np.abs(one))) for one in off) if len(matrix.sources) > 1 else 1.0

    def draw(figure: Figure) -> None:
        for axes, one in zip(np.ravel(figure.subplots(1, len(values))), values, strict=True):
            _heat_map(axes, one, matrix, top)

    unit = "nats of loss drop" if raw else "normalised Shapley values"
    caption = (
        f"What each source (row) does for each target (column), {unit}; colours end at the largest off the diagonal."
        f"{' Of parents: sums over their sources, means over their targets.' if folded else ''}"
    )
    table = {name: [*matrix.columns()[name]] for name in ("source", "target")}
    table |= {f"value{place or ''}": one.ravel().tolist() for place, one in enumerate(values)}
    return picture("transfer", 1.2 + 0.28 * len(matrix.sources), draw, caption, table)


def plot_agreement(one: TransferMatrix, other: TransferMatrix) -> Picture:
    """The normalised values of two matrices against each other, with their cosine and Pearson correlation."""
    other = other.align(one.sources, one.targets)
    if len(one.sources) * len(one.targets) < 3:
        raise UsageError("two matrices of fewer than three values agree in nothing", hint="give larger ones")
    own, x, y = ~one.off_diagonal, one.nsv, other.nsv

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle="--")
        axes.plot(x[own], y[own], "s", color=FAINT, label="a language for itself")
        axes.plot(x[~own], y[~own], "o", color=ACCENT, label="for another")
        axes.set(xlabel="first matrix, normalised", ylabel="second matrix, normalised")
        axes.legend()

    found = one.compare(other)
    caption = (
        f"Two transfer matrices: cosine {found.cosine:.3f}, Pearson {found.pearson:.3f}; off the diagonal cosine "
        f"{found.cosine_off_diagonal:.3f}, Pearson {found.pearson_off_diagonal:.3f}."
    )
    return picture("agreement", 4.2, draw, caption, {"first": x.ravel().tolist(), "second": y.ravel().tolist()})


def _heat_map(axes: Axes, values: FloatArray, matrix: TransferMatrix, top: float) -> None:
    image = axes.imshow(values, cmap="RdBu", vmin=-top, vmax=top, aspect="auto")
    axes.set_xticks(range(len(matrix.targets)), matrix.targets, rotation=45 if len(matrix.targets) > 6 else 0)
    axes.set_yticks(range(len(matrix.sources)), matrix.sources)
    if max(values.shape) > MOST_NUMBERS:
        return
    for (i, j), value in np.ndenumerate(values):
        colour = readable_on(image.to_rgba(np.array([value]))[0, :3].tolist())
        axes.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=6.5, color=colour)


SMALL, MOST_BARS = 0.005, 16
"""Of more sources than `MOST_BARS`, those with a smaller ratio are drawn as one bar."""
MOST_CHILDREN = 4
"""Of a parent among more than `MOST_BARS` sources, the largest ones that have a bar."""


def _bars_of(mixture: Mixture) -> list[tuple[str, list[int]]]:
    """The bars from the top on: each source; below the sum of a parent its sources; and small ones as one."""
    p, many = mixture.rest, len(mixture.sources) > MOST_BARS
    found, small = [], []
    for name, places in sorted(rows_of(mixture.families, mixture.sources), key=lambda row: -p[row[1]].sum()):
        if len(places) == 1:
            (small if many and p[places[0]] < SMALL else found).append((name, places))
            continue
        order = sorted(places, key=lambda place: -p[place])
        shown = order if not many or len(order) <= MOST_CHILDREN + 1 else order[:MOST_CHILDREN]
        found += [(f"{name}, in all", places), *((mixture.sources[place], [place]) for place in shown)]
        if rest := order[len(shown) :]:
            found.append((f"{len(rest)} others of {name}", rest))
    return found + ([(f"{len(small)} others", [place for _, (place,) in small])] if small else [])


def plot_mixture(mixture: Mixture) -> Picture:
    """Ratios, of a begun run those of the rest, with intervals and caps, sums in grey, and the gain over each rival."""
    drawn, column = _bars_of(mixture), "rest" if mixture.read.any() else "p"
    names, values = [name for name, _ in drawn], np.array([mixture.rest[places].sum() for _, places in drawn])
    ends = [mixture.rest_of(one) for one in (mixture.p_low, mixture.p_high, mixture.caps)]
    alone = {row: places[0] for row, (_, places) in enumerate(drawn) if len(places) == 1}
    spread = np.full((2, len(drawn)), np.nan)
    spread[:, list(alone)] = ends[0][list(alone.values())], ends[1][list(alone.values())]
    low, high = spread
    sums = [row for row in range(len(drawn)) if row not in alone]
    caps = {row: ends[2][place] for row, place in alone.items() if ends[2][place] < 1}
    rivals = [one for one in mixture.baselines if np.isfinite(one.gain)]

    def draw(figure: Figure) -> None:
        first, second = figure.subplots(1, 2, width_ratios=(3, 2)) if rivals else (figure.subplots(), None)
        bars(first, names, values, low, high, len(rivals), sums)
        for row, cap in caps.items():
            first.plot([cap] * 2, [row - 0.4, row + 0.4], color="#c2410c", linewidth=1.4)
        first.set_xlabel("ratio" if column == "p" else "ratio of what is still to be read")
        if second is not None:
            gain, worst, best = np.array([(one.gain, one.gain_low, one.gain_high) for one in rivals]).T
            bars(second, [f"over {one.name[:MOST_LETTERS]}" for one in rivals], gain, worst, best, len(names))
            second.axvline(0, color=INK, linewidth=0.6)
            second.set_xlabel(f"gain, {mixture.objective_unit}")

    limits = " and caps (red ticks)" if caps else ""
    limits += " (grey bars are sums)" if sums else ""
    right = "; on the right what it gains over other mixtures" if rivals else ""
    at = f"N = {format_size(mixture.N)}, D = {format_size(mixture.D)}, with {mixture.level:.0%} intervals"
    caption = f"The {'mixture' if column == 'p' else 'rest of a run'} for {at}{limits}{right}."
    table = {"source": names, column: values.tolist(), "low": low.tolist(), "high": high.tolist()}
    return picture("mixture", 1.1 + 0.22 * max(len(names), len(rivals)), draw, caption, table)


def plot_frontier(frontier: Frontier) -> Picture:
    """The trade-off between two sets of targets, and the mixtures along it."""
    first, second = (np.array([getattr(one, side) for one in frontier.entries]) for side in ("first", "second"))
    p = np.stack([frontier.rest_of(one.p) for one in frontier.entries])

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        left.plot(first, second, "o-", color=ACCENT)
        left.set_xlabel(_side(frontier.first_targets, frontier.unit))
        left.set_ylabel(_side(frontier.second_targets, frontier.unit))
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
    table |= frontier.ratios_of(np.stack([one.p for one in frontier.entries]))
    return picture("frontier", 3.0, draw, caption, table)


def _side(targets: Sequence[str], unit: str) -> str:
    """What an axis says of the targets of one side."""
    some = ", ".join(targets[:3])
    return f"mean loss of {some}{f' and {len(targets) - 3} more' if len(targets) > 3 else ''}, {unit}"


def plot_design(design: Design) -> Picture:
    """Planned mixtures as stacked bars, in order, and what is expected to be left of the error after each."""

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
        right.set(xlabel="runs", ylabel="error left, %")

    caption = (
        f"{len(design)} mixtures to train after {design.trained}, the most useful first, and what is left of the error."
    )
    table = {"run": list(design.runs), "left": design.error[1:].tolist()}
    table |= {f"p_{name}": design.p[:, i].tolist() for i, name in enumerate(design.sources)}
    return picture("design", 3.0, draw, caption, table)


DRAWN: Mapping[str, tuple[str, Callable[..., Picture]]] = {
    "agreement": ("transfer", plot_agreement), "compare": ("comparison", plot_compare),
    "design": ("design", plot_design), "transfer": ("transfer", plot_transfer),
    "downstream": ("downstream", plot_downstream), "fit": ("fit", plot_fit), "frontier": ("frontier", plot_frontier),
    "learning-curve": ("learning-curve", plot_learning_curve), "mixture": ("mixture", plot_mixture),
}  # fmt: skip
"""What `shapleymix plot` draws: the kind of the record that it takes, and who draws it."""


def draw(figure: str, *records: Any, **keywords: Any) -> Picture:
    """A figure by its name, of the records that it takes.

    Raises
    ------
    UsageError
        If the first record is of another kind, or the figure takes other things.
    """
    kind, function = DRAWN[figure]
    for one in records if kind == "transfer" else records[:1]:
        if (given := getattr(type(one), "kind", None)) != kind:
            hint = "a figure takes what the command of its name wrote, `mixture` and `frontier` what optimize wrote"
            raise UsageError(f"figure {figure!r} is of a {kind}, not of {given or described(one)}", hint=hint)
    try:
        signature(function).bind(*records, **keywords)
    except TypeError as error:
        takes = ", ".join(signature(function).parameters)
        raise UsageError(f"figure {figure!r} takes other things ({error})", hint=f"it takes {takes}") from error
    return function(*records, **keywords)


def plot(result: Any, *others: Any, **keywords: Any) -> Picture:
    """A figure of a result: a fit (with its log), a mixture, a matrix (or two), a comparison, a frontier, ...

    Raises
    ------
    UsageError
        If nothing draws such a result.
    """
    kind = getattr(type(result), "kind", None)
    found = next((name for name, (wanted, _) in DRAWN.items() if kind == wanted and name != "agreement"), None)
    if found is None:
        hint = f"figures are drawn of {', '.join(sorted({wanted for wanted, _ in DRAWN.values()}))}"
        raise UsageError(f"{described(result)} has no figure", hint=hint)
    return draw(found, result, *others, **keywords)
