"""`shapleymix report`: one page about a fit, on which its readers move the question themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import click
from click.core import ParameterSource

from shapleymix.errors import Location, SolveError, UsageError
from shapleymix_cli import options, reading
from shapleymix_cli.bounding import bounds
from shapleymix_cli.console import Output
from shapleymix_cli.inputs import Kind
from shapleymix_cli.project import always, unless

ASKED = ("languages", "weights", "caps")
"""Entries of a project that ask for a mixture."""

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.fitting.fits import Fit
    from shapleymix.mixing.demands import DemandKeywords
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix.reports.pages import Report
    from shapleymix.tables.importing.reading import ReadingKeywords


@options.command(
    "shapleymix example",
    "shapleymix fit example/runs.csv --law learned-base --min-own-tokens 20k --bootstrap 20 --folds 3 -o fit.json",
    "shapleymix report fit.json --languages example/languages.csv --cap ja=0.2 -o first.html",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv --cap ja=0.2 -o mixture.json",
    "shapleymix report fit.json --mixture mixture.json --log example/runs.csv -o report.html",
    project={"log": always, "transfer": always, **dict.fromkeys(ASKED, unless("mixture"))},
)
@options.fit_file
@options.law_file
@options.like
@click.option("--mixture", metavar="MIX", help="What `optimize -o` found under this fit, at which the page begins.")
@click.option("-N", "N", type=options.SIZE, help="Without --mixture: the model size.  [default: the largest fitted]")
@click.option("-D", "D", type=options.SIZE, help="Without --mixture: the tokens.  [default: the most fitted]")
@options.weights
@options.languages
@bounds
@click.option("--log", "logs", metavar="LOG", multiple=True, help="The runs, to be shown beside the law; repeatable.")
@reading.reading
@click.option("--compare", metavar="COMPARISON", help="Laws on the same held-out runs, as `compare -o` wrote them.")
@click.option("--downstream", metavar="FILE", help="Calibrated tasks, as `downstream -o` wrote them: what each scores.")
@options.transfer
@options.kind
@options.output("the page, as .html")
def command(
    out: Output,
    fit_path: str,
    law_file: str | None,
    like: tuple[str, ...],
    mixture: str | None,
    N: float | None,
    D: float | None,
    logs: tuple[str, ...],
    how: ReadingKeywords,
    compare: str | None,
    downstream: str | None,
    transfer: str | None,
    kind: Kind,
    output: str | None,
    force: bool,
    **asked: Unpack[DemandKeywords],
) -> None:
    """One self-contained page: the data and what was wrong with it, the law and its errors, the optimum with its proof.

    On it, sliders move weights, caps, N and D; the browser solves for the best mixture and proves it, and shows the
    same question as a command line. Without --mixture the optimum is found here, as `optimize` does, within the bounds
    that are given; of those that no slider holds the page says so. It asks no network for anything, so that it can be
    mailed or archived.
    """
    from shapleymix.downstream.calibrations import Downstream
    from shapleymix.fitting.comparisons import Comparison
    from shapleymix.reports.pages import report
    from shapleymix_cli import inputs
    from shapleymix_cli.documents.writing import provenance

    name = _page_name(output)
    if not logs:
        reading.refuse_idle(how, "--log")
    fit = inputs.load_fit(out, fit_path, law_file, like)
    found, told = _solved(out, fit, (N, D), asked) if mixture is None else (_given(out, mixture, asked), [])
    made = report(
        fit,
        found,
        comparison=None if compare is None else inputs.load_record(out, Comparison, compare),
        transfer=inputs.read_matrix(out, transfer, kind),
        downstream=None if downstream is None else inputs.load_record(out, Downstream, downstream),
        log=inputs.read_log(out, reading.Logs(logs, how)) if logs else None,
        name=fit_path,
        flags=_reading(law_file, like),
        provenance=provenance(out),
    )
    made = replace(made, notices=tuple(dict.fromkeys((*made.notices, *told))))
    out.warn(made.notices)
    made.save(name, force=force)
    out.emit(lambda: _document(name, made), lambda: [f"Wrote {name}: {made.size / 1000:.0f} kB, one file."])


def _page_name(output: str | None) -> str:
    """The name of `-o`, which a page needs."""
    if output is None:
        raise UsageError("nothing says where to write the page", hint="give -o report.html")
    if not output.lower().endswith((".html", ".htm")):
        raise UsageError("is written as a page", hint="end the name in .html", location=Location(file=output))
    return output


def _typed(*names: str) -> list[str]:
    """The flags of those parameters that say something."""
    context = click.get_current_context()
    usual = {one.name: one for one in context.command.params}
    given = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return [max(usual[name].opts, key=len) for name in given]


def _given(out: Output, path: str, asked: DemandKeywords) -> Mixture:
    """The mixture of `--mixture`, beside which nothing else says what is asked."""
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix_cli.inputs import load_record

    for flag in _typed("N", "D", *asked):
        hint = f"leave out {flag}, or --mixture"
        raise UsageError(f"{flag} does nothing beside --mixture, which says it already", hint=hint)
    return load_record(out, Mixture, path)


def _solved(
    out: Output, fit: Fit, budget: tuple[float | None, float | None], asked: DemandKeywords
) -> tuple[Mixture | None, list[str]]:
    """The optimum at one budget, and what to beware of; None for a law that has none that is proved."""
    from shapleymix.mixing.assembly import TOLD_IN_THE_RESULT
    from shapleymix.mixing.optimization import optimize_scales
    from shapleymix_cli.documents.writing import with_provenance
    from shapleymix_cli.inputs import read_table

    N, D = (known or float(most) for known, most in zip(budget, (fit.N_range[1], fit.D_range[1]), strict=True))
    named = asked.get("languages")
    table = read_table(out, None if named is None else str(named))
    try:
        fit.terms(N, D)
    except SolveError:  # the page says why
        idle = _typed("N", "D", *asked)
        return None, [f"{', '.join(idle)}: not used, for the law has no optimum that is proved"] if idle else []
    (found,) = optimize_scales(fit, N, D, **{**asked, "languages": table})
    return with_provenance(out, found), [one for one in found.notices if one not in TOLD_IN_THE_RESULT]


def _reading(law_file: str | None, like: Sequence[str]) -> list[str]:
    """The flags by which a fit is read as it was here."""
    own = [] if law_file is None else ["--law-file", law_file]
    return [*own, *(word for one in like for word in ("--like", one))]


def _document(name: str, made: Report) -> dict[str, Json]:
    return {"kind": "report", "file": name, "bytes": made.size, "notices": list(made.notices)}
