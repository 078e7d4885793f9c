"""Ray, Metaflow and GNU parallel train a plan."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Run
from shapleymix_sweep.plans import state_of
from sweep_tools import counts, game_plan, own_program, programs, running, wait_for, written


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """What a started engine sees."""
    own = {"PATH": own_program(tmp_path), "USERNAME": "someone", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**os.environ, **own, "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(tmp_path)}


def test_ray_trains_a_plan_whose_worker_and_trainer_are_killed(run: Run, tmp_path: Path, env: dict[str, str]) -> None:
    """Ray asks what a dead worker started to end, and starts the task again; no run is trained by two."""
    pytest.importorskip("ray")
    plan = game_plan(tmp_path, "--sleep 6")
    (tmp_path / "sweep.py").write_text(written(run, "ray", ""))
    started = subprocess.Popen([sys.executable, "sweep.py", "plan.jsonl", "0"], env=env, cwd=tmp_path)
    try:
        wait_for(lambda: sum(counts(plan, "starts")) == 2, 120)
        os.kill(running("ray::train")[0], signal.SIGKILL)
        os.kill(programs(plan)[1], signal.SIGKILL)
        assert started.wait(timeout=240) == 0
    finally:
        started.kill()
    assert len(state_of(plan).results) == 3
    assert (counts(plan, "ends"), sum(counts(plan, "starts")) > 3) == ([1, 1, 1], True)


@pytest.mark.parametrize("engine", ["metaflow", "parallel"])
def test_an_engine_trains_a_plan(run: Run, tmp_path: Path, env: dict[str, str], engine: str) -> None:
    plan = game_plan(tmp_path, "--fail 1")
    words = {"metaflow": f"{sys.executable} file --no-pylint run --plan plan.jsonl", "parallel": "sh file"}
    if engine == "metaflow" or shutil.which("parallel") is None:
        pytest.importorskip(engine)
    (tmp_path / "file").write_text(written(run, engine, ""))
    subprocess.run(words[engine].split(), env=env, cwd=tmp_path, check=True)
    assert (len(state_of(plan).results), counts(plan, "ends")) == (3, [1, 1, 1])
