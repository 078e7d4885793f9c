"""Sweeps that are interrupted, killed, and worked at by several launchers: every run is right, and none is twice."""

from __future__ import annotations

import json
import os
import pty
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_tools import check_log, end_all, game_plan, lines_of, start, trainer, wait_for

from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.states import state_of

FOLDER = "plan-sweep"


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test starts; what is left of them, and of the programs that they started, is ended."""
    started: list[subprocess.Popen[str]] = []
    yield started
    end_all(started)
    for pid in programs(tmp_path):
        os.kill(pid, signal.SIGKILL)


def programs(folder: Path) -> list[int]:
    """Ids of the trainers that run now, by what they wrote down when they started."""
    written = [
        line.split()[0] for path in folder.glob(f"{FOLDER}/*/out/starts") for line in path.read_text().splitlines()
    ]
    return [int(pid) for pid in written if _trains(int(pid))]


def _trains(pid: int) -> bool:
    try:
        return b"train.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def counts(tmp_path: Path, plan: Plan, name: str) -> list[int]:
    return [len(lines_of(tmp_path / FOLDER, run.id, name)) for run in plan.runs]


def test_ctrl_c_ends_the_programs_and_launching_again_resumes(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan = game_plan(trainer(tmp_path), "--sleep 1.5")
    first = start("launch", tmp_path / "plan.jsonl", "--jobs", 2)
    launchers.append(first)
    wait_for(lambda: len(programs(tmp_path)) == 2)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=30)
    assert (first.returncode, out) == (130, "")
    assert "once more to end them at once" in err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert programs(tmp_path) == []
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).count("failed") == 0, "a stop is no failure"
    again = start("launch", tmp_path / "plan.jsonl", "--jobs", 3)
    launchers.append(again)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert "3 of 3 runs finished" in out
    assert counts(tmp_path, plan, "ends") == [1, 1, 1]


def plan_of_the_stubborn(folder: Path) -> None:
    """A game whose programs do not end when they are asked to: they say so before they write that they started."""
    path = trainer(folder)
    path.write_text(path.read_text().replace("given =", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ngiven =", 1))
    game_plan(path, "--sleep 60")


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan_of_the_stubborn(tmp_path)
    child = start("launch", tmp_path / "plan.jsonl", "--jobs", 2)
    launchers.append(child)
    wait_for(lambda: len(programs(tmp_path)) == 2)
    child.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert len(programs(tmp_path)) == 2, "they may write a checkpoint"
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=20) == 130
    assert programs(tmp_path) == []


def test_programs_that_do_not_end_are_killed_after_the_grace(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan_of_the_stubborn(tmp_path)
    child = start("launch", tmp_path / "plan.jsonl", "--grace", 0.5)
    launchers.append(child)
    wait_for(lambda: len(programs(tmp_path)) == 1)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=20) == 130
    assert programs(tmp_path) == []


def test_a_program_whose_launcher_was_killed_keeps_its_run(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan = game_plan(trainer(tmp_path), "--sleep 6", sources=("a",))
    first = start("launch", tmp_path / "plan.jsonl")
    launchers.append(first)
    wait_for(lambda: len(programs(tmp_path)) == 1)
    first.kill()
    first.wait()
    assert len(programs(tmp_path)) == 1, "it trains on"
    held = start("run", tmp_path / "plan.jsonl", "--index", 0)
    launchers.append(held)
    _, err = held.communicate(timeout=30)
    assert held.returncode == 1
    assert f"is trained by pid {first.pid} on {socket.gethostname()} since 20" in err
    assert "(gone, or in another container; its program goes on)" in err
    again = start("launch", tmp_path / "plan.jsonl")
    launchers.append(again)
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert counts(tmp_path, plan, "starts") == [1], "the second launcher waited, and took what it found"
    assert len(list((tmp_path / FOLDER / plan.runs[0].id / "out").glob("step-*"))) == 10


def test_two_launchers_share_a_plan(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan = game_plan(trainer(tmp_path), "--sleep 0.3", sources=("a", "b", "c"), seeds=(0, 1))
    both = [start("launch", tmp_path / "plan.jsonl", "--jobs", 3, "--json") for _ in range(2)]
    launchers += both
    told = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], told
    assert counts(tmp_path, plan, "starts") == [1] * 14
    documents = [json.loads(out) for out, _ in told]
    assert sum(one["trained"] for one in documents) == 14
    assert [one["finished"] for one in documents] == [14, 14]


def test_a_second_launcher_takes_over_from_one_that_was_killed(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan = game_plan(trainer(tmp_path), "--sleep 1.0")
    first = start("launch", tmp_path / "plan.jsonl", "--jobs", 3)
    launchers.append(first)
    wait_for(lambda: len(programs(tmp_path)) == 3)
    second = start("launch", tmp_path / "plan.jsonl", "--jobs", 3)
    launchers.append(second)
    first.kill()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert "3 of 3 runs finished" in out
    check_collected(tmp_path, plan, launchers)


def check_collected(tmp_path: Path, plan: Plan, launchers: list[subprocess.Popen[str]]) -> None:
    """The collected log is complete and right."""
    child = start("collect", tmp_path / "plan.jsonl", "-o", tmp_path / "log.csv", "--strict")
    launchers.append(child)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    check_log(tmp_path / "log.csv", plan)


@pytest.mark.parametrize("seed", [1])
def test_whatever_is_killed_the_log_is_complete_and_right(
    tmp_path: Path, launchers: list[subprocess.Popen[str]], seed: int
):
    """Launchers and runs are killed at random, two launchers at once, until the last launcher is left in peace."""
    rng = random.Random(seed)
    plan = game_plan(trainer(tmp_path), "--sleep 0.5", sources=("a", "b", "c"))
    for _ in range(3):
        ours = [start("launch", tmp_path / "plan.jsonl", "--jobs", 2, "--retries", 5) for _ in range(2)]
        launchers += ours
        for _ in range(3):
            time.sleep(rng.uniform(0.2, 0.6))
            if running := programs(tmp_path):
                os.kill(rng.choice(running), rng.choice([signal.SIGKILL, signal.SIGTERM]))
        for one in ours:
            one.send_signal(rng.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            one.communicate(timeout=60)
    last = start("launch", tmp_path / "plan.jsonl", "--jobs", 2)
    launchers.append(last)
    out, err = last.communicate(timeout=120)
    assert last.returncode == 0, out + err
    check_collected(tmp_path, plan, launchers)
    assert programs(tmp_path) == []


def test_a_program_that_ends_early_with_0_when_it_is_stopped_is_no_result(
    tmp_path: Path, launchers: list[subprocess.Popen[str]]
):
    """Many trainers write what they have on SIGTERM and exit with 0."""
    path = trainer(tmp_path)
    early = "signal.signal(signal.SIGTERM, lambda *_: (hand_back(0.96), os._exit(0)))\nfor step in range(10):"
    text = path.read_text().replace("for step in range(10):", early)
    head, tail = text.split("pairs = (part")
    body = "pairs = (part" + tail.replace("float(given.D)", "float(given.D) * part_of")
    function = "def hand_back(part_of):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    path.write_text(head.replace("began =", function + "began =", 1) + "hand_back(1.0)\n")
    plan = game_plan(path, "--sleep 1", sources=("a",))
    first = start("launch", tmp_path / "plan.jsonl")
    launchers.append(first)
    wait_for(lambda: len(programs(tmp_path)) == 1)
    time.sleep(0.3)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    assert first.returncode == 130
    assert lines_of(tmp_path / FOLDER, plan.runs[0].id, "runs.jsonl"), "it has handed back what it had"
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).status == ("open",)
    again = start("launch", tmp_path / "plan.jsonl")
    launchers.append(again)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, out + err
    check_collected(tmp_path, plan, launchers)


def test_nohup_is_heard(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    game_plan(trainer(tmp_path), "--sleep 1", sources=("a",))
    child = start("launch", tmp_path / "plan.jsonl", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    launchers.append(child)
    wait_for(lambda: len(programs(tmp_path)) == 1)
    child.send_signal(signal.SIGHUP)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "1 of 1 run finished" in out


def test_run_passes_a_scheduler_s_signal_on(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    plan = game_plan(trainer(tmp_path), "--sleep 20", sources=("a",))
    child = start("run", tmp_path / "plan.jsonl", "--index", 0)
    launchers.append(child)
    wait_for(lambda: len(programs(tmp_path)) == 1)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=30) == 130
    assert programs(tmp_path) == []
    assert state_of(plan, Layout.of(tmp_path / "plan.jsonl")).status == ("open",)


def test_a_bar_on_a_terminal(tmp_path: Path, launchers: list[subprocess.Popen[str]]):
    game_plan(trainer(tmp_path), "--sleep 0.2")
    master, slave = pty.openpty()
    child = start("launch", tmp_path / "plan.jsonl", "--jobs", 1, terminal=slave)
    launchers.append(child)
    os.close(slave)
    said = b""
    while child.poll() is None or not said.endswith(b"\n"):
        try:
            said += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    child.communicate(timeout=30)
    text = said.decode("utf-8", "replace")
    assert "3/3" in text
    assert "running" in text
    assert "left" in text
