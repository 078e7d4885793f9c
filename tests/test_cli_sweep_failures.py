"""Runs that fail, a command that always does, and disks and folders that cannot be written, as `launch` tells them."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Run, runner
from shapleymix_cli.sweeps import attempts, pool
from shapleymix_cli.sweeps.children import Children
from shapleymix_cli.sweeps.descendants import processes_of
from sweep_tools import TRAINER, check_log, game_plan, lines_of, trainer, wait_for

import shapleymix as sm
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan

FIVE = ("a", "b", "c", "d", "e")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return runner(capsys)


def test_a_run_that_fails_is_tried_again_and_told(run: Run, tmp_path: Path):
    path = trainer(tmp_path)
    plan = game_plan(path, "--fail 2")
    first = run("launch", "plan.jsonl", "--retries", 0)
    assert first.code == 1
    assert "0 of 3 runs finished" in first.out
    assert "3 failed, each tried 1 time:" in first.out
    assert first.out.count("exit code 3: out of memory") == 3
    told = run("launch", "plan.jsonl", "--retries", 0, "--json")
    assert told.code == 1
    assert [one["reason"] for one in told.document["failed"]] == ["exit code 3"] * 3
    state = run("collect", "plan.jsonl", "--json").document
    assert [(one["status"], one["attempts"]) for one in state["runs"]] == [("failed", 2)] * 3
    assert run("collect", "plan.jsonl", "-o", "log.csv").code == 1
    last = run("launch", "plan.jsonl", "--jobs", 3)
    assert "3 of 3 runs finished, 3 of them now" in last.out
    assert [len(lines_of(tmp_path / "plan-sweep", one.id, "starts")) for one in plan.runs] == [3, 3, 3]
    assert run("collect", "plan.jsonl", "-o", "log.csv").code == 0
    check_log(tmp_path / "log.csv", plan)


def test_a_run_that_always_fails_ends_and_leaves_the_others(run: Run, tmp_path: Path):
    path = trainer(tmp_path)
    good = game_plan(path)
    lines = (tmp_path / "plan.jsonl").read_text().splitlines()
    bad = game_plan(path, "--fail 99")
    worse = (tmp_path / "plan.jsonl").read_text().splitlines()
    mixed = [json.dumps(json.loads(line) | {"of": 2}) for line in (lines[0], worse[1])]
    (tmp_path / "plan.jsonl").write_text("\n".join(mixed) + "\n")
    ended = run("launch", "plan.jsonl", "--retries", 3)
    assert (ended.code, "1 of 2 runs finished" in ended.out) == (1, True)
    assert "1 failed, each tried 4 times:" in ended.out
    assert len(lines_of(tmp_path / "plan-sweep", bad.runs[1].id, "starts")) == 4
    half = run("collect", "plan.jsonl", "-o", "log.csv")
    assert half.code == 0
    assert "1 of 2 runs are missing, 1 of which failed: index 1" in half.err
    assert sm.read_runs("log.csv").runs == (good.runs[0].label,)
    strict = run("collect", "plan.jsonl", "-o", "other.csv", "--strict")
    assert (strict.code, (tmp_path / "other.csv").exists()) == (1, False)


def test_a_program_that_cannot_be_started_is_a_failure_with_its_name(run: Run, tmp_path: Path):
    words = ("plan", "game", "--sources", "a", "-N", 10, "-D", 10, "-o", "p.jsonl")
    assert run(*words, "--command", "no-such-program {mixture} {out}").code == 0
    outcome = run("launch", "p.jsonl", "--retries", 0)
    assert outcome.code == 1
    assert "'no-such-program' cannot be started: No such file or directory" in outcome.out


def test_the_trainer_of_this_repository_is_told_how_to_be_had(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert run("plan", "game", "--sources", "a", "-N", "tiny=23712", "-D", "1k", "-o", "p.jsonl").code == 0
    monkeypatch.setattr(attempts, "_path", lambda: {"PATH": str(tmp_path)})
    told = run("launch", "p.jsonl", "--retries", 0).out
    assert "'shapleymix-irds' cannot be started: No such file or directory (pip install '.[irds]' in a clone" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told_once(run: Run, tmp_path: Path):
    game_plan(trainer(tmp_path))
    (tmp_path / "plan-sweep").mkdir(mode=0o500)
    outcome = run("launch", "plan.jsonl", "--jobs", 2)
    assert outcome.code == 2
    assert "cannot be written: Permission denied" in outcome.err


def test_a_full_disk_ends_the_sweep_with_its_reason(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    game_plan(trainer(tmp_path))

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shapleymix.sweeping.results.NamedTemporaryFile", full)
    outcome = run("launch", "plan.jsonl", "--jobs", 2)
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert "make room" in outcome.err


def test_many_failures_are_cut_as_other_lists_are(run: Run, tmp_path: Path):
    words = ("plan", "game", "--sources", "a,b,c,d,e", "-N", 10, "-D", 10, "-o", "p.jsonl")
    assert run(*words, "--command", "no-such-program {mixture} {out}").code == 0
    for command in (("launch", "p.jsonl", "--retries", 0, "--keep-going"), ("collect", "p.jsonl")):
        outcome = run(*command)
        assert outcome.out.count("cannot be started") == 20
        assert "31 failed" in outcome.out
        assert "... and 11 runs more: -v and --json show all" in outcome.out
        assert run(*command, "-v").out.count("cannot be started") == 31


def test_a_broken_result_is_mended_by_the_next_launch(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path))
    assert run("launch", "plan.jsonl").code == 0
    Layout.of("plan.jsonl").place(plan.runs[1].id).result.write_text("")
    assert run("collect", "plan.jsonl").out.startswith("2 of 3 runs finished")
    assert "3 of 3 runs finished" in run("launch", "plan.jsonl").out
    assert run("collect", "plan.jsonl", "-o", "log.csv", "--strict").code == 0
    check_log(tmp_path / "log.csv", plan)


def test_what_is_not_as_planned_is_told_when_it_is_trained(run: Run, tmp_path: Path):
    """A program that passes over {N} and one language: all runs are finished, and none is what was planned."""
    path = trainer(tmp_path)
    text = path.read_text().replace('"N": float(given.N)', '"N": 123456.0')
    path.write_text(text.replace("row |=", "ratios.pop('b', None)\nratios['zz'] = 0.0\nrow |="))
    game_plan(path)
    for words in (("run", "plan.jsonl", "--index", 2), ("launch", "plan.jsonl"), ("collect", "plan.jsonl", "--strict")):
        told = run(*words)
        assert told.code == 0
        for part in ("N is 123.5k, planned was 1k", "no loss of b at its end", "losses of zz, of which the plan says"):
            assert part in told.err, (words, told.err)


# -- a command that always fails


def tried(tmp_path: Path, plan: Plan) -> list[int]:
    """How often each run was started."""
    return [len(lines_of(tmp_path / "plan-sweep", one.id, "starts")) for one in plan.runs]


def test_a_command_that_always_fails_is_given_up_with_what_it_said(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 99", sources=FIVE)
    ended = run("launch", "plan.jsonl", "--jobs", 1)
    assert ended.code == 1
    assert tried(tmp_path, plan) == [1] * 5 + [0] * 26
    assert "gave up: 5 failed before any finished; 26 runs not tried:" in ended.out
    assert ended.err.count("failed: exit code 3") == 1, "a reason is told once, when it comes up"
    assert "run 0 (a) failed: exit code 3\n  step 1 of 2\n  out of memory\n" in ended.err
    assert "--keep-going" in ended.err
    found = run("launch", "plan.jsonl", "--json", "-q")
    assert (found.code, found.document["given_up"], len(found.document["failed"]), found.err) == (1, 26, 5, "")
    assert run("launch", "plan.jsonl", "--retries", 0, "--keep-going").code == 1
    assert min(tried(tmp_path, plan)) == 1


def test_runs_that_fail_alike_are_told_alike(run: Run, tmp_path: Path):
    """Their reasons named the folder of each: two runs never failed for the same reason."""
    path = trainer(tmp_path)
    path.write_text(path.read_text().replace("runs.jsonl", "losses.jsonl"))
    game_plan(path)
    told = run("launch", "plan.jsonl", "--retries", 0)
    assert told.err.count("failed: out: left no runs.csv or runs.jsonl") == 1
    assert told.out.count("out: left no runs.csv or runs.jsonl") == 3
    path.write_text(TRAINER.replace("(given.D)", "(given.D) / 2"))
    assert "out/runs.jsonl: ended at D = 1k, planned was 2k" in run("launch", "plan.jsonl", "--retries", 0).out


def test_a_few_runs_are_all_tried_as_often_as_was_asked_for(run: Run, tmp_path: Path):
    """There is nothing to be spared."""
    plan = game_plan(trainer(tmp_path), "--fail 1", sources=("a",), seeds=(0, 1, 2, 3, 4))
    assert "5 of 5 runs finished" in run("launch", "plan.jsonl").out
    assert tried(tmp_path, plan) == [2] * 5


def test_a_run_that_finishes_gives_hope(run: Run, tmp_path: Path):
    """Five fail at once while another still trains: it is waited for, and the others are tried after it."""
    path = trainer(tmp_path)
    broken = 'if given.mixture.count("=") == 1:\n    sys.exit(4)\ntime.sleep(1)\npairs ='
    path.write_text(path.read_text().replace("pairs =", broken, 1))
    plan = game_plan(path, sources=FIVE)
    lines = [json.loads(line) for line in (tmp_path / "plan.jsonl").read_text().splitlines()]
    order = [lines[5], *lines[:5], lines[6], lines[7]]
    text = "".join(json.dumps(line | {"index": place, "of": 8}) + "\n" for place, line in enumerate(order))
    (tmp_path / "plan.jsonl").write_text(text)
    ended = run("launch", "plan.jsonl", "--jobs", 2, "--retries", 0)
    assert "3 of 8 runs finished, 3 of them now" in ended.out
    assert "5 failed, each tried 1 time:" in ended.out
    assert tried(tmp_path, plan)[:8] == [1] * 8


# -- a machine without room, and a plan that changes


def test_a_machine_without_room_for_a_process_is_asked_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    game_plan(trainer(tmp_path), sources=("a",))
    begin, refused = Children.run, iter([errno.EAGAIN, errno.ENOMEM])

    def run_or_not(children: Children, *words: Any, **more: Any) -> int | None:
        if number := next(refused, None):
            raise OSError(number, os.strerror(number))
        return begin(children, *words, **more)

    monkeypatch.setattr(Children, "run", run_or_not)
    monkeypatch.setattr(attempts, "WAITS", (0.01, 0.01))
    assert "1 of 1 run finished" in run("launch", "plan.jsonl", "--retries", 0).out
    refused = iter([errno.EAGAIN] * 3)
    game_plan(trainer(tmp_path), sources=("b",))
    ended = run("launch", "plan.jsonl", "--retries", 0)
    assert "cannot be started: Resource temporarily unavailable" in ended.out


def test_too_many_jobs_are_refused_and_what_was_begun_ends(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = game_plan(trainer(tmp_path), "--sleep 20", sources=FIVE)
    start_thread, started = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        if thread.daemon and len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start_thread(thread)
        wait_for(lambda: any(tried(tmp_path, plan)))

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        ended = run("launch", "plan.jsonl", "--jobs", 8)
    assert ended.code == 2
    assert "8 runs at a time: can't start new thread after 2" in ended.err
    for one in plan.runs:
        assert processes_of(str(tmp_path / "plan-sweep" / one.id)) == []


def test_what_fails_while_it_watches_leaves_no_program_alone(tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--sleep 20", sources=("a",))
    sweep = pool.Sweep.of(plan, Layout.of(tmp_path / "plan.jsonl"), 0)

    def watch(now: pool.Sweep) -> None:
        if any(tried(tmp_path, plan)):
            raise OSError(5, "the terminal is gone")

    with pytest.raises(OSError, match="gone"):
        pool.launch(sweep, [{}], Children(5), watch)
    assert processes_of(str(tmp_path / "plan-sweep" / plan.runs[0].id)) == []


def test_a_plan_that_was_written_anew_meanwhile_is_told(run: Run, tmp_path: Path):
    path = trainer(tmp_path)
    change = "with open('plan.jsonl', 'a') as plan:\n    plan.write('\\n')\npairs ="
    path.write_text(path.read_text().replace("pairs =", change, 1))
    game_plan(path, sources=("a",))
    told = run("launch", "plan.jsonl")
    assert (told.code, "plan.jsonl was changed meanwhile" in told.err) == (0, True)
    game_plan(path, sources=("b",))
    missing = run("collect", "plan.jsonl", "-o", "log.csv")
    assert (missing.code, "1 folders there are of other runs" in missing.err) == (1, True)
