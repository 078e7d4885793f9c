"""Whole run logs of programs that nobody saw end: their launcher was killed, their time was over."""

from __future__ import annotations

from shapleymix.errors import ShapleyMixError
from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.plans import Plan, PlannedRun
from shapleymix.sweeping.results import NEAR, take_result, unseen
from shapleymix_cli.sweeps.claims import claimed


def left_behind(run: PlannedRun, place: Place) -> bool:
    """Whether an earlier program was through when nobody saw it end, whose result is then taken.

    What lies there from before a failure was seen is that failure's. With whom it ended, and how, nobody knows; so it
    is held to all of D, as where a program was stopped. Whoever asks holds the claim.
    """
    if not unseen(place):
        return False
    try:
        take_result(run, place, NEAR)
    except ShapleyMixError:
        return False
    return True


def take_left_behind(plan: Plan, layout: Layout) -> list[str]:
    """Take what lies there whole of runs that nobody trains now; tells of each, and of what cannot be taken."""
    there = layout.there()
    told: list[str] = []
    for index, run in enumerate(plan.runs):
        place = layout.place(run.id)
        if run.id not in there or place.result.exists() or not unseen(place):
            continue
        name = f"run {index} ({run.name})"
        try:
            with claimed(place.claim) as claim:
                if claim is not None and left_behind(run, place):
                    told.append(f"{name} had ended with nobody there to see it: its run log is whole, and taken")
        except (OSError, ShapleyMixError) as error:
            why = error.message if isinstance(error, ShapleyMixError) else error.strerror or error
            told.append(f"{name} has left a run log, which cannot be taken in this folder: {why}")
    return told
