"""Sweeps on SLURM by submitit: its own executors, and a real SLURM of one node where the machine has the packages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psutil
import pytest
from shapleymix_cli.sweeps import slurm
from shapleymix_cli.sweeps.descendants import processes_of
from shapleymix_cli.sweeps.queue import Handed
from sweep_tools import check_log, game_plan, lines_of, start, trainer

from shapleymix.errors import UsageError
from shapleymix.sweeping.games import coalitions
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan, PlannedRun, read_plan
from shapleymix.sweeping.states import state_of

if TYPE_CHECKING:
    from submitit import Job

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that submitit starts find this checkout."""
    pytest.importorskip("submitit")
    paths = [*map(str, (ROOT, ROOT / "cli", ROOT / "adapters")), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return game_plan(trainer(tmp_path))


def submit(tmp_path: Path, indices: list[int], cluster: str) -> list[str]:
    """Submit runs and wait for what their tasks say."""
    layout = Layout.of(tmp_path / "plan.jsonl")
    plan = read_plan(tmp_path / "plan.jsonl")
    jobs = slurm.submit(plan, layout, indices, cluster=cluster)
    try:
        return [job.result() for job in jobs]
    finally:
        over(jobs if cluster == "local" else [])


def over(jobs: Sequence[Job[str]]) -> None:
    """Wait for the processes that submitit's local executor has started."""
    end = time.monotonic() + 20
    while not all(job.done() for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)


def failed() -> type[Exception]:
    """What a job that did not end well raises."""
    from submitit.core.utils import UncompletedJobError

    return UncompletedJobError


DEBUG = pytest.mark.filterwarnings(  # submitit's debug executor leaves its logs open
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@DEBUG
def test_a_task_trains_its_run_and_nothing_twice(tmp_path: Path, plan: Plan):
    assert submit(tmp_path, [0, 2], "debug") == ["finished", "finished"]
    assert submit(tmp_path, [0, 1, 2], "debug") == ["finished"] * 3
    assert [len(lines_of(tmp_path / "plan-sweep", run.id, "starts")) for run in plan.runs] == [1, 1, 1]


def test_a_task_whose_run_fails_is_a_job_that_fails(tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 1")
    with pytest.raises(failed(), match="failed: exit code 3"):
        submit(tmp_path, [1], "local")
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).status == ("open", "failed", "open")
    assert submit(tmp_path, [1], "local") == ["finished"]


def test_tasks_are_processes_of_their_own(tmp_path: Path, plan: Plan):
    assert submit(tmp_path, [0, 1], "local") == ["finished", "finished"]
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).count("finished") == 2


def test_arrays_have_a_thousand_tasks_at_most_and_share_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import submitit

    asked: list[int] = []
    told: dict[str, object] = {}

    class Counting:
        def __init__(self, folder: Path, cluster: str) -> None:
            self.cluster = cluster

        def update_parameters(self, **given: object) -> None:
            told.update(given)

        def map_array(self, task: slurm.Task, runs: list[PlannedRun]) -> list[SimpleNamespace]:
            asked.append(len(runs))
            return [SimpleNamespace(job_id=f"{len(asked)}_{task}") for task in range(len(runs))]

    monkeypatch.setattr(submitit, "AutoExecutor", Counting)
    layout = Layout.of(tmp_path / "plan.jsonl")
    parameters = {"time": "60", "partition": "gpu", "cpus_per_task": "4"}
    plan = grid(coalitions(("a",)), 1000, 2000, seeds=tuple(range(2300)), command="train {mixture} {seed} {out}")
    jobs = slurm.submit(plan, layout, range(2300), jobs=30, parameters=parameters)
    assert (asked, len(jobs)) == ([1000, 1000, 300], 2300)
    assert told["slurm_array_parallelism"] == 10
    assert Handed.load(layout.root / "slurm" / "array-2.json").runs == tuple(run.id for run in plan.runs[1000:2000])
    with pytest.raises(UsageError, match="--jobs 2 for 2300 runs, which are 3 arrays"):
        slurm.submit(plan, layout, range(2300), jobs=2)
    assert (told["slurm_time"], told["slurm_partition"], told["slurm_cpus_per_task"]) == (60, "gpu", 4)


def test_a_preempted_task_is_put_into_the_queue_again_as_it_is(tmp_path: Path):
    run = game_plan(trainer(tmp_path)).runs[2]
    task = slurm.Task(str(tmp_path))
    again = task.checkpoint(run)
    assert (again.function, again.args) == (task, (run,))


SAVING = """
import pathlib, signal, sys, time

out = pathlib.Path(sys.argv[2])
if (out / "checkpoint").exists():
    (out / "runs.csv").write_text("run,N,D,loss_a\\nx,1000,2000,3\\n")
    sys.exit(0)

def save(*given):
    time.sleep(0.5)
    (out / "checkpoint").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
(out / "started").touch()
time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_task_that_must_end_waits_for_its_program_s_checkpoint(tmp_path: Path, number: signal.Signals):
    """As under SLURM: the warning, and scancel, reach the task and its program at once."""
    (tmp_path / "saving.py").write_text(SAVING)
    command = f"{sys.executable} {tmp_path / 'saving.py'} {{mixture}} {{out}}"
    plan = grid(coalitions(("a",)), 1000, 2000, command=command)
    layout = Layout.of(tmp_path / "plan.jsonl")
    [job] = slurm.submit(plan, layout, [0], cluster="local")
    out = layout.place(plan.runs[0].id).out
    end = time.monotonic() + 20
    while not (out / "started").exists() and time.monotonic() < end:
        time.sleep(0.05)
    [task] = psutil.Process(int(job.job_id)).children()
    for one in [task, *processes_of(str(out.parent))]:
        one.send_signal(number)
    if number == signal.SIGUSR2:  # it is put into the queue again, and goes on
        assert job.result() == "finished"
    over([job])
    assert (out / "checkpoint").exists()
    assert state_of(plan, layout).status == ("finished" if number == signal.SIGUSR2 else "open",)


def test_a_task_trains_what_was_submitted_whatever_the_plan_says_now(tmp_path: Path, plan: Plan):
    layout = Layout.of(tmp_path / "plan.jsonl")
    (tmp_path / "plan.jsonl").unlink()
    jobs = slurm.submit(plan, layout, [0], cluster="local")
    game_plan(trainer(tmp_path), sources=("c", "d"))
    assert [job.result() for job in jobs] == ["finished"]
    over(jobs)
    assert state_of(plan, layout).status == ("finished", "open", "open")


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
    plan = game_plan(trainer(tmp_path), "--sleep 5")
    more = ("--backend", "slurm", "--jobs", 2, "--slurm", "partition=debug,time=0:05:00,mem=200M,requeue=true,nice=10")
    for submitted in ("3 of 3 runs submitted", "0 of 3 runs submitted\n3 runs waiting or running"):
        child = start("launch", tmp_path / "plan.jsonl", *more)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        assert submitted in out
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
