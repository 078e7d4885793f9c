"""Two sharded ranks that are killed, stopped, or meet a broken or full disk: in the end every file is the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from shapleymix.tables.run_reading import read_runs
from tests.irds.training import QUICK, STEPS, environment, reached, said, tree

HERE = Path(__file__).parent
LAST = f"step-{STEPS:09d}"
FSDP = ("--parallel", "fsdp")


class Ranks:
    """Starts runs of several ranks, and ends them."""

    def __init__(self) -> None:
        command = [sys.executable, str(HERE / "forked_ranks.py")]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment(), stdin=pipe, stdout=pipe, text=True)
        self.pids: list[int] = []

    def begin(self, out: Path, *more: str, ranks: int = 2, **hindrance: Any) -> None:
        """Start a run."""
        arguments = [*QUICK, "--out", str(out), *(more or FSDP)]
        order = {"ranks": ranks, "arguments": arguments, "err": str(out.with_suffix(".err")), **hindrance}
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)
        self.pids = self.answer()

    def answer(self) -> list[int]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run(self, out: Path, *more: str, **rest: Any) -> list[int]:
        """A whole run; the exit codes."""
        self.begin(out, *more, **rest)
        return self.answer()

    def end(self, out: Path, step: int, sign: signal.Signals, pause: float = 0.0) -> list[int]:
        """Send a signal to all ranks, or SIGTERM to the last, some time after `step`; the exit codes."""
        limit = time.monotonic() + 60
        while reached(out) < step:
            assert time.monotonic() < limit, said(out)
            time.sleep(0.002)
        time.sleep(pause)
        for pid in self.pids if sign is signal.SIGKILL else self.pids[-1:]:
            os.kill(pid, sign)
        return self.answer()


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    with started.process as process:  # closes its input, at which it ends
        yield started
    assert process.returncode == 0


@pytest.fixture(scope="module")
def whole(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert ranks.run(out) == [0, 0], said(out)
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def test_killed_at_random_moments_while_a_checkpoint_is_written(ranks: Ranks, whole: Path, tmp_path: Path) -> None:
    out, rng, left = tmp_path / "run", np.random.default_rng(20261122), 0
    for step in (1, 5, 9):
        ranks.begin(out, slow=0.3)
        assert ranks.end(out, step, signal.SIGKILL, rng.uniform(0, 0.1)) == [-signal.SIGKILL] * 2
        left += len(list(out.glob("checkpoints/.step-*")))
    assert left > 0, "no kill has met a checkpoint that was being written"
    assert ranks.run(out) == [0, 0], said(out)
    assert tree(out) == tree(whole)


def test_a_signal_waits_for_what_is_being_written(ranks: Ranks, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ranks.begin(out, slow=0.3)
    assert ranks.end(out, 5, signal.SIGTERM) == [128 + signal.SIGTERM] * 2, said(out)
    assert not list(out.glob("checkpoints/.step-*"))
    steps = [int(path.name.removeprefix("step-")) for path in sorted((out / "checkpoints").iterdir())]
    assert len(steps) == 2
    assert steps[0] == 4
    assert f"stopped by SIGTERM after step {steps[1]}; the same command continues" in said(out)
    assert ranks.run(out) == [0, 0], said(out)
    assert tree(out) == tree(whole)


def test_a_finished_run_is_the_same_whoever_runs_it_again(ranks: Ranks, whole: Path, copy: Path) -> None:
    for number in (2, 1):
        for name in ("sv.csv.json", "summary.json", "sv_raw.csv"):
            (copy / name).unlink()
        assert ranks.run(copy, ranks=number) == [0] * number, said(copy)
        assert tree(copy) == tree(whole)


def test_two_ranks_fall_back_on_the_same_checkpoint(ranks: Ranks, whole: Path, copy: Path) -> None:
    file = copy / "checkpoints" / LAST / "rank-00001.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert ranks.run(copy) == [0, 0], said(copy)
    assert said(copy).count(f"warning: the checkpoint of step 12 is broken: {file}: is not as it was written") == 1
    assert said(copy).count("warning: the run goes on from step 8 instead") == 1
    assert tree(copy) == tree(whole)


def test_a_disk_of_one_rank_that_is_full_ends_both(ranks: Ranks, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert ranks.run(out, full=1, slow=0.05) == [2, 2], said(out)
    file = out / "checkpoints" / ".step-000000008" / "rank-00001.safetensors"
    assert f"error: {file}: cannot be written: No space left on device" in said(out)
    assert "Traceback" not in said(out)
    assert [path.name for path in sorted((out / "checkpoints").glob("step-*"))] == ["step-000000000", "step-000000004"]
    assert ranks.run(out) == [0, 0], said(out)
    assert tree(out) == tree(whole)


def test_a_rank_that_is_killed_alone_is_missed_in_plain_words(ranks: Ranks, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ranks.begin(out)
    del ranks.pids[0]
    assert ranks.end(out, 2, signal.SIGKILL) == [1, -signal.SIGKILL]
    assert "error: another rank has ended; if it has not said why, it was killed" in said(out)
    assert "Traceback" not in said(out)


@pytest.mark.parametrize("name", ["metrics.jsonl", "sv_raw.csv"])
def test_a_file_that_the_first_rank_cannot_write_ends_both(name: str, ranks: Ranks, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / name).symlink_to("/dev/full")
    assert ranks.run(out) == [2, 2], said(out)
    assert f"error: {out / name}: cannot be written: No space left on device" in said(out)
    assert "Traceback" not in said(out)


def test_ranks_that_hold_copies_of_shards_write_them_once(ranks: Ranks, tmp_path: Path) -> None:
    more = ("--parallel", "hsdp", "--shard-size", "2", "--batch", "8", "--tokens", "3072")
    outs = [tmp_path / name for name in ("whole", "stopped")]
    assert ranks.run(outs[0], *more, ranks=4) == [0] * 4, said(outs[0])
    sizes = [path.stat().st_size for path in sorted(outs[0].glob(f"checkpoints/{LAST}/rank-*"))]
    assert len(sizes) == 4
    assert max(sizes) < 1.5 * min(sizes)
    shutil.copytree(outs[0], outs[1])
    (outs[1] / "checkpoints" / LAST / "rank-00003.safetensors").unlink()
    assert ranks.run(outs[1], *more, ranks=4) == [0] * 4, said(outs[1])
    assert tree(outs[1]) == tree(outs[0])
    (outs[1] / "checkpoints" / LAST / "rank-00001.safetensors").unlink()
    assert ranks.run(outs[1], *more) == [0] * 2, said(outs[1])
    logs = [read_runs(out / "runs.csv") for out in outs]
    assert np.allclose(logs[0].loss, logs[1].loss, rtol=1e-4)


def test_two_ranks_continue_a_checkpoint_of_one(ranks: Ranks, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ranks.begin(out, ranks=1)
    assert ranks.end(out, 5, signal.SIGTERM) == [128 + signal.SIGTERM]
    assert ranks.run(out) == [0, 0], said(out)
    logs = [read_runs(folder / "runs.csv") for folder in (out, whole)]
    assert np.allclose(logs[0].loss, logs[1].loss, rtol=1e-4)
    assert len(list(out.glob(f"checkpoints/{LAST}/rank-*"))) == 2
