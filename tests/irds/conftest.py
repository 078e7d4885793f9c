"""What the tests of the adapter share; every file of this folder skips where torch is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

WITH_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    if WITH_TORCH:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def val() -> dict[str, Any]:
    """Validation sequences of each language."""
    from irds_models import validation

    return validation()


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of every kind of file, which no test changes."""
    from prepared_tools import write_texts

    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def prepared(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That corpus prepared, which no test changes either."""
    from prepared_tools import prepare_texts

    return prepare_texts(texts, tmp_path_factory.mktemp("prepared") / "out")
