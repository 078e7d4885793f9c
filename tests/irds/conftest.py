"""What the tests of the adapter share; every file of this folder skips where torch is not installed."""

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
