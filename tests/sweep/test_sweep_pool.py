"""Runs as programs on this machine: so many at a time, tried again, interrupted, killed and resumed."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
from cli_tools import Run
from shapleymix_sweep.grids import grid
from shapleymix_sweep.mixtures import coalitions
from shapleymix_sweep.plans import read_plan, state_of
from shapleymix_sweep.running import Pool, Programs, _is_local, attempt
from sweep_tools import check_log, counts, game_plan, programs, running, start, wait_for, without_locks

from shapleymix.errors import UsageError

THREE = ("a", "b", "c")
Launcher = Callable[..., subprocess.Popen[str]]


# -- a pool


def test_a_plan_is_trained_once_and_collected(run: Run, tmp_path: Path):
    plan = game_plan(tmp_path, sources=THREE)
    dry = run("launch plan.jsonl --dry-run --json").document
    assert dry["open"] == list(range(7))
    assert str(plan.place(0)) in dry["commands"][0]
    assert run("launch plan.jsonl --jobs 3 --json").document["trained"] == 7
    assert run("launch plan.jsonl --json").document["trained"] == 0
    assert counts(plan, "starts") == counts(plan, "ends") == [1] * 7
    assert run("collect plan.jsonl -o log.csv --strict").code == 0
    check_log(Path("log.csv"), plan)


def test_runs_that_fail_are_named_with_their_reasons(run: Run, tmp_path: Path):
    plan = game_plan(tmp_path, "--fail 9", sources=THREE)
    found = run("launch plan.jsonl --retries 1 --json")
    assert ((found.code, len(found.document["failed"])), counts(plan, "starts")) == ((1, 7), [2] * 7)
    assert found.document["failed"][0]["reason"] == "exit code 3: out of memory"
    assert "out of memory" in found.err, "it is said when it happens"


def test_a_program_that_is_not_there_fails_and_a_whole_log_counts_whatever_the_exit_code(tmp_path: Path):
    plan = game_plan(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(path.read_text() + "sys.exit(1)\n")
    grid(coalitions(("a",)), 1, 1, command="no-such-program {mixture} {out}").write(tmp_path / "none.jsonl")
    none, whole = Pool(read_plan(tmp_path / "none.jsonl"), retries=0), Pool(plan, retries=0)
    none.run()
    whole.run()
    assert "no-such-program" in none.failed[0]
    assert (whole.trained, whole.failed) == (3, {})


@pytest.mark.parametrize(
    ("here", "words", "seen", "idle"),
    [
        ("0", "--gpus 0,1,2,3", {"0", "1", "2", "3"}, ""),
        ("0", "--gpus 0,1,2,3 --gpus-per-run 2 --jobs 4", {"0,1", "2,3"}, ""), ("0", "--gpus 4 --jobs 3", {"4"}, ""),
        ("7", "--jobs 4", {"7"}, ""), ("5, 6,GPU-9", "", {"5", "6", "GPU-9"}, ""),
        ("5,6,7", "--jobs 2", {"5", "6"}, "idle GPUs: 7 "), ("5,6,7", "--gpus-per-run 2", {"5,6"}, "idle GPUs: 7 "),
    ],
)  # fmt: skip
def test_gpus_are_given_out_in_turn_and_what_idles_is_said(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, words: str, seen: set[str], idle: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", here)
    plan = game_plan(tmp_path, "--sleep 0.5", sources=THREE)
    found = run(f"launch plan.jsonl {words}")
    assert (found.code, ("idle" in found.err, idle in found.err)) == (0, (bool(idle), True))
    files = [plan.place(index) / "out" / "starts" for index in range(len(plan))]
    assert {path.read_text().split()[1] for path in files} == seen
    with pytest.raises(UsageError):
        Pool(plan).run(gpus=("0",), gpus_per_run=2)


def test_run_trains_one_run_for_any_scheduler(run: Run, tmp_path: Path):
    plan = game_plan(tmp_path, "--fail 2")
    words = "run plan.jsonl --index"
    assert str(plan.place(2) / "out") in run(f"{words} 2 --dry-run").out
    failed = run(f"{words} 2 --retries 1 --json")
    assert (failed.code, failed.document["error"]["location"]["file"]) == (1, str(plan.place(2) / "log.txt"))
    assert run(f"{words} 2 --json").document["status"] == "finished"
    assert run(f"{words} 3").code == 2
    assert run(f"{words} 1 --retries 2").code == 0
    assert (list(state_of(plan).results), counts(plan, "starts")) == ([1, 2], [0, 3, 3])


@pytest.mark.parametrize("words", ["run plan.jsonl --index 0", "launch plan.jsonl"])
def test_a_run_that_takes_too_long_is_ended_and_tried_again_where_it_was(run: Run, tmp_path: Path, words: str):
    plan = game_plan(tmp_path, "--sleep 1.5", sources=("a",))
    late = run(f"{words} --timeout 0.01m --retries 0")
    assert (late.code, "0.6 s" in late.err, programs(plan)) == (1, True, [])
    assert "0.6 s" in state_of(plan).failures[0]
    assert run(f"{words} --timeout 0.6 --retries 9").code == 0
    assert counts(plan, "ends") == [1]
    assert sum(counts(plan, "starts")) > 2
    for wrong in ("0", "1x", "-3", "h"):
        assert run(f"{words} --timeout {wrong}").code == 2


def test_a_deaf_program_is_killed_when_its_time_and_its_grace_are_over(tmp_path: Path):
    plan = game_plan(tmp_path, "--sleep 60", "--deaf", sources=("a",))
    how, reason = attempt(plan.runs[0], plan.place(0), Programs(grace=0.5, limit=0.5))
    assert (how, "0.5 s" in reason, programs(plan)) == ("failed", True, [])


# -- interrupted


def test_ctrl_c_ends_the_programs_and_launching_again_resumes(tmp_path: Path, launcher: Launcher):
    plan = game_plan(tmp_path, "--sleep 1.5")
    first = launcher("--jobs", 2)
    wait_for(lambda: len(programs(plan)) == 2)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=30)
    assert ((first.returncode, out, "Traceback" in err), programs(plan)) == ((130, "", False), [])
    assert state_of(plan).failures == {}, "a stop is no failure"
    again = launcher("--jobs", 3)
    assert again.wait(timeout=60) == 0
    assert counts(plan, "ends") == [1, 1, 1]


def test_a_second_signal_does_not_wait(tmp_path: Path, launcher: Launcher):
    plan = game_plan(tmp_path, "--sleep 60", "--deaf")
    child = launcher("--jobs", 2)
    wait_for(lambda: sum(counts(plan, "starts")) == 2)
    child.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert len(programs(plan)) == 2, "they may write a checkpoint"
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=20) == 130
    assert programs(plan) == []


def test_all_that_a_shell_started_ends_with_it_after_the_grace(tmp_path: Path):
    """A shell ends at once; what it runs has the grace to write its checkpoint, and is then killed."""
    script = "import pathlib,signal,sys,time; signal.signal(15, lambda *_: time.sleep(.3) or pathlib.Path(sys.argv[1])"
    script += ".touch()); pathlib.Path(sys.argv[2]).touch(); time.sleep(60); time.sleep(60)"
    saved, began = tmp_path / "saved", tmp_path / "began"
    ours = Programs(grace=1)
    with (tmp_path / "log").open("wb") as log:
        words = ["sh", "-c", f"{sys.executable} -c '{script}' {saved} {began} & wait"]
        thread = threading.Thread(target=ours.run, args=(words, log, dict(os.environ), log.fileno()))
        thread.start()
        wait_for(began.exists)
        ours.stopped.set()
        thread.join(timeout=20)
    assert not thread.is_alive()
    assert saved.exists()
    wait_for(lambda: running(began) == [])  # what is killed may stay a moment


# -- several launchers


def test_two_launchers_share_a_plan(tmp_path: Path, launcher: Launcher):
    plan = game_plan(tmp_path, "--sleep 0.3", sources=THREE)
    both = [launcher("--jobs", 2, "--json") for _ in range(2)]
    told = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert (counts(plan, "starts"), sum(one["trained"] for one in told)) == ([1] * 7, 7)
    assert [one["finished"] for one in told] == [7, 7]


@pytest.mark.usefixtures("locks")
def test_a_program_whose_launcher_was_killed_keeps_its_run(tmp_path: Path, launcher: Launcher, run: Run):
    plan = game_plan(tmp_path, "--sleep 4", sources=("a",))
    first = start("run", plan.file, "--index", 0)
    wait_for(lambda: len(programs(plan)) == 1)
    first.kill()
    first.communicate()
    assert attempt(plan.runs[0], plan.place(0), Programs()) == ("held", ""), "it trains on"
    held = run("run plan.jsonl --index 0 --json")
    assert (held.code, held.document["error"]["code"]) == (75, "held")
    again = launcher()
    assert again.wait(timeout=60) == 0
    assert counts(plan, "starts") == counts(plan, "ends") == [1], "the second launcher waited for it"
    assert not (plan.place(0) / "claim.held").exists()


def test_without_locks_a_claim_of_another_host_is_kept_until_its_file_is_removed(
    tmp_path: Path, launcher: Launcher, run: Run, monkeypatch: pytest.MonkeyPatch
):
    without_locks(tmp_path / "lockless", monkeypatch)
    plan = game_plan(tmp_path, sources=("a",))
    claim = plan.place(0) / "claim.held"
    claim.parent.mkdir(parents=True)
    claim.write_text("elsewhere 1:2\n")
    held = run("run plan.jsonl --index 0 --json")
    assert (held.code, str(claim) in held.document["error"]["hint"]) == (75, True)
    waiting = launcher()
    time.sleep(2.5)
    assert (waiting.poll(), claim.read_text(), counts(plan, "starts")) == (None, "elsewhere 1:2\n", [0])
    claim.unlink()
    assert waiting.wait(timeout=30) == 0
    assert waiting.communicate()[1].count(str(claim)) == 1
    assert counts(plan, "ends") == [1]


def test_a_lock_that_fails_otherwise_is_said_with_its_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan = game_plan(tmp_path, sources=("a",))

    monkeypatch.setattr("fcntl.flock", Mock(side_effect=OSError(errno.EIO, "Input/output error")))
    found = run("run plan.jsonl --index 0")
    assert (found.code, str(plan.place(0) / "claim") in found.err) == (1, True)


LOCAL = ("fuse.sshfs rw", "lustre rw,localflock", "nfs rw,local_lock=all")
SHARED = ("lustre rw,flock", "nfs4 rw,local_lock=none", "ext4 rw", "fuseblk rw")


@pytest.mark.parametrize(("mount", "local"), [(one, one in LOCAL) for one in LOCAL + SHARED])
def test_locks_that_other_hosts_may_not_see_are_told_by_the_mount(tmp_path: Path, mount: str, local: bool):
    (tmp_path / "mounts").write_text(f"d / fuse.root rw 0 0\nx {tmp_path} {mount} 0 0\n")
    assert _is_local(tmp_path / "deep" / "claim", tmp_path / "mounts") == local


@pytest.mark.usefixtures("locks")
def test_whatever_is_killed_the_log_is_complete_and_right(tmp_path: Path, launcher: Launcher, run: Run):
    """Launchers and runs are killed at random, two launchers at once, until the last launcher is left in peace."""
    rng = random.Random(1)
    plan = game_plan(tmp_path, "--sleep 0.5", sources=THREE)
    for _ in range(2):
        ours = [launcher("--jobs", 2, "--retries", 5) for _ in range(2)]
        for _ in range(3):
            time.sleep(rng.uniform(0.2, 0.6))
            if running := programs(plan):
                with suppress(ProcessLookupError):  # it may have ended since it was listed
                    os.kill(rng.choice(running), rng.choice([signal.SIGKILL, signal.SIGTERM]))
        for one in ours:
            one.send_signal(rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            one.communicate(timeout=60)
    assert launcher("--jobs", 2).wait(timeout=120) == 0
    assert run("collect plan.jsonl -o log.csv --strict").code == 0
    check_log(Path("log.csv"), plan)
    assert programs(plan) == []
