"""Sweeps on SLURM by submitit: its own executors, and a real SLURM of one node where the machine has the packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shapleymix_cli.main import commands
from shapleymix_cli.sweeps import slurm
from sweep_tools import check_log, game_plan, lines_of, start, trainer

from shapleymix.errors import UsageError
from shapleymix.sweeping.collecting import state_of
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that submitit starts find this checkout."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "cli", ROOT / "adapters"))))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return game_plan(trainer(tmp_path))


def submit(tmp_path: Path, indices: list[int], cluster: str) -> list[str]:
    """Submit runs and wait for what their tasks say."""
    layout = Layout.of(tmp_path / "plan.jsonl")
    return [job.result() for job in slurm.submit(str(tmp_path / "plan.jsonl"), layout, indices, cluster=cluster)]


DEBUG = pytest.mark.filterwarnings(  # submitit's debug executor leaves its logs open
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@DEBUG
def test_a_task_trains_its_run_and_nothing_twice(tmp_path: Path, plan: Plan):
    assert submit(tmp_path, [0, 2], "debug") == ["finished", "finished"]
    assert submit(tmp_path, [0, 1, 2], "debug") == ["finished"] * 3
    assert [len(lines_of(tmp_path / "plan-sweep", run.id, "starts")) for run in plan.runs] == [1, 1, 1]


@DEBUG
def test_a_task_says_how_its_run_failed(tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 1")
    assert submit(tmp_path, [1], "debug") == ["failed exit code 3"]
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).status == ("open", "failed", "open")
    assert submit(tmp_path, [1], "debug") == ["finished"]


def test_tasks_are_processes_of_their_own(tmp_path: Path, plan: Plan):
    assert submit(tmp_path, [0, 1], "local") == ["finished", "finished"]
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).count("finished") == 2


def test_arrays_have_a_thousand_tasks_at_most_and_share_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import submitit

    asked: list[int] = []
    told: dict[str, object] = {}

    class Counting:
        def __init__(self, folder: Path, cluster: str) -> None:
            told["cluster"] = cluster

        def update_parameters(self, **given: object) -> None:
            told.update(given)

        def map_array(self, task: slurm.Task, indices: list[int]) -> list[str]:
            asked.append(len(indices))
            return ["job"] * len(indices)

    monkeypatch.setattr(submitit, "AutoExecutor", Counting)
    layout = Layout.of(tmp_path / "plan.jsonl")
    parameters = {"time": "60", "partition": "gpu", "cpus-per-task": "4"}
    jobs = slurm.submit("plan.jsonl", layout, range(2300), jobs=30, parameters=parameters)
    assert (asked, len(jobs)) == ([1000, 1000, 300], 2300)
    assert told["slurm_array_parallelism"] == 10
    assert (told["slurm_time"], told["slurm_partition"], told["slurm_cpus_per_task"]) == (60, "gpu", 4)


def test_what_sbatch_is_told_may_hold_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: dict[str, str] = {}

    def record(plan: str, layout: Layout, indices: list[int], **given: dict[str, str]) -> list[str]:
        told.update(given["parameters"])
        return []

    game_plan(trainer(tmp_path))
    monkeypatch.setattr(slurm, "submit", record)
    words = ["--backend", "slurm", "--slurm", "nodelist=a,b,time=5", "--slurm", "gres=gpu:1"]
    assert commands.main(["launch", str(tmp_path / "plan.jsonl"), *words], standalone_mode=False) == 0
    assert told == {"nodelist": "a,b", "time": "5", "gres": "gpu:1"}


def test_a_preempted_task_is_put_into_the_queue_again_as_it_is(tmp_path: Path):
    task = slurm.Task("plan.jsonl", str(tmp_path))
    again = task.checkpoint(3)
    assert (again.function, again.args) == (task, (3,))


def test_where_there_is_no_slurm_it_is_said(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="SLURM or submitit refuses"):
        submit(tmp_path, [0], "slurm")
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match="needs submitit"):
        submit(tmp_path, [0], "slurm")


# -- a real one


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A SLURM of this machine alone, for as long as a test takes."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and Debian's slurmctld, slurmd, slurm-client, munge (not here: {', '.join(missing)})")
    folder = tmp_path / "slurm-node"
    script = ROOT / "tests" / "slurm-node.sh"
    done = subprocess.run(["bash", script, "start", folder], capture_output=True, text=True, timeout=90, check=False)
    if done.returncode:
        pytest.skip(f"SLURM does not start here: {done.stderr[-300:]}")
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    yield folder
    subprocess.run(["bash", script, "stop", folder], capture_output=True, timeout=30, check=False)


def queued() -> str:
    """Jobs that wait or run."""
    return subprocess.run(["squeue", "-h"], capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_real_slurm_trains_a_plan(tmp_path: Path, node: Path):
    plan = game_plan(trainer(tmp_path), "--sleep 0.2")
    more = ("--backend", "slurm", "--jobs", 2, "--slurm", "partition=debug,time=5,mem=200M")
    for _ in range(2):  # the second arrays find everything trained, or held
        child = start("launch", tmp_path / "plan.jsonl", *more)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        assert "of 3 runs submitted" in out
    layout = Layout.of(tmp_path / "plan.jsonl")
    end = time.monotonic() + 90
    while queued() and time.monotonic() < end:
        time.sleep(0.5)
    assert state_of(plan, layout).count("finished") == len(plan)
    child = start("collect", tmp_path / "plan.jsonl", "-o", tmp_path / "log.csv", "--strict")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    check_log(tmp_path / "log.csv", plan)
    assert [len(lines_of(tmp_path / "plan-sweep", run.id, "starts")) for run in plan.runs] == [1] * 3
