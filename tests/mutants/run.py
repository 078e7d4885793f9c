"""`make mutants`: change the code in one place at a time, and see whether a test notices.

cosmic-ray has one test command for a whole session, started anew for every mutant, which is why its operators are
driven here: the tests are run once on the unchanged code, to see which functions each of them runs and what it costs
(`reach`); then every mutant is tried, in a process forked after the heavy imports (`forks`), on the tests that run
the changed function, the cheapest first, up to the first that fails. A survivor that `equivalent.toml` does not
explain makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from forks import Call, Change, Job, Outcome, copy_of_repository, run_all, warm
from population import ROOT, UNDER_TRIAL, Mutant, is_known, known_equivalents, sampled, stale
from reach import GRACE, Chosen, Test, Watch, chosen_for, function_at, tests_in

KILLED, TIMEOUT, EQUIVALENT, SURVIVED, LATE = "killed", "timeout", "equivalent", "survived", "not reached in time"
ORDER = (KILLED, TIMEOUT, EQUIVALENT, SURVIVED, LATE)
ELSEWHERE = ("cli_process", "cli_streams", "docstrings", "layers", "public_api", "readme")
"""Test files that start the program anew or read its texts: none of them judges an answer."""
WHOLE_FILE = 600.0
"""Seconds of CPU that a test file may take on the unchanged code."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, what it cost, and a word on how it was tried."""

    mutant: Mutant
    found: str
    seconds: float = 0.0
    note: str = ""


class Trial:
    """A copy of the repository, its tests and what they reach, and the verdicts so far."""

    def __init__(self, place: Path, chosen: argparse.Namespace) -> None:
        self.copy = copy_of_repository(ROOT, place / "copy")
        self.workers, self.budget = chosen.workers, chosen.tests
        self.end = time.monotonic() + 60 * chosen.minutes
        self.known = known_equivalents()
        self.tests: list[Test] = []
        self.unsound: list[str] = []
        self.verdicts: list[Verdict] = []

    def watch(self) -> None:
        """Run every test file once on the unchanged code; one that fails there is told, and tries no mutant."""
        began = time.monotonic()
        under_trial = tuple(str(path.relative_to(ROOT)) for path in UNDER_TRIAL)
        run_all(self._watched(under_trial), self.workers, self.copy)
        spent = sum(test.seconds for test in self.tests)
        print(f"unchanged: {len(self.tests)} tests, {spent:.0f} s of CPU, {time.monotonic() - began:.0f} s", flush=True)

    def _watched(self, under_trial: tuple[str, ...]) -> Iterator[Job]:
        for path in sorted((self.copy / "tests").glob("test_*.py")):
            if path.stem.removeprefix("test_") in ELSEWHERE:
                continue
            report = self.copy.parent / f"{path.stem}.json"

            def ended(outcome: Outcome, path: Path = path, report: Path = report) -> None:
                if outcome.passed:
                    self.tests += tests_in(report)
                else:
                    self.unsound.append(path.name)
                    print(f"{path.name} fails on the unchanged code:\n{_tail(outcome.log)}", flush=True)

            call = Call(f"tests/{path.name}", Watch(self.copy, under_trial, report))
            yield Job((call,), ended, WHOLE_FILE)

    def run(self, mutants: list[Mutant]) -> None:
        """Every mutant's verdict."""
        run_all(self._tried(mutants), self.workers, self.copy)

    def _tried(self, mutants: list[Mutant]) -> Iterator[Job]:
        for mutant in mutants:
            if time.monotonic() > self.end:
                self.settle(Verdict(mutant, LATE))
            elif is_known(mutant, self.known):
                self.settle(Verdict(mutant, EQUIVALENT))
            elif (job := self._job(mutant)) is not None:
                yield job

    def _job(self, mutant: Mutant) -> Job | None:
        function = function_at(mutant.original, mutant.line)
        tests, left = chosen_for(mutant.path, function, self.tests, self.budget)
        if not tests:
            self.settle(Verdict(mutant, SURVIVED, note="no test runs it"))
            return None
        note = f"{len(tests)} tests, {sum(test.seconds for test in tests):.0f} s"
        note += f"; others of {left:.0f} s not tried" if left else ""

        def ended(outcome: Outcome) -> None:
            found = SURVIVED if outcome.passed else TIMEOUT if outcome.timed_out else KILLED
            self.settle(Verdict(mutant, found, outcome.seconds, note))

        rounds = [(file, list(group)) for file, group in groupby(tests, key=lambda test: test.file)]
        calls = tuple(Call(file, Chosen(group)) for file, group in rounds)
        return Job(calls, ended, GRACE, Change(mutant.path, mutant.code))

    def settle(self, verdict: Verdict) -> None:
        """Keep a verdict; a person reads at once what survived."""
        self.verdicts.append(verdict)
        if verdict.found in (SURVIVED, TIMEOUT):
            print(f"{verdict.found} ({verdict.note}): {verdict.mutant.label}", flush=True)

    def summary(self) -> Iterator[str]:
        """The counts, and where the time went."""
        counts = Counter(verdict.found for verdict in self.verdicts)
        yield "; ".join(f"{name}: {counts[name]}" for name in ORDER)
        if self.unsound:
            yield f"left out, as they fail on the unchanged code: {', '.join(self.unsound)}"
        for found in (KILLED, SURVIVED):
            each = [verdict.seconds for verdict in self.verdicts if verdict.found == found]
            if each:
                yield f"a mutant that {'was ' * (found == KILLED)}{found} took {sum(each) / len(each):.1f} s"


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]


def main() -> int:
    """Sample, run, count; 1 where a mutant survived without a reason, or tests fail on the unchanged code.

    Mutants that were not reached in time are counted, no more.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="how many mutants [300]")
    parser.add_argument("--seed", type=int, default=0, help="of the sample [0]")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time [2]")
    parser.add_argument("--minutes", type=float, default=55.0, help="begin no mutant after so many [55]")
    parser.add_argument("--tests", type=float, default=60.0, help="most seconds of tests to try a mutant on [60]")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    mutants = sampled(chosen.sample, chosen.seed, chosen.only)
    print(f"{len(mutants)} mutants of {len({mutant.path for mutant in mutants})} files, seed {chosen.seed}", flush=True)
    warm()
    with tempfile.TemporaryDirectory(prefix="shapleymix-mutants-") as place:
        trial = Trial(Path(place), chosen)
        trial.watch()
        trial.run(mutants)
    for line in trial.summary():
        print(line)
    for line in stale(trial.known):
        print(f"equivalent.toml names a line that is gone: {line}")
    counts = Counter(verdict.found for verdict in trial.verdicts)
    return 1 if counts[SURVIVED] or trial.unsound or not counts[KILLED] else 0


if __name__ == "__main__":
    raise SystemExit(main())
