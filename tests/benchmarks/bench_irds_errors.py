"""Do printed standard errors cover? Runs of many seeds on the toy corpus, and how often 90% intervals hold the truth.

    python tests/benchmarks/bench_irds_errors.py [--seeds 12] [--logs FOLDER] [-- more flags of irds_train.py]

Each seed trains once (weights, data order and evaluated steps are its own) and evaluates every step; what one step of
2 or 5 would have given is made from the log, since evaluated steps train as others do. The truth for a seed is the mean
of the matrices of all other seeds, every step evaluated; an interval is 1.645 standard errors to both sides. For raw
values the truth is also that of the run itself, every step evaluated. A table of one setting is no proof for others:
the share of entries covered is that of a nominal 90%, and must lie within 85% and 95%.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds"), str(Path(__file__).parent)]

from _report import finish, must, row, table  # noqa: E402
from irds_log import read_log  # noqa: E402
from shapleymix_irds.ledger import Array, Evaluation, Ledger  # noqa: E402
from shapleymix_irds.schedule import Schedule  # noqa: E402
from shapleymix_irds.train.app import main as train  # noqa: E402

from shapleymix.tables.transfer import read_transfer  # noqa: E402

RUN = {
    "--corpus": "toy",
    "--tokens": "300k",
    "--toy-size": "200k",
    "--lr": "3e-3",
    "--irds-every": "1",
    "--test-windows": "16",
    "--checkpoint-every": "100000",
}
NORMAL = 1.645
EVERY = (1, 2, 5)


class Run(NamedTuple):
    """The evaluations of one seed, and the drops of its losses."""

    seed: int
    evaluations: list[Evaluation]
    drop: Array


class Values(NamedTuple):
    """What a run gives: raw and calibrated values with their standard errors, all (K, K)."""

    raw: Array
    raw_errors: Array
    calibrated: Array
    errors: Array


def trained(seed: int, folder: Path, more: list[str]) -> Run:
    """Train with a seed, or read what was trained there."""
    out = folder / f"seed-{seed}"
    if not (out / "sv.csv").exists():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            code = train([*chain.from_iterable(RUN.items()), *more, "--seed", str(seed), "--out", str(out)])
        if code:
            sys.exit(told.getvalue())
    drop = read_transfer(out / "sv.csv").provenance["loss_drop"]
    return Run(seed, read_log(out)[1], np.array(list(drop.values()), dtype=np.float64))


def values(run: Run, every: int) -> Values:
    """What this run gives where one step of `every` is evaluated."""
    schedule, ledger = Schedule(every, run.seed), Ledger(len(run.drop))
    for evaluation in run.evaluations:
        if schedule.evaluates(evaluation.step):
            ledger.add(replace(evaluation, weight=float(every)))
    errors = ledger.blocks.stderr(ledger.correction)
    scale = run.drop / ledger.phi.sum(0)
    return Values(ledger.phi, ledger.stderr, ledger.phi * scale, errors * scale)


def covered(found: Array, errors: Array, truth: Array) -> tuple[float, float, float]:
    """Share of 90% intervals (S, K, K) that hold the truth; standard error over error, and spread over value."""
    hits = float((np.abs(found - truth) < NORMAL * errors).mean())
    spread = found.std(0, ddof=1)
    return hits, float(np.median(np.median(errors, 0) / spread)), float(np.median(spread / np.abs(found.mean(0))))


def others(each: Array) -> Array:
    """The mean of all other seeds (S, K, K)."""
    return (each.sum(0) - each) / (len(each) - 1)


def main() -> None:
    """Train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--logs", type=Path, help="where runs are kept; by default they are thrown away")
    parser.add_argument("--small", action="store_true", help="see that it runs, in some seconds")
    arguments, more = parser.parse_known_args()
    if arguments.small:
        arguments.seeds, more = 2, ["--tokens", "30k"]
    with tempfile.TemporaryDirectory() as spare:
        folder = arguments.logs or Path(spare)
        runs = [trained(seed, folder, [flag for flag in more if flag != "--"]) for seed in range(arguments.seeds)]
    full = [values(run, 1) for run in runs]
    own = np.array([each.raw for each in full])
    truth = others(np.array([each.calibrated for each in full]))
    title = f"{len(runs)} seeds of {len(runs[0].evaluations)} steps: shares of 90% intervals that hold"
    table(title, "one step of", "calibrated: mean of seeds", "error / spread", "spread / value", "raw: the run itself")
    for every in EVERY:
        found = [values(run, every) for run in runs]
        hits, ratio, spread = covered(
            np.array([each.calibrated for each in found]), np.array([each.errors for each in found]), truth
        )
        raw = covered(np.array([each.raw for each in found]), np.array([each.raw_errors for each in found]), own)[0]
        row(every, f"{hits:.0%}", f"{ratio:.2f}", f"{spread:.1%}", "" if every == 1 else f"{raw:.0%}")
        must(f"coverage of the mean of seeds, one step of {every}", hits, 0.85, ">=")
        must(f"coverage of the mean of seeds, one step of {every}", hits, 0.95)
    if not arguments.small:
        finish()


if __name__ == "__main__":
    main()
