"""A step of several calls: what is summed over its calls, and what is averaged."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from shapleymix_irds.accounts.step import Pending  # noqa: E402
from shapleymix_irds.distributed import World  # noqa: E402
from shapleymix_irds.engines.base import Outcome  # noqa: E402

CPU = torch.device("cpu")


def double(*values: float):
    return torch.tensor(values, dtype=torch.float64)


def step_of(*val_losses):
    """A step of two languages, one call for each entry; products, tokens and cover are those of one call."""
    pending = Pending(step=3, evaluated=True, total=10.0, given=True)
    for val in val_losses:
        pending.outcomes.append(Outcome(double(1.0, 2.0), torch.ones(2, 2).double(), torch.eye(2).double(), val))
        pending.tokens.append(double(2.0, 3.0))
        pending.losses.append(double(4.0, 9.0))
    return pending.close(None, World(None, 1, 0, CPU), CPU, ("en", "de"))


def test_validation_losses_are_averaged_over_the_calls_and_all_else_is_summed() -> None:
    """Each call measures the same mean loss: its sum over calls would grow with the number of calls."""
    sums = step_of(double(2.0, 3.0), double(2.5, 3.5))
    np.testing.assert_array_equal(sums.val_losses, [2.25, 3.25])
    np.testing.assert_array_equal(sums.gram, np.full((2, 2), 2.0))
    np.testing.assert_array_equal(sums.cover, 2 * np.eye(2))
    np.testing.assert_array_equal(sums.tokens, [4.0, 6.0])


def test_calls_without_a_validation_loss_do_not_count_in_its_mean() -> None:
    np.testing.assert_array_equal(step_of(None, double(2.0, 3.0)).val_losses, [2.0, 3.0])
    assert np.isnan(step_of(None, None).val_losses).all()
