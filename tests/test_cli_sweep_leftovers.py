"""What is there of runs that others train, or that a program left whose launcher was killed."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.sweeps.claims import claimed, holder_of
from sweep_tools import game_plan, lines_of, trainer

from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.plans import Plan


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return runner(capsys)


def leave(tmp_path: Path, plan: Plan, D: float) -> Place:
    """The run log of a program whose launcher was killed."""
    place = Layout.of(tmp_path / "plan.jsonl").place(plan.runs[0].id)
    place.out.mkdir(parents=True, exist_ok=True)
    place.out.joinpath("runs.jsonl").write_text(json.dumps({"run": "x", "N": 1000, "D": D, "loss_a": 2}) + "\n")
    return place


@pytest.mark.parametrize(("D", "starts"), [(2000, 0), (1000, 1), (1950, 1)])
def test_a_run_that_is_there_whole_is_taken_and_not_trained_again(run: Run, tmp_path: Path, D: float, starts: int):
    """A part of it, or one within a twentieth of D, which a program that is stopped may leave, is none."""
    plan = game_plan(trainer(tmp_path), sources=("a",))
    leave(tmp_path, plan, D)
    outcome = run("launch", "plan.jsonl")
    assert f"1 of 1 run finished, {starts} of them now" in outcome.out, outcome.err
    assert len(lines_of(tmp_path / "plan-sweep", plan.runs[0].id, "starts")) == starts
    assert run("collect", "plan.jsonl", "--strict").code == 0


def test_what_a_failure_left_is_not_taken_and_what_came_after_it_is(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 9", sources=("a",))
    place = leave(tmp_path, plan, 1000)
    assert run("launch", "plan.jsonl", "--retries", 0).code == 1
    leave(tmp_path, plan, 2000)
    os.utime(place.out / "runs.jsonl", ns=(0, place.failure.stat().st_mtime_ns - 1))
    assert run("run", "plan.jsonl", "--index", 0).code == 1
    os.utime(place.out / "runs.jsonl", ns=(0, place.failure.stat().st_mtime_ns + 1))
    assert "was finished before" in run("run", "plan.jsonl", "--index", 0).out
    assert not place.failure.exists()


def test_collect_takes_what_is_whole(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), sources=("a",))
    leave(tmp_path, plan, 1000)
    assert "1 open:" in run("collect", "plan.jsonl").out, "a part of a run is none"
    place = leave(tmp_path, plan, 2000)
    with claimed(place.claim):
        assert run("collect", "plan.jsonl", "-o", "log.csv").code == 1, "its program may still write"
    taken = run("collect", "plan.jsonl", "-q", "-o", "log.csv", "--strict")
    assert (taken.code, taken.err) == (0, "")
    assert taken.out.startswith("1 of 1 run finished")


def test_what_collect_takes_and_cannot_take_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = game_plan(trainer(tmp_path), sources=("a",))
    leave(tmp_path, plan, 2000)

    def refuse(*given: object, **more: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("shapleymix_cli.sweeps.leftovers.claimed", refuse)
        told = run("collect", "plan.jsonl")
        assert told.code == 0
        assert "run 0 (a) has left a run log, which cannot be taken in this folder: Read-only file system" in told.err
        assert "1 open:" in told.out
    assert "run 0 (a) had ended with nobody there to see it" in run("collect", "plan.jsonl").err


# -- who holds a claim


def test_collect_says_who_trains_what(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path))
    place = Layout.of("plan.jsonl").place(plan.runs[1].id)
    place.folder.mkdir(parents=True)
    with claimed(place.claim):
        shown, told = run("collect", "plan.jsonl").out, run("collect", "plan.jsonl", "--json").document
        single = run("run", "plan.jsonl", "--index", 1)
    assert "1 being trained:" in shown
    assert f"pid {os.getpid()} on {socket.gethostname()} since 20" in shown
    assert "2 open:" in shown
    assert [one.get("held_by", {}).get("pid") for one in told["runs"]] == [None, os.getpid(), None]
    assert (single.code, f"is trained by pid {os.getpid()}" in single.err) == (1, True)
    assert holder_of(place.claim) is None
    assert "3 open:" in run("collect", "plan.jsonl").out


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": "x"}', '{"host": "x", "pid": "y", "since": ""}'])
def test_a_holder_that_did_not_sign_is_somebody(tmp_path: Path, text: str):
    """A launcher writes its name after it has the lock, and a full disk may keep it from that."""
    path = tmp_path / "claim"
    with claimed(path):
        path.write_text(text)
        assert str(holder_of(path)) == "another process"
    assert holder_of(path) is None
    assert holder_of(tmp_path / "none") is None


def test_asking_for_the_holder_takes_nothing_away(tmp_path: Path):
    """Who asks has the lock for a moment, in which a launcher must not take the run for another's."""
    import fcntl
    import threading

    path = tmp_path / "claim"
    path.touch()
    with path.open() as asked:
        fcntl.flock(asked, fcntl.LOCK_SH)
        threading.Timer(0.07, fcntl.flock, (asked, fcntl.LOCK_UN)).start()
        with claimed(path) as claim:
            assert claim is not None
