"""Tests in the trainers that people use: each family has its folder, its requirements and its own environment.

`make test-ecosystem` makes the environments and runs them; the default suite does not come here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "irds")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked `ecosystem`, and other packages may warn as they like."""
    for item in items:
        if HERE in Path(item.fspath).parents:
            item.add_marker(pytest.mark.ecosystem)
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True)
def _offline_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("torch") is not None:  # not every family asks for it
        import_module("torch").set_num_threads(1)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "CI"):
        monkeypatch.setenv(name, "1")
