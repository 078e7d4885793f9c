"""All processes of one run, however far they went from the program that started them.

A process leaves the group of its program by a session of its own (torchrun starts its workers so), and its tree when
its parent dies. What stays is a mark in the environment, the folder of the run, which every process hands on to those
that it starts; one that drops its environment as well is found by its parent while that lives.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection

import psutil

MARK = "SHAPLEYMIX_RUN_FOLDER"
"""The variable that every process of a run has in its environment."""


def processes_of(folder: str, program: int | None = None) -> list[psutil.Process]:
    """The processes that live now and belong to the run of a folder.

    Parameters
    ----------
    folder : str
        What they have as `MARK`.
    program : int, optional
        Id of the program that leads them, which is that of its session, too.
    """
    ours = _ourselves()
    alive = [one for one in _all() if one.pid not in ours]
    found = {one.pid: one for one in alive if _belongs(one, folder, program)}
    started = _by_parent(alive)
    grown = list(found)
    while grown:
        children = [child for parent in grown for child in started.get(parent, ()) if child.pid not in found]
        found |= {child.pid: child for child in children}
        grown = [child.pid for child in children]
    return [one for one in found.values() if _lives(one)]


def ask(processes: Collection[psutil.Process], number: signal.Signals) -> None:
    """Send a signal; what is gone needs none, and another user's process cannot be asked."""
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.send_signal(number)


def group_of(program: int) -> set[int]:
    """Ids of the processes that a signal to the group of a program reaches."""
    return {pid for pid in psutil.pids() if _asked(os.getpgid, pid) == program}


def _all() -> list[psutil.Process]:
    """Every process; `psutil.process_iter` keeps a cache that threads must not share."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _ourselves() -> set[int]:
    """This process and those that it descends from: a launcher that a run has started ends itself with no run."""
    return {os.getpid(), *(one.pid for one in psutil.Process().parents())}


def _belongs(one: psutil.Process, folder: str, program: int | None) -> bool:
    if program is not None and _asked(os.getsid, one.pid) == program:
        return True
    try:
        return one.environ().get(MARK) == folder
    except (psutil.Error, OSError):  # another user's, or gone
        return False


def _asked(question: Callable[[int], int], pid: int) -> int | None:
    """What the system answers of a process, unless it is gone."""
    try:
        return question(pid)
    except OSError:
        return None


def _by_parent(alive: Collection[psutil.Process]) -> dict[int, list[psutil.Process]]:
    """The processes that each process has started."""
    found: dict[int, list[psutil.Process]] = {}
    for one in alive:
        with contextlib.suppress(psutil.Error):
            found.setdefault(one.ppid(), []).append(one)
    return found


def _lives(one: psutil.Process) -> bool:
    """Whether it may still do something: a zombie only waits for a parent to ask how it ended."""
    try:
        return one.is_running() and one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False
