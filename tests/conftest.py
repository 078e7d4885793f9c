"""Shared fixtures: where the real logs are, and the repository's own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Run, runner
from simulated import log_of

from shapleymix.laws import LAWS, Inputs, Law
from shapleymix.tables.runs import RunLog

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


@pytest.fixture(scope="module")
def one_prior() -> Iterator[None]:
    """Fits of a module believe the usual and choose nothing, in a quarter of the time: for tests of what follows."""
    with pytest.MonkeyPatch.context() as patch:
        for law in LAWS.values():
            patch.setattr(law, "knobs", {name: values[:1] for name, values in law.knobs.items()})
        yield


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The repository's own small logs and matrices."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The published run logs that may not enter the repository; tests that need them skip without them."""
    folder = Path(os.environ.get("SHAPLEYMIX_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip("needs the published run logs in ../shared/data")
    return folder


@pytest.fixture(scope="session")
def noisy() -> tuple[Law, Inputs, RunLog]:
    """A law with transfer, what it knows, and a log of 36 runs that it made, with 1% of noise."""
    return log_of("shapley-tempered", rows=36, noise=1e-2)
