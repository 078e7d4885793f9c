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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from shapleymix import Comparison, Downstream, Fit, Mixture, TransferMatrix
from shapleymix.errors import ShapleyMixError, ShapleyMixWarning, UsageError
from shapleymix.files import Json, atomic_write
from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.fitting.prediction import MOST_WARNINGS, Prediction
from shapleymix.mixing.answers import ROUNDING
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Parents
from shapleymix.tables.mixtures import epochs_of
from shapleymix.tables.runs import RunLog
from shapleymix.tables.words import format_size
from shapleymix_view.markup import Child, Markup, bar, embedded, folded, node, percent, scatter, section, table
from shapleymix_view.page_data import document, rows_of, summed, unmoved

SCRIPTS = ("solver.js", "page.js")
MOST_PANELS, SHADES = 24, 4


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
        hint = "give the fit that the mixture was found under"
        raise UsageError("the mixture has other sources than the fit", hint=hint)
    compared = None if comparison is None else Comparison.taken(comparison)
    data, reason = _movable(known, best, name)
    parts = [
        section("question", "Move the question", *_panel(reason)),
        *([] if best is None else [_optimum(best)]),
        _law(known, compared),
        *([] if transfer is None else [_transfer(transfer, known.parents)]),
        *([] if downstream is None else [_tasks(Downstream.taken(downstream))]),
        *([] if log is None else [_runs(known, one_log(log))]),
        section(
            "symbols",
            "Fitted symbols",
            folded(
                "Every symbol with its interval",
                table({name: list(column) for name, column in known.columns().items()}),
            ),
        ),
        _data(known),
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


def _panel(reason: str) -> Iterator[Markup]:
    if reason:
        yield node("p", reason, class_="warnings")
        return
    yield node(
        "p",
        "Move weights, caps, N and D: the page solves for the best mixture again, and proves it. The interval is as "
        "wide as that of the mixture below at the same N and D; the command under the answer gives that of any other.",
    )
    yield node("div", id="panel")
    yield node("noscript", node("p", "The sliders need scripts; everything else is here without.", class_="warnings"))


def _optimum(best: Mixture) -> Markup:
    """The mixture with its proof, what bounds cost, and what it gains."""
    rows = rows_of(best.families, best.sources)
    children = {name: [(best.sources[i], [i]) for i in places] for name, places in rows if len(places) > 1}
    noun = "error rate" if best.measure == "error" else f"loss, {best.unit}"
    losses = {
        "target": best.targets,
        noun: best.losses.tolist(),
        "interval": list(zip(best.losses_low.tolist(), best.losses_high.tolist(), strict=True)),
        "weight": best.weights.tolist(),
    }
    most = "rounding" if best.relative_gap < ROUNDING else f"{best.gap:.1e} {best.objective_unit}"
    proof = f"No mixture within the bounds is better by more than {most}."
    proof = proof if np.isfinite(best.gap) else "This is the best of a search, without a proof."
    return section(
        "optimum",
        f"The {'rest of a run' if best.read.any() else 'mixture'} for N = {format_size(best.N)}, "
        f"D = {format_size(best.D)}",
        node("p", _objective(best), " ", proof),
        table(_ratios(best, rows), f"Ratios with {best.level:.0%} intervals of the optimum"),
        *(folded(f"{name}: its {len(own)} sources", table(_ratios(best, own))) for name, own in children.items()),
        table(losses, f"Predicted {noun}, with intervals for one run"),
        *_against(best),
        folded("Notes", node("ul", [node("li", one) for one in best.notices])) if best.notices else None,
    )


def _ratios(best: Mixture, rows: Sequence[tuple[str, list[int]]]) -> dict[str, Sequence[object]]:
    """The columns of rows, the largest first; what is known of single sources alone is left out of sums."""
    rows, begun = sorted(rows, key=lambda row: -best.rest[row[1]].sum()), bool(best.read.any())
    places, p = [one for _, one in rows], [float(best.rest[one].sum()) for _, one in rows]
    single = [one[0] if len(one) == 1 else None for one in places]
    low, high, most = (best.rest_of(one) for one in (best.p_low, best.p_high, best.caps))
    top = float(max(np.nanmax(np.append(high, 0)), *p))
    spans = [(np.nan, np.nan) if i is None else (float(low[i]), float(high[i])) for i in single]
    ticks = [1.0 if i is None else float(most[i]) for i in single]
    caps = [1.0 if i is None else float(best.caps[i]) for i in single]
    whole = [float(best.p[one].sum()) for one in places]
    columns: dict[str, Sequence[object]] = {
        "source": [name if len(one) == 1 else f"{name}, in all" for name, one in rows],
        "rest" if begun else "ratio": p,
        "interval": spans,
        "": [bar(*cells, top) for cells in zip(p, spans, ticks, strict=True)],
        **({"read": [best.read[one].sum() for one in places], "whole run": whole} if begun else {}),
        "floor": [None if i is None else float(best.floors[i]) or None for i in single],
        "cap": [cap if cap < 1 else None for cap in caps],
    }
    if np.isfinite(best.p_bytes).all():
        columns["ratio of bytes"] = [float(best.p_bytes[one].sum()) for one in places]
    if np.isfinite(best.available).any():
        available = np.array([best.available[one].sum() for one in places])
        columns |= {"available": available.tolist(), "epochs": epochs_of(np.array(whole), available, best.D).tolist()}
    return columns


def _objective(best: Mixture) -> str:
    """The objective and its interval, in words."""
    ends = np.array([best.objective_low, best.objective_high])
    low, high = (1 - ends)[::-1] if best.measure == "error" else ends
    interval = f", {low:.4f} to {high:.4f} with probability {best.level:.0%}" if np.isfinite(ends).all() else ""
    return f"{best.objective_text[0].upper()}{best.objective_text[1:]}{interval}."


def _against(best: Mixture) -> Iterator[Markup]:
    """What the mixture gains, what binding bounds cost, and what other data would bring."""
    unit = best.objective_unit
    if best.baselines:
        gains = {
            "rival": [one.name for one in best.baselines],
            "gain": [one.gain for one in best.baselines],
            "interval": [(one.gain_low, one.gain_high) for one in best.baselines],
            "P(better)": [one.probability for one in best.baselines],
            "within bounds": [one.within_bounds for one in best.baselines],
        }
        yield table(gains, f"Predicted improvement over other mixtures, {unit}")
    if best.binding:
        prices = {
            "bound": [f"{one.side} of {one.source}" for one in best.binding],
            "at": [one.bound for one in best.binding],
            "relaxed by": [
                f"{format_size(one.change)} tokens" if one.unit == "tokens" else f"{one.change:.4g}"
                for one in best.binding
            ],
            "saves": [one.saves for one in best.binding],
            "interval": [(one.saves_low, one.saves_high) for one in best.binding],
        }
        yield table(prices, f"What relaxing the bounds that bind would save, {unit}")
    if best.what_if:
        changes = {
            "change": [one.name for one in best.what_if],
            "gain": [one.gain for one in best.what_if],
            "interval": [(one.gain_low, one.gain_high) for one in best.what_if],
            "P(better)": [one.probability for one in best.what_if],
        }
        yield table(changes, f"What the optimum with other data would save, {unit}")


def _law(fit: Fit, compared: Comparison | None) -> Markup:
    """The law, and what it errs by on runs that it has not seen."""
    law, scores = type(fit.law), fit.held_out or fit.fitted_scores
    equation = " ".join(inspect.cleandoc(law.__doc__ or "").split("\n\n")[0].split()).replace("`", "")
    found = scores.columns()
    errors: dict[str, Sequence[object]] = {
        name: list(found[key]) for name, key in (("target", "target"), ("PE", "PE"), ("R2", "R2"), ("losses", "rows"))
    }
    told = "held-out runs" if fit.held_out else "the very runs that were fitted, as none were held out"
    laws: Child = None
    if compared is not None:
        order = sorted(compared.entries, key=lambda one: one.scores.mean["PE"] if one.scores else np.inf)
        rows = {
            "law": [one.law for one in order],
            "PE": [one.scores.mean["PE"] if one.scores else None for one in order],
            "standard error": [one.standard_error for one in order],
            "parameters": [one.parameters for one in order],
            "note": [one.error or "" for one in order],
        }
        laws = table(rows, f"Laws on the same {compared.rows} rows ({compared.design})")
    return section(
        "law",
        "The law and its errors",
        node("p", node("strong", law.name), f": {law.assumption}." if law.assumption else "."),
        node("p", equation, class_="equation"),
        table(errors, f"Mean absolute error over mean loss (PE) on {told}"),
        laws,
    )


def _transfer(matrix: TransferMatrix, parents: Parents) -> Markup:
    """The matrix as a table, and where it folds its parents before it."""
    sums = summed(matrix, parents)
    whole = [_heat(matrix)] if sums is None else [_heat(sums), folded("Every source", _heat(matrix))]
    return section("transfer", "Transfer between languages", *whole)


def _heat(matrix: TransferMatrix) -> Markup:
    """A matrix as a table, coloured by the sign and size of its values."""
    raw = matrix.sv is not None
    values = np.asarray(matrix.sv if raw else matrix.nsv)
    off, size = matrix.off_diagonal, np.abs(values)
    top = float(np.nanmax(np.where(off, size, 0.0), initial=0.0)) or float(np.nanmax(size))
    colours = {name: [_shade(one, top) for one in values[:, j].tolist()] for j, name in enumerate(matrix.targets)}
    columns = {"source": matrix.sources, **{name: values[:, j].tolist() for j, name in enumerate(matrix.targets)}}
    unit = "nats of loss drop" if raw else "normalised"
    caption = f"What each source (row) does for each target (column): Shapley values, {unit}"
    return table(columns, caption, colours)


def _shade(value: float, top: float) -> str:
    """The class of a cell: `up` or `down`, and how far of `top`, in steps."""
    if not np.isfinite(value) or value == 0:
        return ""
    return f"{'up' if value > 0 else 'down'}{max(1, min(SHADES, int(np.ceil(SHADES * abs(value) / top))))}"


def _tasks(tasks: Downstream) -> Markup:
    found = tasks.calibrations
    columns = {
        "task": [one.label for one in found],
        "score by loss": [one.formula for one in found],
        "held-out R2": [one.held_out_R2 for one in found],
        "runs": [len(one.losses) for one in found],
    }
    return section(
        "tasks", "Scores on tasks", table(columns, "What the loss of its language tells of each task's score")
    )


def _runs(fit: Fit, log: RunLog) -> Markup:
    """Measured losses against predictions."""
    rows = log.align(fit.sources, fit.targets)
    rows = rows.select(rows.trained)
    said = _predicted(fit, rows)
    panels: list[Markup] = []
    for j, name in enumerate(fit.targets[:MOST_PANELS]):
        there = ~np.isnan(rows.loss[:, j]) & ~np.isnan(said.losses[:, j])
        if there.any():
            panels.append(scatter(name, said.losses[there, j], rows.loss[there, j]))
    text = f"Measured losses of {len(rows.runs)} rows (upwards) against the law's predictions (to the right)."
    return section("runs", "Runs against predictions", node("p", text), node("div", panels, class_="panels"))


def _predicted(fit: Fit, rows: RunLog) -> Prediction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        return fit.predict(rows.p, rows.N, rows.D, unique=rows.unique)


def _data(fit: Fit) -> Markup:
    """What the used losses cover."""
    low, high = fit.coverage.whole_p_range.T
    mixtures = fit.coverage.mixtures.max(axis=0)
    columns = {
        "source": fit.sources,
        "ratios of the runs": list(zip(low.tolist(), high.tolist(), strict=True)),
        "mixtures with it": mixtures.tolist(),
    }
    text = (
        f"{fit.rows:,} rows, N from {_range(fit.N_range)} parameters, D from {_range(fit.D_range)} tokens. A mixture "
        "beyond these ratios, N or D is an extrapolation."
    )
    notes = folded("Notes of the fit", node("ul", [node("li", one) for one in fit.notices])) if fit.notices else None
    return section("data", "What the data cover", node("p", text), table(columns), notes)


def _range(ends: FloatArray) -> str:
    return f"{format_size(float(ends[0]))} to {format_size(float(ends[1]))}"


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
    style = _web("style.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", http_equiv="Content-Security-Policy", content=policy),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("title", f"ShapleyMix: law {fit.law.name}, {len(fit.sources)} sources"),
        node("style", Markup(style)),
    )
    header = node("header", node("h1", "ShapleyMix report"), *_summary(fit, best))
    scripts: list[Markup] = []
    if data is not None:
        scripts = [
            node("script", embedded(data), type="application/json", id="page-data"),
            node("script", Markup(script)),
        ]
    skip = node("a", "To the content", href="#main", class_="skip")
    body = node("body", skip, header, node("main", parts, id="main"), scripts)
    return f"<!doctype html>\n{node('html', head, body, lang='en')}\n"


def _summary(fit: Fit, best: Mixture | None) -> Iterator[Markup]:
    """What this is about, and the warnings that change what a reader would do."""
    error = f" It errs by {percent(fit.held_out.mean['PE'])} on held-out mixtures." if fit.held_out else ""
    text = (
        f"Law {fit.law.name}, fitted to {fit.rows:,} rows of {len(fit.sources)} sources and {len(fit.targets)} targets."
    )
    text += error
    if best is not None:
        text += f" N = {format_size(best.N)}, D = {format_size(best.D)}: {best.conclusion} {_objective(best)}"
        text += f" {best.verdict}" if best.verdict else ""
    yield node("p", text)
    found = fit.warnings if best is None else best.warnings
    if found:
        yield node("ul", [node("li", one) for one in found[:MOST_WARNINGS]], class_="warnings")


def _web(name: str) -> str:
    return (files("shapleymix_view") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names a script or a style sheet."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'" if text else "'none'"
