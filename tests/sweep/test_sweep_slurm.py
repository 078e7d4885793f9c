"""Sweeps on SLURM by submitit: its own executors, and a real SLURM of one node where the machine has the packages."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_tools import Run
from shapleymix_sweep import slurm
from shapleymix_sweep.grids import grid
from shapleymix_sweep.mixtures import coalitions
from shapleymix_sweep.plans import read_plan, state_of
from sweep_tools import ROOT, check_log, counts, game_plan, paths, programs, start, wait_for

from shapleymix.errors import UsageError

submitit = pytest.importorskip("submitit")
pytestmark = pytest.mark.filterwarnings(  # submitit leaves the processes of its local executor to themselves
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
NEEDED = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes that submitit starts find this checkout."""
    monkeypatch.setenv("PYTHONPATH", paths())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_tasks_train_their_runs_and_a_run_that_fails_is_a_job_that_fails(tmp_path: Path):
    plan = game_plan(tmp_path)
    slurm.submit(plan, [0, 2], on="local")
    wait_for(lambda: list(state_of(plan).results) == [0, 2])
    slurm.submit(plan, [0, 1, 2], on="local")
    wait_for(lambda: len(state_of(plan).results) == 3)
    assert counts(plan, "starts") == [1, 1, 1]
    plan = game_plan(tmp_path, "--fail 1", sources=("a",))
    slurm.submit(plan, [0], on="local")
    wait_for(lambda: state_of(plan).failures)
    assert "out of memory" in state_of(plan).failures[0]


@pytest.mark.parametrize("words", ["kill -TERM $$", "sh -c 'kill -TERM $$'; exit $?"])
def test_a_program_that_the_cluster_ends_has_not_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str):
    """Fault: it was told to end before its task was, and counted as failed."""
    (tmp_path / "ended.sh").write_text(words)
    command = f"sh {tmp_path / 'ended.sh'} {{mixture}} {{out}}"
    grid(coalitions(("a",)), 1000, 2000, command=command).write(tmp_path / "plan.jsonl")
    plan = read_plan(tmp_path / "plan.jsonl")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        slurm.Task()(plan.runs[0], plan.place(0))
    assert state_of(plan).failures == {}


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
(out / "started").write_text(f"{__import__('os').getpid()} {__import__('os').getppid()}")
time.sleep(60)
"""


def test_a_task_whose_time_is_over_waits_for_a_checkpoint_and_queues_again(tmp_path: Path):
    """As under SLURM: the warning reaches the task and its program at once."""
    (tmp_path / "saving.py").write_text(SAVING)
    command = f"{sys.executable} {tmp_path / 'saving.py'} {{mixture}} {{out}}"
    grid(coalitions(("a",)), 1000, 2000, command=command).write(tmp_path / "plan.jsonl")
    plan = read_plan(tmp_path / "plan.jsonl")
    slurm.submit(plan, [0], on="local")
    out = plan.place(0) / "out"
    wait_for(lambda: (out / "started").exists() and (out / "started").read_text())
    for pid in (out / "started").read_text().split():
        os.kill(int(pid), signal.SIGUSR2)
    wait_for(lambda: state_of(plan).results)
    assert (out / "checkpoint").exists()


def test_arrays_have_a_thousand_tasks_at_most_and_options_are_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []
    told: dict[str, object] = {}

    class Counting:
        def __init__(self, **given: object) -> None:
            told.update(given)

        def update_parameters(self, **given: object) -> None:
            told.update(given)

        def map_array(self, task: slurm.Task, runs: list[object], places: list[Path]) -> list[SimpleNamespace]:
            asked.append(len(runs))
            return [SimpleNamespace(job_id=f"{len(asked)}_{task}") for task in range(len(places))]

    monkeypatch.setattr(submitit, "AutoExecutor", Counting)
    command = "train {mixture} {seed} {out}"
    grid(coalitions(("a",)), 1000, 2000, seeds=range(2300), command=command).write(tmp_path / "plan.jsonl")
    options = slurm.parse_options(["partition=gpu,time=1:30:00,nodelist=a,b", "requeue=true,cpus-per-task=4"])
    jobs = slurm.submit(read_plan(tmp_path / "plan.jsonl"), range(2300), jobs=30, options=options)
    assert ((asked, len(set(jobs))), told["slurm_array_parallelism"]) == (([1000, 1000, 300], 2300), 30)
    wanted = {"partition": "gpu", "time": "1:30:00", "nodelist": "a,b", "requeue": True, "cpus_per_task": "4"}
    assert told["slurm_additional_parameters"] == wanted


@pytest.mark.parametrize("text", ["partition", "partition=", "=gpu", "array=0-5"])
def test_what_is_no_option_is_refused(text: str):
    with pytest.raises(UsageError):
        slurm.parse_options([text])


def test_where_there_is_no_slurm_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run):
    plan = game_plan(tmp_path)
    monkeypatch.setenv("PATH", "")
    assert run("launch", tmp_path / "plan.jsonl", "--slurm").code == 2
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError):
        slurm.submit(plan, [0])


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


def slurm_says(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout


def test_a_real_slurm_trains_a_plan_that_is_killed_and_resumed(tmp_path: Path, node: Path):
    plan = game_plan(tmp_path, "--sleep 3")
    options = ("--jobs", 1, "--slurm", "partition=debug,time=0:05:00,mem=200M,requeue=true,nice=10")

    def launched() -> str:
        child = start("launch", tmp_path / "plan.jsonl", *options, "--json")
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        return out

    launched()
    wait_for(lambda: len(state_of(plan).results) >= 1 and programs(plan), 90)
    slurm_says("scancel", "--user=root")
    wait_for(lambda: not slurm_says("squeue", "-h") and not programs(plan), 60)
    done = state_of(plan)
    assert 1 <= len(done.results) < 3
    assert done.failures == {}, "a run that was cancelled has not failed"
    launched()
    launched()  # what waits is submitted once more, and trained once
    wait_for(lambda: len(state_of(plan).results) == 3, 120)
    wait_for(lambda: not slurm_says("squeue", "-h"), 90)
    assert counts(plan, "ends") == [1] * 3
    assert all(counts(plan, "starts")[index] == 1 for index in done.results)
    collected = start("collect", tmp_path / "plan.jsonl", "-o", tmp_path / "log.csv", "--strict")
    _, err = collected.communicate(timeout=60)
    assert collected.returncode == 0, err
    check_log(tmp_path / "log.csv", plan)
