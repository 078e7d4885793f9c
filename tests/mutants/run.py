"""`make mutants`: change the code in one place at a time, and see whether a test notices.

Each worker has a copy of the repository and changes that; the tree itself is never touched. cosmic-ray has one test
command for a whole session, which is why its operators are driven here: every mutant runs only the test files that
concern its module (`tests.toml`). A survivor that `equivalent.toml` does not explain makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from population import ROOT, Mutant, known_equivalents, sampled, stale, tests_of

KILLED, SURVIVED, EQUIVALENT, TIMEOUT, LATE = "killed", "survived", "equivalent", "timeout", "not reached in time"
SLOWER = 4.0


class Workshop:
    """A copy of the repository in which tests run on changed code."""

    def __init__(self, place: Path) -> None:
        self.root = place
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        for name in listed.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place / name)

    def passes(self, tests: tuple[str, ...], patience: float) -> bool:
        """Whether the tests pass; TimeoutExpired where they do not end."""
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
        paths = os.pathsep.join(str(self.root / part) for part in ("", "cli", "adapters"))
        environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            words,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            raise
        if process.returncode not in (0, 1, 2, 3):
            raise SystemExit(f"pytest could not run {' '.join(tests)}:\n{output.decode()[-2000:]}")
        return process.returncode == 0

    def verdict(self, mutant: Mutant, patience: float) -> str:
        """What becomes of a mutant."""
        path = self.root / mutant.path
        path.write_text(mutant.code, encoding="utf-8")
        try:
            return SURVIVED if self.passes(tests_of(mutant.path), patience) else KILLED
        except subprocess.TimeoutExpired:
            return TIMEOUT
        finally:
            path.write_text(mutant.original, encoding="utf-8")


def baseline(workshop: Workshop, mutants: list[Mutant]) -> dict[tuple[str, ...], float]:
    """How long each set of tests may take; an error where one fails on unchanged code."""
    allowed: dict[tuple[str, ...], float] = {}
    for tests in sorted({tests_of(mutant.path) for mutant in mutants}):
        began = time.perf_counter()
        if not workshop.passes(tests, 600.0):
            raise SystemExit(f"the tests fail on the unchanged code: {' '.join(tests)}")
        allowed[tests] = 10.0 + SLOWER * (time.perf_counter() - began)
        print(f"  {time.perf_counter() - began:5.1f} s  {' '.join(tests)}", flush=True)
    return allowed


def run(mutants: list[Mutant], workers: int, minutes: float) -> list[tuple[Mutant, str]]:
    """Every mutant's verdict."""
    end = time.monotonic() + 60 * minutes
    known = known_equivalents()
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    verdicts: list[tuple[Mutant, str]] = []
    with tempfile.TemporaryDirectory() as place:
        workshops = [Workshop(Path(place) / str(index)) for index in range(workers)]
        print("tests on the unchanged code:", flush=True)
        allowed = baseline(workshops[0], mutants)

        def work(workshop: Workshop) -> None:
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                if time.monotonic() > end:
                    found = LATE
                elif (mutant.path, *mutant.change) in known:
                    found = EQUIVALENT
                else:
                    found = workshop.verdict(mutant, allowed[tests_of(mutant.path)])
                verdicts.append((mutant, found))
                if found in (SURVIVED, TIMEOUT):
                    print(f"{found}: {mutant.label}", flush=True)

        threads = [threading.Thread(target=work, args=(workshop,)) for workshop in workshops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return verdicts


def main() -> int:
    """Sample, run, count; 1 where a mutant survived without a reason."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=300, help="how many mutants [300]")
    parser.add_argument("--seed", type=int, default=0, help="of the sample [0]")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time [2]")
    parser.add_argument("--minutes", type=float, default=50.0, help="begin no mutant after so many [50]")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    chosen = parser.parse_args()
    mutants = sampled(chosen.sample, chosen.seed, chosen.only)
    print(f"{len(mutants)} mutants of {len({mutant.path for mutant in mutants})} files, seed {chosen.seed}", flush=True)
    verdicts = run(mutants, chosen.workers, chosen.minutes)
    counts = Counter(found for _, found in verdicts)
    order = (KILLED, TIMEOUT, EQUIVALENT, SURVIVED, LATE)
    print("; ".join(f"{name}: {counts[name]}" for name in order))
    for line in stale(known_equivalents()):
        print(f"equivalent.toml names a line that is gone: {line}")
    return 1 if counts[SURVIVED] or not counts[KILLED] else 0


if __name__ == "__main__":
    raise SystemExit(main())
