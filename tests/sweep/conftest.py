"""What tests of sweeps share: the command line in this process, and launchers as processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_tools import Run, runner
from sweep_tools import start


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `shapleymix launch plan.jsonl`; what is left of it is ended."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: object) -> subprocess.Popen[str]:
        started.append(start("launch", tmp_path / "plan.jsonl", *words))
        return started[-1]

    yield begin
    for one in started:
        one.kill()
        one.communicate()
