"""Plans of runs, and how far they are, on the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.listed import Listed
from shapleymix.sweeping.plans import Plan, PlannedRun
from shapleymix.sweeping.states import FAILED, FINISHED, OPEN, State
from shapleymix_cli.sweeps.attempts import last_words
from shapleymix_cli.sweeps.claims import Holder
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
    failed = sweep.failing if sweep.hopeless else sweep.failed
    if not failed:
        return [heading(told)]
    rows = [
        [str(place), sweep.plan.runs[place].name, _said(sweep, place, reason), str(_place(sweep, place).log)]
        for place, reason in sorted(failed.items())[: None if verbose else MOST]
    ]
    shown = table(["index", "mixture", "reason", "log"], rows, left=4)
    return [heading(told), _times(sweep, retries), shown, *_more(len(failed) - len(rows))]


def _times(sweep: Sweep, retries: int) -> str:
    """How many failed, and how often each was tried."""
    if not sweep.hopeless:
        return f"{len(sweep.failed)} failed, each tried {count(retries + 1, 'time')}:"
    return f"gave up: {len(sweep.failing)} failed before any finished; {count(sweep.untried, 'run')} not tried:"


def _place(sweep: Sweep, place: int) -> Place:
    return sweep.layout.place(sweep.plan.runs[place].id)


def _said(sweep: Sweep, place: int, reason: str) -> str:
    """Why a run failed, and the last line that its program said."""
    return ": ".join([_one_line(reason), *last_words(_place(sweep, place))[-1:]])


def states_view(states: Sequence[tuple[State, Layout, Mapping[int, Holder]]], verbose: bool) -> list[Part]:
    """How far each plan is."""
    several = len(states) > 1
    parts: list[Part] = []
    for state, layout, holders in states:
        name = f"{state.plan.file}: " if several else ""
        parts += [*([""] if parts else []), *_state_view(name, state, layout, holders, verbose)]
    return parts


def _state_view(name: str, state: State, layout: Layout, holders: Mapping[int, Holder], verbose: bool) -> list[Part]:
    """How many runs are finished; which are trained now and by whom, which failed, and which are open."""
    parts: list[Part] = [heading(f"{name}{state.count(FINISHED)} of {count(len(state.plan), 'run')} finished")]
    failed, open_ = ([place for place in state.where(status) if place not in holders] for status in (FAILED, OPEN))
    told = {place: _one_line(state.failures[place].reason) for place in failed}
    parts += _section(state.plan, sorted(holders), "being trained", "by", holders, verbose)
    parts += _section(state.plan, failed, "failed", "reason", told, verbose)
    parts += _section(state.plan, open_, "open", None, {}, verbose)
    return [*parts, *([f"Each run has its log.txt below {layout.root}."] if failed else [])]


def _section(
    plan: Plan, places: Sequence[int], what: str, column: str | None, told: Mapping[int, object], verbose: bool
) -> list[Part]:
    """Runs in one state, with what there is to tell of each."""
    if not places:
        return []
    shown = places[: None if verbose else MOST]
    rows = [[*_named(plan.runs[place], place), *([str(told[place])] if column else [])] for place in shown]
    columns = ["index", "mixture", "N", "D", "seed", *([column] if column else [])]
    return ["", f"{len(places):,} {what}:", table(columns, rows, left=len(columns)), *_more(len(places) - len(shown))]


def submission_view(plan: Plan, jobs: Sequence[str], waiting: Mapping[int, str]) -> list[Part]:
    """How many runs were submitted in which arrays, and which jobs or launchers have others already."""
    arrays = ", ".join(dict.fromkeys(one.partition("_")[0] for one in jobs))
    told = [f"{len(jobs)} of {count(len(plan), 'run')} submitted: {arrays or 'nothing is left to be done'}"]
    if waiting:
        told = told if jobs else [f"0 of {count(len(plan), 'run')} submitted"]
        listed = ", ".join(f"{job} (run {index})" for index, job in list(waiting.items())[:MOST])
        more = ", ..." if len(waiting) > MOST else ""
        told.append(f"{count(len(waiting), 'run')} waiting or running already: {listed}{more}")
    return [*told, *(["`shapleymix collect` tells how far they are"] if jobs or waiting else [])]


def _named(run: PlannedRun, place: int) -> list[str]:
    return [str(place), run.name, size(run.N), size(run.D), str(run.seed)]


def _more(hidden: int) -> Sequence[str]:
    return [f"... and {count(hidden, 'run')} more: -v and --json show all"] if hidden > 0 else []


def _one_line(reason: str) -> str:
    return " ".join(reason.split())
