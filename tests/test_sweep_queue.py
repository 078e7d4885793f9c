"""What SLURM is told, and that it gets no run twice: with a pretended squeue, and no submitit."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_tools import Run, runner
from shapleymix_cli.sweeps import slurm
from shapleymix_cli.sweeps.claims import claimed
from shapleymix_cli.sweeps.queue import Handed, note
from shapleymix_cli.sweeps.sbatch import keywords, minutes, pairs_of
from sweep_tools import game_plan, trainer

from shapleymix.errors import UsageError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan

Calls = list[tuple[list[int], dict[str, str]]]
"""The runs and the options of each submission."""
SLURM = ("launch", "plan.jsonl", "--backend", "slurm")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What is submitted, as array 17, 18, ..., in place of SLURM."""
    calls: Calls = []

    def submit(
        plan: Plan, layout: Layout, indices: list[int], *, jobs: int | None, parameters: dict[str, str]
    ) -> list[SimpleNamespace]:
        calls.append((list(indices), parameters))
        ids = [f"{16 + len(calls)}_{task}" for task in range(len(indices))]
        if ids:
            note(layout, Handed(tuple(ids), tuple(plan.runs[index].id for index in indices)))
        return [SimpleNamespace(job_id=job) for job in ids]

    monkeypatch.setattr(slurm, "submit", submit)
    return calls


def squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """A program of that name, found first."""
    path = folder / "bin" / "squeue"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


# -- what sbatch is told


def test_values_may_hold_commas_and_names_that_submitit_does_not_know_are_handed_on(
    run: Run, tmp_path: Path, asked: Calls
):
    game_plan(trainer(tmp_path))
    words = ("--slurm", "nodelist=a,b,time=1:30:00", "--slurm", "gres=gpu:1,--core-spec=2,requeue=true")
    told = run(*SLURM, *words)
    assert (told.code, "submitit asks for 5 minutes" in told.err) == (0, False), told.err
    [(_, parameters)] = asked
    assert keywords(parameters) == {
        "slurm_nodelist": "a,b",
        "slurm_time": 90,
        "slurm_gres": "gpu:1",
        "slurm_additional_parameters": {"core_spec": 2, "requeue": True},
    }
    assert keywords({"setup": "module load x", "srun_args": "-n 1", "use_srun": "false", "comment": "007"}) == {
        "slurm_setup": ["module load x"],
        "slurm_srun_args": ["-n", "1"],
        "slurm_use_srun": False,
        "slurm_comment": "007",
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("60", 60), ("0:30", 1), ("90:00", 90), ("1:30:00", 90), ("1:30:01", 91), ("2-0", 2880), ("1-12:30", 2190)],
)
def test_times_are_minutes(text: str, wanted: int):
    """submitit reckons with them, and would multiply a text."""
    assert minutes(text) == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time", "no name=value"),
        ("time=", "no name=value"),
        ("time=1,--time=2", "given twice"),
        ("array=0-5", "submitit's own"),
        ("signal=USR1@5", "signal_delay_s"),
    ],
)
def test_what_cannot_be_told_is_refused(text: str, told: str):
    with pytest.raises(UsageError) as caught:
        pairs_of([text])
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["", "soon", "0", "-5", "1:2:3:4", "1-", "unlimited"])
def test_what_is_no_time_is_refused(text: str):
    with pytest.raises(UsageError, match="time"):
        minutes(text)


# -- nothing twice


def test_runs_that_wait_are_not_submitted_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Calls
):
    game_plan(trainer(tmp_path))
    first = run(*SLURM)
    assert "3 of 3 runs submitted: 17" in first.out
    assert "submitit asks for 5 minutes a run" in first.err
    squeue(tmp_path, monkeypatch, "printf '5\\n17_0\\n17_2\\n'")
    again = run(*SLURM)
    assert asked[1][0] == [1]
    assert "1 of 3 runs submitted: 18" in again.out
    assert "2 runs waiting or running already: 17_0 (run 0), 17_2 (run 2)" in again.out
    squeue(tmp_path, monkeypatch, "printf '17_0\\n17_2\\n18_0\\n'")
    last = run(*SLURM, "--json").document
    assert (last["submitted"], last["waiting"]) == ([], {"0": "17_0", "1": "18_0", "2": "17_2"})
    assert asked[2][0] == []


def test_runs_that_are_trained_without_slurm_are_not_submitted(run: Run, tmp_path: Path, asked: Calls):
    plan = game_plan(trainer(tmp_path))
    place = Layout.of("plan.jsonl").place(plan.runs[1].id)
    place.folder.mkdir(parents=True)
    with claimed(place.claim):
        told = run(*SLURM)
    assert asked[0][0] == [0, 2]
    assert f"1 run waiting or running already: pid {os.getpid()} on" in told.out


def test_runs_whose_jobs_are_over_are_submitted_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Calls
):
    game_plan(trainer(tmp_path))
    assert run(*SLURM).code == 0
    squeue(tmp_path, monkeypatch, "echo 4")
    assert "3 of 3 runs submitted: 18" in run(*SLURM).out
    assert [path.name for path in (tmp_path / "plan-sweep" / "slurm").glob("*.json")] == ["array-18.json"]


@pytest.mark.parametrize("says", ["echo 'Unable to contact slurm controller' >&2; exit 1", None])
def test_where_squeue_does_not_answer_nothing_is_submitted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Calls, says: str | None
):
    game_plan(trainer(tmp_path))
    assert run(*SLURM).code == 0
    if says is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        squeue(tmp_path, monkeypatch, says)
    refused = run(*SLURM)
    assert (refused.code, "squeue does not answer" in refused.err, len(asked)) == (2, True, 1)


def test_two_that_submit_at_once_and_a_broken_note_are_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Calls
):
    game_plan(trainer(tmp_path))
    assert run(*SLURM).code == 0
    squeue(tmp_path, monkeypatch, "true")
    with claimed(tmp_path / "plan-sweep" / "slurm" / "claim"):
        refused = run(*SLURM)
    assert (refused.code, "runs of this folder are submitted now by pid" in refused.err) == (2, True)
    (tmp_path / "plan-sweep" / "slurm" / "array-17.json").write_text("{")
    broken = run(*SLURM)
    assert (broken.code, "which runs wait cannot be told" in broken.err) == (2, True)
    assert len(asked) == 1
