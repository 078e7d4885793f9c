"""Runs that did not finish: what they measured is not what they would have, and is read as far as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shapleymix.tables.sheets import Sheet

_EXPORTS = (("Name", "State"), ("run_id", "status"))
"""Columns of runs and of how they ended, in the exports of Weights & Biases and of MLflow."""
_GOOD = ("", "finished", "success", "completed", "none", "nan", "null")
"""A good end, or a cell that is empty."""
_SHOWN = 5


def unfinished_notices(ended: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What to say of runs by their names and how they ended; a state that is empty is a good end."""
    odd = [f"{name} ({state})" for name, state in dict.fromkeys(ended) if state]
    more = ", ..." if len(odd) > _SHOWN else ""
    if odd:
        are = "run did not finish, and is" if len(odd) == 1 else "runs did not finish, and are"
        yield f"{len(odd)} {are} read as far as training went: {', '.join(odd[:_SHOWN])}{more}"


def ends_told(sheet: Sheet) -> Iterator[str]:
    """The same of a table in which a tool exported how its runs ended."""
    for names, states in _EXPORTS:
        if {names, states} <= sheet.columns.keys():
            cells = zip(sheet.columns[names], sheet.columns[states], strict=True)
            yield from unfinished_notices((str(name), _odd(str(state).strip())) for name, state in cells)


def _odd(state: str) -> str:
    return "" if state.lower() in _GOOD else state.lower()
