"""The page: its parts in one file that asks nothing of any network, and runs no script but its own.

Its policy allows the one script and the one style sheet that it holds, by their hashes, and nothing else: a name that
would be markup could do nothing even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from xml.etree.ElementTree import Element

from shapleymix.downstream.calibrations import Downstream
from shapleymix.errors import SolveError
from shapleymix.files import Json, atomic_write
from shapleymix.fitting.comparisons import Comparison
from shapleymix.fitting.evidence import Logs
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.measures import ERROR
from shapleymix.laws.terms import Terms
from shapleymix.mixing.mixtures import Mixture
from shapleymix.reports.answers import optimum_section
from shapleymix.reports.evidence import data_section, provenance_section
from shapleymix.reports.fits import fit_section, law_section, transfer_section
from shapleymix.reports.markup import Child, embedded, html, node, section, sentence
from shapleymix.reports.questions import Question, question_of
from shapleymix.reports.runs import runs_section
from shapleymix.reports.scores import scores_section
from shapleymix.tables.transfer import TransferMatrix

NOWHERE = "base-uri 'none'; form-action 'none'"
SCRIPTS = ("law", "solver", "question", "elements", "page")
"""In the order in which one needs the other."""


@dataclass(frozen=True)
class Report:
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
        return len(self.html.encode("utf-8", "backslashreplace"))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the page.

        Raises
        ------
        UsageError
            If the file exists and `force` is not set, or it cannot be written.
        """
        atomic_write(path, self.html, force=force)

    def __repr__(self) -> str:
        return "\n".join([f"Report: a page of {self.size / 1000:.0f} kB", *(f"  note: {one}" for one in self.notices)])


def report(
    fit: Fit | str | os.PathLike[str],
    mixture: Mixture | str | os.PathLike[str] | None = None,
    *,
    comparison: Comparison | str | os.PathLike[str] | None = None,
    transfer: TransferMatrix | None = None,
    downstream: Downstream | str | os.PathLike[str] | None = None,
    log: Logs | None = None,
    name: str = "fit.json",
    flags: Sequence[str] = (),
    provenance: Mapping[str, Json] | None = None,
) -> Report:
    """One page about a fit and a mixture, on which readers move weights, caps, N and D, and see the optimum move.

    Parameters
    ----------
    fit : Fit or path
        The fit, or the file in which it was saved.
    mixture : Mixture or path, optional
        What `optimize` found under it, at which the page begins; without one, the page has none to move.
    comparison : Comparison or path, optional
        Laws on the same held-out runs; that from which `auto` chose, where there is none.
    transfer : TransferMatrix, optional
        Shapley values to show beside the law's own coefficients.
    downstream : Downstream or path, optional
        Calibrated tasks, to be shown with what the mixture is predicted to score.
    log : Logs, optional
        The runs, to be shown against what the law says of them.
    name, flags : str and sequence of str
        What the command line that the page shows calls the fit, and how it is read.
    provenance : mapping, optional
        How the page itself was made.

    Raises
    ------
    UsageError
        If the mixture is of another fit, or of other tasks. DataError if the log has other languages.
    """
    known = Fit.taken(fit)
    answer = None if mixture is None else Mixture.taken(mixture)
    compared = None if comparison is None else Comparison.taken(comparison)
    question, reason = _question(known, answer)
    terms = None if question is None else question.law.terms
    body = [
        *_interactive(question, reason),
        *([] if answer is None else [optimum_section(answer)]),
        *([] if downstream is None else [scores_section(known, Downstream.taken(downstream), answer)]),
        law_section(known, compared),
        *transfer_section(known, terms if terms is not None else _terms(known), transfer),
        *([] if log is None else [runs_section(known, log)]),
        fit_section(known),
        data_section(known),
        provenance_section(_origins(known, answer, provenance)),
    ]
    data = None if question is None else question.to_document(name, flags)
    notices = (*(reason,) * (question is None), *(question.notices if question is not None else ()))
    if answer is not None and answer.measure == ERROR and downstream is None:
        notices = (*notices, "the lines of the tasks, and what they err by, are not shown (not downstream)")
    verdict = "" if answer is None else answer.verdict
    return Report(html(_document(known, verdict, body, data)), notices)


def _question(fit: Fit, mixture: Mixture | None) -> tuple[Question | None, str]:
    """What the sliders move, or why there are none."""
    try:
        if mixture is not None:
            return question_of(fit, mixture), ""
        fit.terms(*_largest(fit))
    except SolveError as error:
        return None, f"nothing to move: {error.message}"
    return None, "nothing to move: no mixture is given"


def _terms(fit: Fit) -> Terms | None:
    """The law's pieces, for their coefficients."""
    try:
        return fit.terms(*_largest(fit))
    except SolveError:
        return None


def _largest(fit: Fit) -> tuple[float, float]:
    """The largest fitted N and D."""
    return float(fit.N_range[1]), float(fit.D_range[1])


def _interactive(question: Question | None, reason: str) -> list[Element]:
    """The place in which the script builds the sliders."""
    if question is None:
        return [section("try", "Move the question", node("p", sentence(reason), class_="warnings"))]
    intro = (
        "Move weights, caps, N and D: the page solves for the best mixture anew, and proves it. Intervals, and what is "
        "gained for sure, are those of the mixture below; the library gives them for any other by the command shown."
    )
    notices = [node("p", sentence(one), class_="warnings") for one in question.notices]
    return [
        section("try", "Move the question", node("p", intro), notices, node("div", id="panel")),
        node("noscript", node("p", "Without scripts the sliders do not work; all else does.", class_="warnings")),
    ]


def _origins(fit: Fit, mixture: Mixture | None, page: Mapping[str, Json] | None) -> dict[str, Mapping[str, Json]]:
    own = {key: value for key, value in (mixture.provenance if mixture else {}).items() if key != "fit"}
    found = {"This page": page or {}, "The mixture": own, "The fit": fit.provenance}
    return {name: known for name, known in found.items() if known}


def _document(fit: Fit, verdict: str, body: Sequence[Element], data: Json) -> Element:
    """The whole page; its data stand where no browser runs them."""
    script = "\n".join(_web(f"{name}.js") for name in SCRIPTS) if data is not None else ""
    style = _web("style.css")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; {NOWHERE}"
    head = node(
        "head",
        node("meta", charset="utf-8"),
        node("meta", http_equiv="Content-Security-Policy", content=policy),
        node("meta", name="viewport", content="width=device-width, initial-scale=1"),
        node("meta", name="color-scheme", content="light dark"),
        node("title", f"ShapleyMix report: law {fit.law.name}, {len(fit.sources)} languages"),
        node("style", style),
    )
    links = [node("a", part[0].text or "", href=f"#{part.get('id')}") for part in body if part.tag == "section"]
    parts: list[Child] = [
        node("a", "To the content", href="#main", class_="skip"),
        node("header", node("h1", "ShapleyMix report"), _summary(fit, verdict), node("nav", links, aria_label="Parts")),
        node("main", body, id="main"),
    ]
    if data is not None:
        parts += [node("script", embedded(data), type="application/json", id="page-data"), node("script", script)]
    return node("html", head, node("body", parts), lang="en")


def _summary(fit: Fit, verdict: str) -> list[Element]:
    error = "" if fit.held_out is None else f", which errs by {fit.held_out.mean['PE']:.2%} on held-out mixtures"
    text = f"{len(fit.sources)} sources, {len(fit.targets)} targets, {fit.rows:,} rows under law {fit.law.name}{error}."
    return [
        node("p", text),
        *([node("p", sentence(verdict), class_="warnings")] if verdict else []),
    ]


def _web(name: str) -> str:
    return (files("shapleymix.reports") / "web" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names a script or a style sheet."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'" if text else "'none'"
