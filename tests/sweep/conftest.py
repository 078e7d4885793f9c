"""What tests of sweeps share: launchers as processes of their own."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sweep_tools import start, without_locks


@pytest.fixture(params=["flock", "none"])
def locks(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file system with locks, and one without."""
    if request.param == "none":
        without_locks(tmp_path / "lockless", monkeypatch)
    return request.param


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
