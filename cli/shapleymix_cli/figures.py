"""`plot` and `report`: results as figures, and a fit as one page."""

from __future__ import annotations

from typing import Any

import click
from shapleymix_view.figures import DRAWN, draw

import shapleymix as sm
from shapleymix.errors import Location, SolveError, UsageError
from shapleymix.records import Record
from shapleymix_cli.command_factory import argument, command, option, output
from shapleymix_cli.console import Output
from shapleymix_cli.fits import fit_argument, law_file, like
from shapleymix_cli.inputs import load, load_fit, read_log, read_matrix

AGAINST, UNITS = click.Choice(["theta", "prediction"]), click.Choice(["nats", "bpb"])


@command(
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix plot transfer sv.csv example/irds_raw.csv --calibrate -o both.svg",
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix plot fit fit.json example/runs.csv -o fit.png",
    "shapleymix optimize fit.json -N 97600 -D 2M -o mixture.json",
    "shapleymix plot mixture mixture.json -o mixture.png",
)
@click.argument("figure", metavar="FIGURE", type=click.Choice([*DRAWN]))
@argument("files", "FILE...")
@option("--calibrate", "For matrices: scale each column to the measured loss drop, if the table has it.")
@option("--against KIND", "For a fit: the horizontal axis, theta or prediction.", type=AGAINST)
@option("--unit UNIT", "For a fit: nats, or bpb for bits a byte.", type=UNITS)
@option("--languages TABLE", "For --unit bpb: bytes per token.")
@law_file
@output("the figure (.png, .svg or .pdf)")
def plot(out: Output, figure: str, files: list[str], calibrate: bool, law_file: str | None, **how: Any) -> None:
    """Draw a result. FIGURE is one of transfer, agreement, fit, compare, learning-curve, mixture, frontier, design and
    downstream; each takes the files that a command of that name, or `optimize`, wrote.

    With --json the numbers that are drawn are printed. Needs matplotlib: pip install 'matplotlib>=3.10.7'.
    """
    if out.path is None and not out.as_json:
        raise UsageError("nothing says where to draw", hint="give -o FIGURE.png, or --json for the numbers alone")
    if figure in ("transfer", "agreement"):
        records: list[Any] = [read_matrix(out, path) for path in files]
        if calibrate:
            records = [one if one.in_nats else one.calibrate() for one in records]
    elif figure == "fit":
        records = [load_fit(out, files[0], law_file), *([read_log(out, files[1:])] if files[1:] else [])]
    else:
        records = [load(out, Record, path) for path in files]
    found = draw(figure, *records, **{name: one for name, one in how.items() if one is not None})
    if out.path is not None:
        found.save(out.path, force=out.force)
        out.note([f"wrote {out.path}"])
    document = {"kind": "figure", "figure": found.name, "caption": found.caption, "numbers": found.columns()}
    out.emit(document, lambda: [found.caption])


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv --caps ja=0.2 -o capped.json",
    "shapleymix report fit.json --mixture capped.json --log example/runs.csv -o report.html",
)
@fit_argument
@option("--mixture MIX", "The mixture of `optimize -o`, with which the page begins.")
@option("--log LOG", "The run log, shown beside the law.", multiple=True)
@option("--comparison FILE", "Laws, as `compare -o` wrote them.")
@option("--downstream FILE", "Tasks, as `downstream -o` wrote them.")
@option("--transfer TABLE", "The transfer matrix, shown on the page.")
@law_file
@like
@output("the page (.html)")
def report(out: Output, fit: sm.Fit, mixture: str | None, log: Any, **further: Any) -> None:
    """Write one self-contained page: the law and its errors, the optimum with its proof, the data.

    On it, sliders move weights, caps, N and D; the browser solves for the best mixture and proves it. Without
    --mixture the page begins at the optimum for the largest N and D that were fitted.
    """
    from shapleymix_view import report as page_of

    if out.path is None:
        raise UsageError("a page needs a name", hint="give -o report.html", location=Location(out.path))
    kinds = {"comparison": sm.Comparison, "downstream": sm.Downstream}
    further |= {name: load(out, kind, further[name]) for name, kind in kinds.items() if further[name] is not None}
    best = _optimum(fit) if mixture is None else load(out, sm.Mixture, mixture)
    name = click.get_current_context().params["fit"]
    made = page_of(fit, best, log=log or None, name=name, provenance=out.provenance(), **further)
    out.warn(made.notices)
    made.save(out.path, force=out.force)
    document = {"kind": "report", "file": out.path, "bytes": made.size, "notices": list(made.notices)}
    out.emit(document, lambda: [f"Wrote {out.path}: {made.size / 1000:.0f} kB, one file."])


def _optimum(fit: sm.Fit) -> sm.Mixture | None:
    """The optimum at the largest budget that was fitted; None for a law that has none that is proved."""
    try:
        return sm.optimize(fit, float(fit.N_range[1]), float(fit.D_range[1]))
    except SolveError:
        return None
