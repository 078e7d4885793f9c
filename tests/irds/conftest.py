"""Small models, batches, and the naive reference: one backward pass a language and a validation language."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import sys  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from irds_models import LANGUAGES, batch, validation  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def double() -> Any:
    """float64 as the default type during a test."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., Any]:
    return batch


@pytest.fixture(scope="session")
def val() -> dict[str, Any]:
    return validation()


@pytest.fixture(scope="session")
def languages() -> tuple[str, ...]:
    return LANGUAGES
