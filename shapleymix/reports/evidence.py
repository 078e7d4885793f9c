"""The data on a page: what the fit has seen, what was wrong with it, and where every number comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.etree.ElementTree import Element

from shapleymix.files import Json
from shapleymix.fitting.fits import Fit
from shapleymix.reports.charts import Span, bar
from shapleymix.reports.markup import folded, listing, node, number, section, sentence, table, terms_of
from shapleymix.tables.sizes import format_size


def data_section(fit: Fit) -> Element:
    """What the fitted losses cover, and every remark on them."""
    coverage = fit.coverage
    remarks = [*fit.notices, *fit.warnings]
    mixtures = coverage.mixtures.max(axis=0)
    ranges = fit.p_range
    rows = [
        [name, bar(Span(0.0, 1.0), ranges[i, 1]), number(ranges[i, 0]), number(ranges[i, 1]), str(mixtures[i])]
        for i, name in enumerate(fit.sources)
    ]
    clean = [] if remarks else [node("p", "Nothing was left out or questioned.")]
    return section(
        "data",
        "The data, and what was wrong with it",
        terms_of({"rows": f"{fit.rows:,}", "N": _range(fit.N_range.tolist()), "D": _range(fit.D_range.tolist())}),
        clean,
        listing(map(sentence, remarks), "warnings"),
        table(["source", "", "lowest ratio", "highest ratio", "mixtures"], rows, caption="Ratios of the fitted runs"),
    )


def _range(ends: list[float]) -> str:
    low, high = map(format_size, ends)
    return low if low == high else f"{low} to {high}"


def provenance_section(parts: Mapping[str, Mapping[str, Json]]) -> Element:
    """The calls, versions and hashes of what the page was made from."""
    return section("provenance", "Where the numbers come from", [_origin(name, known) for name, known in parts.items()])


def _origin(name: str, known: Mapping[str, Json]) -> Element:
    command = known.get("command")
    inputs = known.get("inputs")
    lines = [node("pre", command)] if isinstance(command, str) else []
    if isinstance(inputs, dict):
        lines.append(table(["file", "SHA-256"], [[path, str(digest)] for path, digest in inputs.items()], words=2))
    text = json.dumps(dict(known), indent=1, ensure_ascii=False)
    return node("div", node("h3", name), lines, folded("All of it", node("pre", text)))
