"""Planned runs on the screen."""

from __future__ import annotations

import numpy as np

from shapleymix.planning.designs import Design
from shapleymix_cli.views.numbers import count, fixed, percent, significant, size
from shapleymix_cli.views.tables import Part, heading, table

LARGEST = 8
"""Sources whose ratios are shown without `-v`: those that are largest in any planned run."""


def design_view(found: Design, verbose: bool) -> list[Part]:
    """A row a run in the order of their use: its ratios, and the errors that are expected once it is trained."""
    order = np.argsort(-found.p.max(axis=0), kind="stable").tolist()
    shown = sorted(order if verbose else order[:LARGEST])
    hidden = len(found.sources) - len(shown)
    batched = bool(found.batch.max() > 1)
    known = bool(np.isfinite(found.optimum_error).all())
    headers = ["run", *["batch"] * batched, *(found.sources[i] for i in shown), "error", *["gains"] * known]
    rows = [
        [
            found.runs[place],
            *[str(found.batch[place])] * batched,
            *(fixed(ratio) for ratio in found.p[place, shown].tolist()),
            percent(found.region_error[place + 1]),
            *[significant(found.optimum_error[place + 1], 2)] * known,
        ]
        for place in range(len(found))
    ]
    if known:
        best = [fixed(ratio) for ratio in found.optimum[shown].tolist()]
        rows.append(["optimum now", *[""] * batched, *best, "", ""])
    return [
        heading(_title(found)),
        table(headers, rows),
        *([f"... and {count(hidden, 'source')} more: -v, --json and -o show all"] if hidden else []),
        "",
        *_explained(found, known),
    ]


def _title(found: Design) -> str:
    so_far = f"after {count(found.trained, 'mixture')}" if found.trained else "before any run"
    budget = "" if np.isnan(found.N) or np.isnan(found.D) else f" at N = {size(found.N)}, D = {size(found.D)}"
    what = "to find the optimum" if found.purpose == "optimum" else "to know all mixtures"
    return f"{count(len(found), 'run')}{budget} {what}, {so_far}"


def _explained(found: Design, known: bool) -> list[str]:
    """What the last columns say, and what they were before."""
    before = "" if np.isnan(found.region_error[0]) else f"; now {percent(found.region_error[0])}"
    said = [f"error: expected of the law's losses over all mixtures, once the run is trained{before}"]
    if known:
        now = significant(found.optimum_error[0], 2)
        said.append(f"gains: expected error, in nats, of what mixtures that may be best gain; now {now}")
    if not np.isnan(found.N + found.D):
        said.append(f"N and D of the planned runs: {found.because}; --run-N and --run-D choose others")
    return [*said, f"Chosen from {count(found.candidates, 'candidate')}."]
