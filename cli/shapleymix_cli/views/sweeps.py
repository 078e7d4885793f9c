"""Plans of runs, and how far they are, on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.sweeping.collecting import FAILED, FINISHED, OPEN, State
from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.listed import Listed
from shapleymix.sweeping.plans import Plan, PlannedRun
from shapleymix_cli.sweeps.attempts import last_words
from shapleymix_cli.sweeps.pool import Sweep
from shapleymix_cli.views.numbers import count, fixed, size
from shapleymix_cli.views.tables import Part, heading, table

MOST, LARGEST = 20, 8
"""Runs and sources that are shown without `-v`."""


def listed_view(listed: Listed, verbose: bool) -> list[Part]:
    """A row a mixture: the largest sources' ratios."""
    order = np.argsort(-listed.p.max(axis=0), kind="stable").tolist()
    shown = sorted(order if verbose else order[:LARGEST])
    hidden = len(listed.sources) - len(shown)
    rows = [[name, *map(fixed, row)] for name, row in zip(listed.names, listed.p[:, shown].tolist(), strict=True)]
    more = [f"... and {count(hidden, 'source')} more: -v, --json and -o show all"] if hidden else []
    table_ = table(["mixture", *(listed.sources[i] for i in shown)], rows[: None if verbose else MOST])
    left = max(len(rows) - MOST, 0)
    cut = [] if verbose or not left else [f"... and {count(left, 'mixture')} more: -v, --json and -o show all"]
    return [heading(count(len(listed), "mixture")), table_, *more, *cut]


def plan_view(plan: Plan, verbose: bool) -> list[Part]:
    """A row a run."""
    total = sum(run.D for run in plan.runs)
    shown = list(enumerate(plan.runs))[: None if verbose else MOST]
    rows = [[str(place), run.id, run.name, size(run.N), size(run.D), str(run.seed)] for place, run in shown]
    return [
        heading(f"{count(len(plan), 'run')}, {size(total)} tokens in all"),
        table(["index", "id", "mixture", "N", "D", "seed"], rows, left=3),
        *_more(len(plan) - len(shown)),
    ]


def launch_view(sweep: Sweep, retries: int, verbose: bool) -> list[Part]:
    """What was done, and which runs failed with their reasons."""
    told = f"{len(sweep.finished)} of {count(len(sweep.plan), 'run')} finished, {sweep.trained} of them now"
    if not sweep.failed:
        return [heading(told)]
    rows = [
        [str(place), sweep.plan.runs[place].name, _said(sweep, place, reason), str(_place(sweep, place).log)]
        for place, reason in sorted(sweep.failed.items())[: None if verbose else MOST]
    ]
    times = f"{len(sweep.failed)} failed, each tried {count(retries + 1, 'time')}:"
    shown = table(["index", "mixture", "reason", "log"], rows, left=4)
    return [heading(told), times, shown, *_more(len(sweep.failed) - len(rows))]


def _place(sweep: Sweep, place: int) -> Place:
    return sweep.layout.place(sweep.plan.runs[place].id)


def _said(sweep: Sweep, place: int, reason: str) -> str:
    """Why a run failed, and the last line that its program said."""
    return ": ".join([_one_line(reason), *last_words(_place(sweep, place))[-1:]])


def states_view(paths: Sequence[str], states: Sequence[State], layouts: Sequence[Layout], verbose: bool) -> list[Part]:
    """The state of a plan; of several one after the other, each below its file."""
    views = [state_view(*one, verbose) for one in zip(states, layouts, strict=True)]
    if len(views) == 1:
        return views[0]
    return [part for path, view in zip(paths, views, strict=True) for part in (f"{path}:", *view)]


def state_view(state: State, layout: Layout, verbose: bool) -> list[Part]:
    """How many runs are finished; which failed, and which are open."""
    parts: list[Part] = [heading(f"{state.count(FINISHED)} of {count(len(state.plan), 'run')} finished")]
    failed, open_ = state.where(FAILED), state.where(OPEN)
    most = None if verbose else MOST
    if failed:
        rows = [
            [*_named(state.plan.runs[place], place), _one_line(state.failures[place].reason)] for place in failed[:most]
        ]
        parts += ["", f"{len(failed)} failed:", table(["index", "mixture", "N", "D", "seed", "reason"], rows, left=6)]
        parts += _more(len(failed) - len(rows))
    if open_:
        rows = [_named(state.plan.runs[place], place) for place in open_[:most]]
        parts += ["", f"{len(open_)} open:", table(["index", "mixture", "N", "D", "seed"], rows, left=5)]
        parts += _more(len(open_) - len(rows))
    return [*parts, *([f"Each run has its log.txt below {layout.root}."] if failed else [])]


def _named(run: PlannedRun, place: int) -> list[str]:
    return [str(place), run.name, size(run.N), size(run.D), str(run.seed)]


def _more(hidden: int) -> Sequence[str]:
    return [f"... and {count(hidden, 'run')} more: -v and --json show all"] if hidden > 0 else []


def _one_line(reason: str) -> str:
    return " ".join(reason.split())
