"""Runs of a plan, so many at a time, until each is finished or has failed too often.

Each thread of the pool is a place with its GPUs; it takes a run, trains it, and takes the next. A run that another
launcher holds is put last, and looked at again: it finishes there, or becomes free.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

from shapleymix.errors import UsageError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.results import failures_of, is_finished
from shapleymix_cli.streams import say
from shapleymix_cli.sweeps.attempts import End, attempt
from shapleymix_cli.sweeps.children import Children
from shapleymix_cli.sweeps.claims import Holder

HOPELESS = 5
"""Runs that fail before any finishes, after which a launch gives up: what is wrong is not theirs but the command's."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAUSE = 1.0
"""Seconds until a run that another launcher holds is looked at again."""


@dataclass
class Sweep:
    """What is going on.

    Attributes
    ----------
    plan : Plan
        The runs.
    layout : Layout
        Where they lie.
    waiting : deque of int
        Runs to be tried, by their indices.
    most : dict of int to int
        The failures after which a run is given up.
    finished : set of int
        Runs whose results are there.
    before : int
        How many of them were there when it began.
    keep_going : bool
        Whether to go on where no run at all finishes.
    trained : int
        How many were trained by this launch.
    failing, failed : dict of int to str
        Why runs failed in this launch, and why those did that are tried no more.
    running : set of int
        Runs that are trained here, or looked at.
    held : dict of int to Holder
        Those of them, and of the waiting ones, that others hold: who does.
    notices : dict of str to list of int
        What is not as planned, and of which runs.
    fault : exception, optional
        What ended it.
    """

    plan: Plan
    layout: Layout
    waiting: deque[int]
    most: dict[int, int]
    finished: set[int]
    before: int
    keep_going: bool = False
    trained: int = 0
    failing: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)
    held: dict[int, Holder] = field(default_factory=dict)
    notices: dict[str, list[int]] = field(default_factory=dict)
    fault: BaseException | None = None

    @classmethod
    def of(cls, plan: Plan, layout: Layout, retries: int, *, keep_going: bool = False) -> Sweep:
        """All runs that are not finished, each with the failures after which it is given up."""
        places = [(index, layout.place(run.id)) for index, run in enumerate(plan.runs)]
        done = {index for index, place in places if is_finished(plan.runs[index], place)}
        open_ = [(index, place) for index, place in places if index not in done]
        most = {index: failures_of(place) + 1 + retries for index, place in open_}
        return cls(plan, layout, deque(index for index, _ in open_), most, done, len(done), keep_going)

    @property
    def hopeless(self) -> bool:
        """Whether so many runs have failed, and none finished, that those not yet tried are spared."""
        none = len(self.finished) == self.before and len(self.failing) >= HOPELESS
        return none and not self.keep_going and self.untried > 0

    @property
    def over(self) -> bool:
        """Whether nothing is left to be done."""
        return not self.running and (self.hopeless or not self.waiting)

    @property
    def untried(self) -> int:
        """How many runs wait and have not failed: when it is over, those that it gave up before they began."""
        return len(self.plan) - len(self.finished | self.failing.keys() | self.running)


Watch = Callable[[Sweep], None]


def launch(sweep: Sweep, places: Sequence[Mapping[str, str]], children: Children, watch: Watch) -> None:
    """Train what waits, a run at each place; `watch` is called about once a second, and when it is over.

    Raises
    ------
    KeyboardInterrupt
        If it was interrupted (Ctrl-C, SIGTERM, SIGHUP); all programs have ended.
    ShapleyMixError
        If the folder cannot be written, or there are too many jobs; all programs have ended.
    """
    lock = threading.Condition()
    threads = [threading.Thread(target=_work, args=(sweep, env, children, lock), daemon=True) for env in places]
    with interrupted(children) as asked:
        try:
            _start(threads)
            while any(thread.is_alive() for thread in threads):
                with lock:
                    lock.wait(PAUSE)
                    watch(sweep)
        finally:  # whatever happens here, no program is left alone
            if any(thread.is_alive() for thread in threads):
                children.stop()
            for thread in (one for one in threads if one.ident is not None):
                thread.join()
        watch(sweep)
    if sweep.fault is not None:
        raise sweep.fault
    if asked.is_set():
        raise KeyboardInterrupt


def _start(threads: Sequence[threading.Thread]) -> None:
    for place, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError as error:
            hint = "give fewer --jobs, or see `ulimit -u`"
            raise UsageError(f"{len(threads)} runs at a time: {error} after {place}", hint=hint) from error


def _work(sweep: Sweep, env: Mapping[str, str], children: Children, lock: threading.Condition) -> None:
    """One place in the pool, until nothing is left or it is stopped."""
    while not children.stopped.is_set():
        with lock:
            if sweep.over:
                return
            index = None if sweep.hopeless or not sweep.waiting else sweep.waiting.popleft()
            if index is None:  # others are at the last runs, of which one may fail and be tried again, or give hope
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
    sweep.held.pop(index, None)
    if end.how == "finished":
        sweep.finished.add(index)
        sweep.trained += end.trained
        sweep.failing.pop(index, None)
        for notice in end.notices:
            sweep.notices.setdefault(notice, []).append(index)
    elif end.how == "held":
        sweep.held[index] = end.holder
        sweep.waiting.append(index)
    elif end.how == "failed":
        sweep.failing[index] = end.reason
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
