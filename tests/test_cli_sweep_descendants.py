"""All that a run's program starts ends with it, in sessions of its own or behind a shell, and not before its time."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest
from shapleymix_cli.sweeps.children import Children
from shapleymix_cli.sweeps.descendants import processes_of
from sweep_tools import end_all, start, wait_for

from shapleymix.sweeping.games import coalitions
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.plans import Plan

ELASTIC = """
import os, pathlib, signal, subprocess, sys, time

out, bare = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["bare"]
with (out / "programs").open("a") as programs:
    programs.write(f"{os.getpid()}\\n")
if bare:  # a worker that drops what it inherits can be found by its parent alone
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
work = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
worker = subprocess.Popen([sys.executable, "-c", work], start_new_session=True, env={} if bare else None)
with (out / "workers").open("a") as workers:
    workers.write(f"{worker.pid}\\n")
worker.wait()
"""
"""Starts its worker in a session of its own, as torchrun does; the worker does not end when it is asked to."""

SAVING = """
import pathlib, signal, sys, time

out = pathlib.Path(sys.argv[1])

def save(*given):
    with (out / "asked").open("a") as asked:
        asked.write("x\\n")
    time.sleep(1)
    (out / "checkpoint").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
(out / "workers").touch()
time.sleep(60)
"""
"""Takes a second to write its checkpoint when it is asked to end."""


@pytest.fixture
def launchers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test starts; what is left of them and of their programs is ended."""
    started: list[subprocess.Popen[str]] = []
    yield started
    end_all(started)
    for pid in [*ids(tmp_path, "workers"), *ids(tmp_path, "programs")]:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


def plan_for(folder: Path, script: str, *words: str, wrapped: bool = False) -> Plan:
    """One run of a script, behind a shell if asked for."""
    path = folder / "program.py"
    path.write_text(script)
    command = shlex.join([sys.executable, str(path), "{out}", *words])
    if wrapped:
        (folder / "wrap.sh").write_text(f'{shlex.join([sys.executable, str(path)])} "$1"\necho done\n')
        command = shlex.join(["sh", str(folder / "wrap.sh"), "{out}"])
    plan = grid(coalitions(("a",)), 1000, 2000, seeds=(0,), command=f"{command} {{mixture}}")
    plan.write(folder / "plan.jsonl", force=True)
    return plan


def ids(folder: Path, name: str) -> list[int]:
    return [int(pid) for path in folder.glob(f"plan-sweep/*/out/{name}") for pid in path.read_text().split()]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def launched(folder: Path, launchers: list[subprocess.Popen[str]], *words: object) -> subprocess.Popen[str]:
    """A launcher whose program has started its next worker."""
    before = len(ids(folder, "workers"))
    child = start("launch", folder / "plan.jsonl", *words)
    launchers.append(child)
    wait_for(lambda: len(ids(folder, "workers")) > before)
    return child


@pytest.mark.parametrize("bare", [False, True])
def test_a_worker_in_a_session_of_its_own_ends_after_the_grace(
    tmp_path: Path, launchers: list[subprocess.Popen[str]], bare: bool
):
    plan_for(tmp_path, ELASTIC, *(["bare"] if bare else []))
    child = launched(tmp_path, launchers, "--grace", 0.5)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 130
    assert not any(map(alive, ids(tmp_path, "workers")))


def test_a_worker_whose_program_was_killed_ends_before_the_run_is_tried_again(
    tmp_path: Path, launchers: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shapleymix_cli.sweeps.children.LINGER", 0.3)
    plan_for(tmp_path, ELASTIC)
    out = tmp_path / "plan-sweep" / "run" / "out"
    out.mkdir(parents=True)
    children = Children()

    def kill_it() -> None:
        wait_for(lambda: ids(tmp_path, "workers"))
        os.kill(ids(tmp_path, "programs")[0], signal.SIGKILL)

    killer = Thread(target=kill_it)
    killer.start()
    words = [sys.executable, str(tmp_path / "program.py"), str(out)]
    with (tmp_path / "log").open("wb") as log:
        code = children.run(words, log, env=os.environ, claim=log.fileno(), folder=str(out.parent))
    killer.join()
    assert code == -signal.SIGKILL
    assert not any(map(alive, ids(tmp_path, "workers")))
    assert processes_of(str(out.parent)) == []


def test_what_a_killed_launcher_s_killed_program_left_behind_ends_before_the_run_starts_again(
    tmp_path: Path, launchers: list[subprocess.Popen[str]]
):
    plan_for(tmp_path, ELASTIC)
    first = launched(tmp_path, launchers)
    first.kill()
    first.wait()
    os.kill(ids(tmp_path, "programs")[0], signal.SIGKILL)
    assert [alive(pid) for pid in ids(tmp_path, "workers")] == [True], "an orphan that trains on"
    again = launched(tmp_path, launchers, "--grace", 0)
    assert [alive(pid) for pid in ids(tmp_path, "workers")] == [False, True]
    again.send_signal(signal.SIGINT)
    assert again.wait(timeout=20) == 130
    assert not any(map(alive, ids(tmp_path, "workers")))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_trainer_behind_a_shell_has_the_grace_to_write_its_checkpoint(
    tmp_path: Path, launchers: list[subprocess.Popen[str]], wrapped: bool
):
    """The shell is gone at once; the trainer is asked once, since the second time may mean: at once."""
    plan = plan_for(tmp_path, SAVING, wrapped=wrapped)
    out = tmp_path / "plan-sweep" / plan.runs[0].id / "out"
    child = start("launch", tmp_path / "plan.jsonl")
    launchers.append(child)
    wait_for((out / "workers").exists)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 130
    assert (out / "checkpoint").exists()
    assert (out / "asked").read_text() == "x\n"
