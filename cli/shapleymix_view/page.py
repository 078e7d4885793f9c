"""One self-contained page about a fit and a mixture, on which readers move the question themselves.

The page's policy allows the one script and the one style sheet that it holds, by their hashes, and nothing else: it
asks no network for anything, and a name that would be markup could do nothing even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from shapleymix import Comparison, Downstream, Fit, Mixture, TransferMatrix
from shapleymix.errors import ShapleyMixError, ShapleyMixWarning, UsageError
from shapleymix.files import Json, atomic_write
from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.fitting.prediction import MOST_WARNINGS, Prediction
from shapleymix.mixing.answers import ROUNDING, Rival, format_times
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Unit, unit_of
from shapleymix.tables.mixtures import epochs_of
from shapleymix.tables.runs import RunLog
from shapleymix.tables.words import format_range, format_size
from shapleymix_view.markup import (
    MOST_ROWS,
    Child,
    Markup,
    control,
    curve,
    embedded,
    folded,
    gain_row,
    gained,
    named,
    node,
    percent,
    rows,
    scale_of,
    scatter,
    section,
    signed,
    strip,
    table,
    written,
)
from shapleymix_view.page_data import document, first_rival, opened, rivals_of, rows_of, say_far, scan, summed, unmoved

SCRIPTS = ("solver.js", "page.js")
MOST_PANELS, SHADES, MOST_CELLS = 24, 4, 24
MOST_TARGETS, SHOWN = 24, 10
"""Of more targets than these, only so many that gain and that lose the most are in sight."""


@dataclass(frozen=True)
class Page:
    """A page about a fit.

    Attributes
    ----------
    html : str
        The whole file.
    notices : tuple of str
        What the page cannot show or move, and why.
    """

    html: str
    notices: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.html.encode())

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page.

        Raises
        ------
        UsageError
            If the file exists and `force` is not set, or it cannot be written.
        """
        atomic_write(path, self.html, force=force)

    def __repr__(self) -> str:
        return "\n".join([f"Page of {self.size / 1000:.0f} kB", *(f"  note: {one}" for one in self.notices)])


def report(
    fit: Fit | str | os.PathLike[str],
    mixture: Mixture | str | os.PathLike[str] | None = None,
    *,
    comparison: Comparison | str | os.PathLike[str] | None = None,
    transfer: TransferMatrix | None = None,
    downstream: Downstream | str | os.PathLike[str] | None = None,
    log: Logs | None = None,
    name: str = "fit.json",
    provenance: Mapping[str, Json] | None = None,
) -> Page:
    """One page about a fit and a mixture, on which readers move weights, caps, N and D, and see the optimum move.

    Parameters
    ----------
    fit : Fit or path
        The fit, or the file in which it was saved.
    mixture : Mixture or path, optional
        What `optimize` found under it, at which the page begins; without one there is nothing to move.
    comparison : Comparison or path, optional
        Laws on the same held-out runs.
    transfer : TransferMatrix, optional
        Shapley values, to be shown.
    downstream : Downstream or path, optional
        Calibrated tasks, to be shown.
    log : Logs, optional
        The runs, to be shown against what the law predicts of them.
    name : str
        What the command line that the page shows calls the fit.
    provenance : mapping, optional
        How the page itself was made.

    Raises
    ------
    UsageError
        If the mixture is of other sources than the fit. DataError if the log has other languages.
    """
    known = Fit.taken(fit)
    best = None if mixture is None else Mixture.taken(mixture)
    if best is not None and best.sources != known.sources:
        raise UsageError("the mixture has other sources than the fit: give the one that it was found under")
    if transfer is not None and not {*transfer.sources} & {*known.sources}:
        raise UsageError("the transfer matrix has other sources than the fit")
    compared = None if comparison is None else Comparison.taken(comparison)
    data, reason = _movable(known, best, name)
    symbols = table({title: list(column) for title, column in known.columns().items()})
    parts = [
        *([] if best is None else [_words(best), *_gains(best)]),
        section("question", "Move the question" if data else "N and D", *_panel(known, best, data, reason)),
        *([] if best is None else _details(best)),
        _law(known, compared),
        *_transfers(known, best, transfer),
        *([] if downstream is None else [_tasks(Downstream.taken(downstream))]),
        *([] if log is None else [_runs(known, one_log(log), _unit(known, best))]),
        _data(known),
        section("symbols", "Fitted symbols", folded("Every symbol with its interval", symbols)),
        _origins(known, best, provenance),
    ]
    return Page(_whole(known, best, parts, data), (reason,) if reason else ())


def _movable(fit: Fit, mixture: Mixture | None, name: str) -> tuple[Json, str]:
    """What the script is given, or why there is nothing to move."""
    if mixture is None:
        return None, "Nothing can be moved here, because the page was made without a mixture."
    beyond = unmoved(fit, mixture)
    if beyond:
        return None, f"The sliders move caps, weights, N and D. What they do not know in this question: {beyond}."
    try:
        return document(fit, mixture, name), ""
    except ShapleyMixError as error:
        return None, f"Nothing can be moved here, because the question cannot be asked again: {error.message}"


def _answer(best: Mixture) -> Markup:
    """What one wants to know first: the objective, the gain, how far beyond the runs; the mixture and its proof."""
    ends = np.array([best.objective_low, best.objective_high])
    scored, kind, unit = best.measure == "error", best.objective_kind.capitalize(), best.objective_unit
    value, interval = (1 - best.objective, 1 - ends[::-1]) if scored else (best.objective, ends)
    label = f"{kind} {'score' if scored else f'loss, {unit}'}"
    stats = {"objective": (label, f"{value:.4f}", written(tuple(interval)))}
    if rivals := rivals_of(best):
        one = rivals[first_rival(best)]
        stats["gain"] = (f"Gain over {one.name}", signed(one.gain), gained(one.gain_low, one.gain_high))
    stats["far"] = (f"N {format_size(best.N)}, D {format_size(best.D)}", *say_far(best.beyond))
    shown = [
        node("div", node("span", label, title=label), node("strong", big), node("small", small), id=name, class_="stat")
        for name, (label, big, small) in stats.items()
    ]
    most = "rounding" if best.relative_gap < ROUNDING else f"{best.gap:.1e} {unit}"
    proof = f"By the law alone no mixture within the bounds is better by more than {most}."
    proof = proof if np.isfinite(best.gap) else "This is the best of a search, without a proof."
    reason, beyond = (node("ul", id=one, class_="warnings") for one in ("reason", "beyond"))
    stuck, note = node("div", shown, class_="stats", role="status"), node("p", proof, id="proof", class_="note")
    short = "short" if max(map(len, (*best.sources, *best.families))) < 9 else None
    return node("section", stuck, reason, *_ratios(best), note, beyond, id="answer", class_=short, aria_label="Answer")


def _ratios(best: Mixture) -> Iterator[Markup]:
    """The ratios by size, of a begun run those of the rest: parents fold their sources, and of many rows the small."""
    p, (low, high, caps) = best.rest, (best.rest_of(one) for one in (best.p_low, best.p_high, best.caps))
    order = sorted(rows_of(best.families, best.sources), key=lambda row: -p[row[1]].sum())
    shown, small = (order, []) if len(order) <= MOST_ROWS + 2 else (order[:MOST_ROWS], order[MOST_ROWS:])
    ends = 0.0, float(max([*np.nan_to_num(high), *[p[places].sum() for _, places in shown]]))

    def item(name: str, places: list[int], inside: list[tuple[str, list[int]]], **more: str) -> Markup:
        ratio = float(p[places].sum())
        spans = [float(one[places[0]]) if len(places) == 1 else np.nan for one in (low, high, caps)]
        epochs = epochs_of(best.p[places].sum()[None], best.available[places].sum()[None], best.D)[0]
        bar = node("span") if more else strip(ratio, spans[0], spans[1], ends, spans[2])
        count = node("small", "" if np.isnan(epochs) else f"{epochs:.2f}", class_="epochs")
        parts = named(name), bar, node("b", f"{ratio:.4f}"), count
        head = node("summary" if inside else "div", parts, class_="row")
        inner = node("details", head, node("ol", [item(*one, own(one)) for one in inside])) if inside else head
        return node("li", inner, data_at=",".join(map(str, places)), **more)

    def own(row: tuple[str, list[int]]) -> list[tuple[str, list[int]]]:
        places = sorted(row[1], key=lambda place: -p[place])
        return [(best.sources[place], [place]) for place in places] if len(places) > 1 else []

    items = [item(*one, own(one)) for one in shown]
    if small:
        left = [place for _, places in small for place in places]
        items.append(item(f"{len(small)} others", left, small, id="others"))
    noun, known = "rest" if best.read.any() else "ratio", np.isfinite(best.available).any()
    titles = ["source", "", noun, "epochs" if known else ""]
    yield node("div", [node("span", one) for one in titles], class_="row head")
    yield rows(items, ends, id="ratios")


def _words(best: Mixture) -> Markup:
    """The answer in sentences, and the warnings after it."""
    warned = node("ul", [node("li", one) for one in best.warnings[:MOST_WARNINGS]], class_="warnings")
    notes = folded("Notes", node("ul", [node("li", one) for one in best.notices])) if best.notices else None
    text = f"{best.verdict} Intervals hold {best.level:.0%} for one trained run."
    return section("words", "The answer", node("p", best.conclusion, class_="lead"), node("p", text), warned, notes)


def _panel(fit: Fit, best: Mixture | None, data: Any, reason: str) -> Iterator[Markup]:
    """Loss along N and D, each above its slider, and the other sliders, which a script shows; or why there are none."""
    text = (
        "The page solves for the best mixture again, and proves it; its address then holds the question. Intervals are "
        "of the start alone: the command gives those of any question."
    )
    yield node("p", reason or text, class_="note")
    if best is None:
        return
    try:
        curves = scan(fit, best)
    except ShapleyMixError:
        curves = {}
    shown: list[Child] = []
    known = {"N": ("N, parameters", best.N, fit.N_range), "D": ("D, tokens", best.D, fit.D_range)}
    for name, points in curves.items():
        (noun, now, fitted), steps = known[name], points[0].tolist()
        text, place = f"Loss of this mixture against {noun}, {best.objective_unit}", steps.index(now)
        slider = control(noun, name.lower(), None, place, len(steps) - 1, "1") if data else None
        image = curve(points, place, fitted, text) if np.isfinite(points[1]).sum() > 1 else None
        shown.append(node("div", image, slider, class_="budget", id=f"along-{name.lower()}"))
    yield node("div", shown, class_="budgets")
    text = f"What was fitted: N {format_range(fit.N_range)}, D {format_range(fit.D_range)}."
    yield node("p", node("i", class_="key"), text, class_="note")
    if data:
        yield node("div", *_sliders(best, data), id="panel", hidden=True)
        yield node("noscript", node("p", "The sliders need scripts; everything else is here without."))


def _sliders(best: Mixture, data: Any) -> Iterator[Markup]:
    """The controls of weights and caps, of many the first and the others folded, and what to do with the answer."""
    start = data["start"]
    by_weight = sorted(range(len(best.targets)), key=lambda j: -start["weights"][j])
    by_ratio = [i for i in np.argsort(-best.p, kind="stable").tolist() if not data["closed"][i]]
    most = 2 * max(start["weights"])
    groups = ("weight", "target", best.targets, by_weight, most), ("cap", "source", best.sources, by_ratio, 1.0)
    for noun, of, names, order, top in groups:
        key = f"{noun}s"
        each = [control(f"{noun} of {names[i]}", key, i, start[key][i], top, "any", names[i]) for i in order]
        more = folded(f"{len(each) - MOST_ROWS} more", *each[MOST_ROWS:]) if len(each) > MOST_ROWS else None
        yield node("fieldset", node("legend", f"{key.capitalize()} of {of}s"), *each[:MOST_ROWS], more)
    buttons = {"copy": "Copy the command", "copy-json": "Copy the answer as JSON", "reset": "Reset"}
    command = node("pre", id="command", tabindex="0", aria_label="The same question as a command")
    each = [node("button", text, type="button", id=name) for name, text in buttons.items()]
    yield node("div", command, *each, node("span", id="said", role="status"), class_="after")


def _gains(best: Mixture) -> Iterator[Markup]:
    """What is gained over each other mixture, and against that which is chosen, what each target gains and loses."""
    if not (rivals := rivals_of(best)):
        return
    chosen, ends = first_rival(best), scale_of([(one.gain_low, one.gain, one.gain_high) for one in rivals])
    each, panels = [], []
    for place, one in enumerate(rivals):
        here = f"over-{place}"
        pick = node("input", type="radio", name="rival", id=here, data_at=str(place), checked=place == chosen)
        name = node("label", pick, named(one.name + " *" * (not one.within_bounds)), for_=here)
        more = written(one.probability, "P(better)"), format_times(one.times)
        each.append(node("li", gain_row(name, one.gain, one.gain_low, one.gain_high, ends, *more), class_="rival"))
        title = node("h3", f"By target, against {one.name}: {best.unit} saved (right) or given up (left)")
        panels.append(node("div", title, _by_target(best, one), id=f"against-{place}", class_="against"))
    titles = ["mixture", "", "gain", f"{best.level:.0%} interval", "P(better)", "tokens"]
    head = node("div", [node("span", one) for one in titles], class_="row head gains")
    text = (
        f"In {best.objective_unit}. Tokens: how many times as many the other needs to be as good. "
        f"{'' if all(one.within_bounds for one in rivals) else '*: outside the bounds. '}Choose one to compare targets."
    )
    yield section("gains", "Gain over other mixtures", node("p", text, class_="note"), head, rows(each, ends), *panels)


def _by_target(best: Mixture, rival: Rival) -> Markup:
    """What each target gains, the largest first; of many those in the middle are folded."""
    ends = scale_of([rival.gains_low, rival.gains, rival.gains_high])
    each = zip(best.targets, rival.gains.tolist(), rival.gains_low.tolist(), rival.gains_high.tolist(), strict=True)
    found = [
        node("li", gain_row(named(name), gain, low, high, ends), data_at=str(j))
        for j, (name, gain, low, high) in enumerate(each)
    ]
    found = [found[j] for j in np.argsort(-np.nan_to_num(rival.gains), kind="stable").tolist()]
    if len(found) > MOST_TARGETS:
        middle = folded(f"{len(found) - 2 * SHOWN} targets between", node("ol", found[SHOWN:-SHOWN]))
        found = [*found[:SHOWN], node("li", middle), *found[-SHOWN:]]
    return rows(found, ends)


def _read(items: Iterable[object], fields: Mapping[str, str]) -> dict[str, Sequence[object]]:
    """Columns of records: a field each, or the two of an interval."""

    def cell(item: object, names: list[str]) -> object:
        found = tuple(getattr(item, name) for name in names)
        return found if len(names) > 1 else found[0]

    known = list(items)
    return {title: [cell(one, names.split()) for one in known] for title, names in fields.items()}


def _details(best: Mixture) -> Iterator[Markup]:
    """Losses, what bounds cost, other data, and each ratio with its bounds, in tables."""
    noun, unit = "error rate" if best.measure == "error" else f"loss, {best.unit}", best.objective_unit
    spans = list(zip(best.losses_low.tolist(), best.losses_high.tolist(), strict=True))
    losses = {"target": best.targets, noun: best.losses.tolist(), "interval": spans, "weight": best.weights.tolist()}
    yield section("losses", f"Predicted {noun}", table(losses))
    bounds: dict[str, Sequence[object]] = {"bound": [f"{one.side} of {one.source}" for one in best.binding]}
    bounds |= _read(best.binding, {"at": "bound", "saves": "saves", "interval": "saves_low saves_high"})
    bounds["relaxed by"] = [
        f"{format_size(one.change)} tokens" if one.unit == "tokens" else f"{one.change:.4g}" for one in best.binding
    ]
    fields = {"change": "name", "gain": "gain", "interval": "gain_low gain_high", "P(better)": "probability"}
    other = table(_read(best.what_if, fields), f"What the optimum with other data would save, {unit}")
    relaxed = table(bounds, f"What relaxing the bounds that bind would save, {unit}") if best.binding else None
    each = folded("Each ratio with its interval, bounds and epochs", table(_columns(best)))
    yield section("optimum", "Bounds and data", relaxed, other if best.what_if else None, each)


def _columns(best: Mixture) -> dict[str, Sequence[object]]:
    """What is known of each source, the largest first."""
    order, begun = np.argsort(-best.rest, kind="stable"), bool(best.read.any())
    low, high = (best.rest_of(one)[order].tolist() for one in (best.p_low, best.p_high))
    whole = {"read": best.read[order].tolist(), "whole run": best.p[order].tolist()} if begun else {}
    columns: dict[str, Sequence[object]] = {
        "source": [best.sources[i] for i in order.tolist()], "rest" if begun else "ratio": best.rest[order].tolist(),
        "interval": list(zip(low, high, strict=True)), **whole,
        "floor": [one or None for one in best.floors[order].tolist()],
        "cap": [one if one < 1 else None for one in best.caps[order].tolist()],
    }  # fmt: skip
    if np.isfinite(best.p_bytes).all():
        columns["ratio of bytes"] = best.p_bytes[order].tolist()
    if np.isfinite(best.available).any():
        columns |= {"available": best.available[order].tolist(), "epochs": best.epochs[order].tolist()}
    return columns


def _law(fit: Fit, compared: Comparison | None) -> Markup:
    """The law, and what it errs by on runs that it has not seen."""
    law, scores = type(fit.law), fit.held_out or fit.fitted_scores
    equation = " ".join(inspect.cleandoc(law.__doc__ or "").split("\n\n")[0].split()).replace("`", "")
    found = scores.columns()
    fields = {"target": "target", "PE": "PE", "R2": "R2", "losses": "rows"}
    errors = {title: list(found[key]) for title, key in fields.items()}
    where = "held-out runs" if fit.held_out else "the very runs that were fitted, as none were held out"
    laws: Child = None
    if compared is not None:
        order = sorted(compared.entries, key=lambda one: one.scores.mean["PE"] if one.scores else np.inf)
        rows = _read(order, {"law": "law", "standard error": "standard_error", "parameters": "parameters"})
        rows |= {"PE": [one.scores.mean["PE"] if one.scores else None for one in order]}
        rows |= {"note": [one.error or "" for one in order]}
        laws = table(rows, f"Laws on the same {compared.rows} rows ({compared.design})")
    text = node("p", node("strong", law.name), f": {law.assumption}." if law.assumption else ".")
    errors_table = table(errors, f"Mean absolute error over mean loss (PE) on {where}")
    return section("law", "The law and its errors", text, node("p", equation, class_="equation"), errors_table, laws)


def _transfers(fit: Fit, best: Mixture | None, matrix: TransferMatrix | None) -> Iterator[Markup]:
    """What the law takes each source to do for each target, beside a matrix that was given, folded by parents."""
    shown: list[Child] = []
    pieces = None if best is None or "mixture" not in fit.law.needs else fit.law.pieces(best.N, best.D)
    if best is not None and pieces is not None:
        counts = pieces.phi if pieces.form == "power" else -pieces.phi
        share = counts / np.maximum(np.abs(counts).max(axis=0), 1e-300)
        places = np.sort(np.argsort(-best.p, kind="stable")[:MOST_CELLS])
        cut = max(len(fit.sources), len(fit.targets)) > MOST_CELLS
        few = f" (at most {MOST_CELLS}: sources of the largest ratios, the first targets)" if cut else ""
        text = f"How much a source (row) counts for a target (column) in law {fit.law.name}; its best source has 1{few}"
        names = [fit.sources[i] for i in places.tolist()]
        shown.append(_heat(share[places, :MOST_CELLS], names, fit.targets[:MOST_CELLS], text, 1.0))
    if matrix is not None:
        sums = summed(matrix, fit.parents)
        shown += [_matrix(matrix)] if sums is None else [_matrix(sums), folded("Every source", _matrix(matrix))]
    if shown:
        yield section("transfer", "Transfer between languages", node("div", shown, class_="heats"))


def _matrix(matrix: TransferMatrix) -> Markup:
    """A transfer matrix; colours end at the largest value off the diagonal."""
    raw = matrix.sv is not None
    values = np.asarray(matrix.sv if raw else matrix.nsv)
    size = np.abs(values)
    top = float(np.nanmax(np.where(matrix.off_diagonal, size, 0.0), initial=0.0)) or float(np.nanmax(size))
    unit = "nats of loss drop" if raw else "normalised"
    text = f"What each source (row) does for each target (column): Shapley values, {unit}"
    text += ", from text alone" if matrix.provenance.get("from") == "text" else ""
    return _heat(values, matrix.sources, matrix.targets, text, top)


def _heat(values: FloatArray, sources: Sequence[str], targets: Sequence[str], caption: str, top: float) -> Markup:
    """A matrix as a table, coloured by the sign and size of its values."""
    colours = {name: [_shade(one, top) for one in values[:, j].tolist()] for j, name in enumerate(targets)}
    cells = {name: [f"{one:.2f}" for one in values[:, j].tolist()] for j, name in enumerate(targets)}
    return node("div", table({"source": sources, **cells}, caption, colours, fold=False), class_="heat")


def _shade(value: float, top: float) -> str:
    """The class of a cell: `up` or `down`, and how far of `top`, in steps."""
    if not np.isfinite(value) or value == 0:
        return ""
    return f"{'up' if value > 0 else 'down'}{max(1, min(SHADES, int(np.ceil(SHADES * abs(value) / top))))}"


def _tasks(tasks: Downstream) -> Markup:
    found = tasks.calibrations
    columns = _read(found, {"task": "label", "score by loss": "formula", "held-out R2": "held_out_R2"})
    columns["runs"] = [len(one.losses) for one in found]
    text = "What the loss of its language tells of each task's score"
    return section("tasks", "Scores on tasks", table(columns, text))


def _unit(fit: Fit, best: Mixture | None) -> Unit:
    """The unit of the mixture's losses, in which runs are shown, too."""
    asked = {} if best is None or best.measure == "error" else opened(best)
    return unit_of(asked.get("unit") or "nats", asked.get("languages"), fit.targets, fit.parents)


def _runs(fit: Fit, log: RunLog, unit: Unit) -> Markup:
    """Measured losses against predictions."""
    rows = log.align(fit.sources, fit.targets)
    rows = rows.select(rows.trained)
    measured, said = rows.loss * unit.per_nat, _predicted(fit, rows).losses * unit.per_nat
    panels: list[Markup] = []
    for j, name in enumerate(fit.targets[:MOST_PANELS]):
        there = ~np.isnan(measured[:, j]) & ~np.isnan(said[:, j])
        if there.any():
            panels.append(scatter(name, said[there, j], measured[there, j], unit.name))
    text = f"Measured losses ({unit.name}) of {len(rows.runs)} rows (upwards) against predictions (to the right)."
    return section("runs", "Runs against predictions", node("p", text), node("div", panels, class_="panels"))


def _predicted(fit: Fit, rows: RunLog) -> Prediction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        return fit.predict(rows.p, rows.N, rows.D, unique=rows.unique)


def _data(fit: Fit) -> Markup:
    """What the used losses cover."""
    low, high = fit.coverage.whole_p_range.T
    spans, mixtures = list(zip(low.tolist(), high.tolist(), strict=True)), fit.coverage.mixtures.max(axis=0).tolist()
    columns = {"source": fit.sources, "ratios of the runs": spans, "mixtures with it": mixtures}
    text = (
        f"{fit.rows:,} rows, N {format_range(fit.N_range)} parameters, D {format_range(fit.D_range)} tokens. A mixture "
        "beyond these ratios, N or D is an extrapolation."
    )
    notes = folded("Notes of the fit", node("ul", [node("li", one) for one in fit.notices])) if fit.notices else None
    return section("data", "What the data cover", node("p", text), table(columns), notes)


def _origins(fit: Fit, best: Mixture | None, page: Mapping[str, Json] | None) -> Markup:
    """From what the fit, the mixture and the page were made."""
    known: dict[str, Mapping[str, Json]] = {"The fit": fit.provenance, **({"This page": page} if page else {})}
    if best is not None:
        known["The question of the mixture"] = best.asked
    texts = [folded(title, node("pre", json.dumps(one, indent=1, ensure_ascii=False))) for title, one in known.items()]
    return section("origins", "Where the numbers come from", *texts)


def _whole(fit: Fit, best: Mixture | None, parts: Sequence[Markup], data: Json) -> str:
    """The file; its data stand where no browser runs them."""
    script = "\n".join(map(_web, SCRIPTS)) if data is not None else ""
    rivals = range(0 if best is None else len(rivals_of(best)))
    chosen = "body:has(#over-{0}:checked) #against-{0} {{ display: block; }}\n"
    style = _web("style.css") + "".join(map(chosen.format, rivals))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    metas = [
        node("meta", charset="utf-8"), node("meta", http_equiv="Content-Security-Policy", content=policy),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
    ]  # fmt: skip
    title = node("title", f"ShapleyMix: law {fit.law.name}, {len(fit.sources)} sources")
    head = node("head", metas, title, node("style", Markup(style)))
    header = node("header", node("h1", "ShapleyMix report"), node("p", _summary(fit)))
    known = node("script", embedded(data), type="application/json", id="page-data")
    scripts = [] if data is None else [known, node("script", Markup(script))]
    skip = node("a", "To the content", href="#main", class_="skip")
    answer = [] if best is None else [_answer(best)]
    body = node("body", skip, header, node("main", answer, node("div", parts, class_="rest"), id="main"), scripts)
    return f"<!doctype html>\n{node('html', head, body, lang='en')}\n"


def _summary(fit: Fit) -> str:
    """What this is about."""
    error = f", error {percent(fit.held_out.mean['PE'])} on held-out mixtures" if fit.held_out else ""
    count = f"{fit.rows:,} rows of {len(fit.sources)} sources and {len(fit.targets)} targets"
    return f"Law {fit.law.name}, fitted to {count}{error}."


def _web(name: str) -> str:
    return (files("shapleymix_view") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names a script or a style sheet."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'" if text else "'none'"
