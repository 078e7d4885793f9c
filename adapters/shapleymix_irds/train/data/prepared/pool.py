"""Work that is shared out over processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TypeVar

from shapleymix.errors import ShapleyMixError, UsageError

Work = TypeVar("Work")
Found = TypeVar("Found")


def default_jobs() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(function: Callable[[Work], Found], tasks: Sequence[Work], jobs: int) -> Iterator[tuple[int, Found]]:
    """What a function finds for each task, with the task's number, in the order in which they end.

    Raises
    ------
    UsageError
        If a process was killed.
    ShapleyMixError
        The first that a task raises; what others had begun is given up.
    """
    jobs = min(jobs, len(tasks))
    if jobs <= 1:
        yield from ((number, function(task)) for number, task in enumerate(tasks))
        return
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin) as pool:
        futures = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        try:
            for future in as_completed(futures):
                yield futures.pop(future), future.result()
        except BaseException as error:
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            told = _told(error)
            raise told from (None if told is error else error)


def _told(error: BaseException) -> BaseException:
    """An error as it is to be said: one that came from another process has lost its form."""
    if isinstance(error, BrokenProcessPool):
        hint = "memory may have run out: the same command continues, with fewer --jobs"
        return UsageError("a process of its own was killed", hint=hint)
    if isinstance(error, ShapleyMixError):
        return type(error)(error.message, hint=error.hint, location=error.location, faults=error.faults)
    return error


def _begin() -> None:
    """A process ends with the one that started it, leaves Ctrl-C to it, and uses one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
