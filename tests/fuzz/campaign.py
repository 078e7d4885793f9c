"""Campaigns of random trials: every trial is counted, every failure kept with what makes it again."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

MOST_SHOWN = 12
PATIENCE = 60.0
FORK = multiprocessing.get_context("fork")
REPORTS: list[Campaign] = []


Trial = Callable[[Any], tuple[str, dict[str, float]]]


class Worker:
    """A process that tries cases one after another, so that a hang or a crash costs one trial and not the session."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.process: Any = None
        self.pipe: Any = None

    def __call__(self, case: Any) -> tuple[str, dict[str, float], str | None]:
        """The outcome of a case, what it measured, and why it failed (None where it did not)."""
        if self.process is None:
            self.pipe, theirs = FORK.Pipe()
            self.process = FORK.Process(target=_serve, args=(theirs, self.trial), daemon=True)
            self.process.start()
            theirs.close()
        try:
            self.pipe.send(case)
            if self.pipe.poll(PATIENCE):
                return self.pipe.recv()
            why = f"HANG: no answer after {PATIENCE:.0f} s"
        except (EOFError, OSError):
            why = "CRASH: the process died"
        self.stop()
        return "FAILED", {}, why

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = None


def _serve(pipe: Connection, trial: Trial) -> None:
    while True:
        case = pipe.recv()
        try:
            answer = (*trial(case), None)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {last.filename.rpartition('/')[2]}:{last.lineno}: {error}"
            answer = ("FAILED", {}, where)
        pipe.send(answer)


@dataclass
class Campaign:
    """One kind of trials. A trial returns the name of its outcome and what it measured, or raises.

    Hypothesis draws the trials (its seed is pytest's `--hypothesis-seed`). It is not asked to stop at the first
    failure: a night's worth of trials should name every fault, not one.
    """

    share: ClassVar[float] = 1.0

    name: str
    trials: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        REPORTS.append(self)

    def run(self, count: int, cases: SearchStrategy[Any], trial: Trial) -> None:
        """Try `count` cases, then fail if any of them did."""
        began, worker = time.perf_counter(), Worker(trial)

        @settings(
            max_examples=max(1, round(count * self.share)),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def tried(case: Any) -> None:
            self.once(case, worker)

        try:
            tried()
        finally:
            worker.stop()
            self.seconds += time.perf_counter() - began
        assert not self.failures, self.described()

    def once(self, case: Any, worker: Worker) -> None:
        """One trial, counted."""
        outcome, measured, why = worker(case)
        self.trials += 1
        self.outcomes[outcome] += 1
        if why is not None:
            self.failures.append((why, repr(case)))
        for what, value in measured.items():
            if what not in self.worst or value > self.worst[what][0]:
                self.worst[what] = (value, repr(case))

    def described(self) -> str:
        """The failures with their reproducers."""
        shown = [f"{why}\n    {case}" for why, case in self.failures[:MOST_SHOWN]]
        return "\n".join([f"{len(self.failures)} of {self.trials} trials of {self.name} failed:", *shown])

    def summary(self) -> list[str]:
        """Lines for the end of the session."""
        lines = [f"{self.name}: {self.trials} trials in {self.seconds:.0f} s"]
        lines += [f"  {count:6d} {outcome}" for outcome, count in self.outcomes.most_common()]
        lines += [f"  worst {what}: {value:.2e}" for what, (value, _) in sorted(self.worst.items())]
        return lines
