"""Runs of a plan, so many at a time, until each is finished or has failed too often.

Each thread of the pool is a place with its GPUs; it takes a run, trains it, and takes the next. A run that another
launcher holds is put last, and looked at again: it finishes there, or becomes free.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.results import failures_of, is_finished
from shapleymix_cli.streams import say
from shapleymix_cli.sweeps.attempts import End, attempt
from shapleymix_cli.sweeps.children import Children

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAUSE = 1.0
"""Seconds until a run that another launcher holds is looked at again."""


@dataclass
class Sweep:
    """What is going on: which runs wait, which are finished, and which have failed for good with their reasons;
    and of how many runs of this launch something is not as planned."""

    plan: Plan
    layout: Layout
    waiting: deque[int]
    most: dict[int, int]
    finished: set[int]
    trained: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)
    notices: Counter[str] = field(default_factory=Counter)
    fault: BaseException | None = None

    @classmethod
    def of(cls, plan: Plan, layout: Layout, retries: int) -> Sweep:
        """All runs that are not finished, each with the failures after which it is given up."""
        places = [(index, layout.place(run.id)) for index, run in enumerate(plan.runs)]
        done = {index for index, place in places if is_finished(plan.runs[index], place)}
        open_ = [(index, place) for index, place in places if index not in done]
        most = {index: failures_of(place) + 1 + retries for index, place in open_}
        return cls(plan, layout, deque(index for index, _ in open_), most, done)

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done."""
        return not self.waiting and not self.running


Watch = Callable[[Sweep], None]


def launch(sweep: Sweep, places: Sequence[Mapping[str, str]], children: Children, watch: Watch) -> None:
    """Train what waits, a run at each place; `watch` is called about once a second, and when it is over.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted (Ctrl-C, SIGTERM, SIGHUP); all programs have ended.
    ShapleyMixError
        If the folder cannot be written; all programs have ended.
    """
    lock = threading.Condition()
    threads = [threading.Thread(target=_work, args=(sweep, env, children, lock), daemon=True) for env in places]
    with interrupted(children) as asked:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with lock:
                lock.wait(PAUSE)
                watch(sweep)
        watch(sweep)
    if sweep.fault is not None:
        raise sweep.fault
    if asked.is_set():
        raise KeyboardInterrupt


def _work(sweep: Sweep, env: Mapping[str, str], children: Children, lock: threading.Condition) -> None:
    """One place in the pool, until nothing is left or it is stopped."""
    while not children.stopped.is_set():
        with lock:
            if sweep.over:
                return
            index = sweep.waiting.popleft() if sweep.waiting else None
            if index is None:  # others are at the last runs, of which one may fail and be tried again
                lock.wait(PAUSE)
                continue
            sweep.running.add(index)
            again = index in sweep.held
        if again:
            children.stopped.wait(PAUSE)
        try:
            end = attempt(
                sweep.plan.runs[index],
                sweep.layout.place(sweep.plan.runs[index].id),
                children,
                env=env,
                most=sweep.most[index],
            )
        except BaseException as error:  # a folder that cannot be written ends all: the next run would meet the same
            with lock:
                sweep.fault = sweep.fault or error
                sweep.running.discard(index)
            children.stop()
            return
        with lock:
            _take(sweep, index, end)
            lock.notify_all()


def _take(sweep: Sweep, index: int, end: End) -> None:
    """Note how an attempt ended, and put the run last if it is to be tried again."""
    sweep.running.discard(index)
    sweep.held.discard(index)
    if end.how == "finished":
        sweep.finished.add(index)
        sweep.trained += end.trained
        sweep.notices.update(end.notices)
    elif end.how == "held":
        sweep.held.add(index)
        sweep.waiting.append(index)
    elif end.how == "failed":
        if end.failures < sweep.most[index]:
            sweep.waiting.append(index)
        else:
            sweep.failed[index] = end.reason


@contextlib.contextmanager
def interrupted(children: Children) -> Iterator[threading.Event]:
    """Within, the first signal asks all programs to end, the second ends them at once; the event tells of either."""
    asked = threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        again = asked.is_set()
        asked.set()
        if not again and children.running:
            say("ending: programs may write a checkpoint first; once more to end them at once")
        # not here: the lock that they take may be held by the very code that the signal has interrupted
        threading.Thread(target=children.kill if again else children.stop, daemon=True).start()

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, hear) for number in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
