"""`kill -9` at any step, then the same command: the same bytes as the run that was never killed."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from shapleymix.tables.run_reading import read_runs
from tests.irds.training import QUICK, SCRIPT, STEPS, environment, results, said, start, train, wait_for_step

KILLS = np.random.default_rng(20261121).integers(1, STEPS, size=3).tolist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Results of a process that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    run = start(out)
    assert run.wait(timeout=200) == 0, said(out)
    assert set(results(out)) == {"runs.csv", "sv.csv", "sv_raw.csv"}
    return results(out)


def test_a_process_gives_what_this_one_gives(whole: dict[str, bytes], tmp_path: Path) -> None:
    assert train(tmp_path / "run") == 0
    assert results(tmp_path / "run") == whole


def test_killed_at_random_steps_again_and_again(whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "run"
    for step in sorted(KILLS):
        run = start(out)
        wait_for_step(run, out, step)
        run.send_signal(signal.SIGKILL)
        assert run.wait(timeout=200) == -signal.SIGKILL
    run = start(out)
    assert run.wait(timeout=200) == 0, said(out)
    assert results(out) == whole


def test_terminated_from_outside(whole: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(out)
    wait_for_step(run, out, 2)
    run.terminate()
    assert run.wait(timeout=200) == 128 + signal.SIGTERM
    assert "the same command continues" in said(out)
    assert "Traceback" not in said(out)
    assert train(out) == 0
    assert results(out) == whole


def test_a_sharded_checkpoint_after_a_measurement_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "run"
    more = ("--parallel", "fsdp", "--eval-at", "1792")  # step 8, which is checkpointed as well
    assert start(out, *more, ranks=2).wait(timeout=200) == 0, said(out)
    last = read_runs(out / "runs.csv").loss[-1]
    shutil.rmtree(out / "checkpoints" / f"step-{STEPS:09d}")
    assert train(out, *more) == 0
    assert np.allclose(read_runs(out / "runs.csv").loss[-1], last, rtol=1e-4)


def test_a_disk_that_takes_no_checkpoint_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    command = [sys.executable, str(SCRIPT), *QUICK, "--out", str(tmp_path / "run")]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, preexec_fn=small_files, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""
