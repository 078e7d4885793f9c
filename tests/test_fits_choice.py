"""From logs to a fit: what is refused, and how; and the law that is chosen."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simulated import FAST, inputs, log_of, mixtures, simulate, true_law, with_loss

from shapleymix.errors import DataError, FitError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.tables.transfer import TransferMatrix


def test_too_few_runs_name_the_law_the_target_and_the_numbers():
    _, _, log = log_of("learned-base", rows=40)
    loss = log.loss.copy()
    loss[7:, 2] = np.nan
    with pytest.raises(
        FitError, match="law 'additive' fits 13 numbers for target 'fr' but has 7 different runs for it"
    ):
        fit(with_loss(log, loss), "additive", **FAST)
    copies = replace(log, p=np.tile(log.p[:3], (14, 1))[:40], N=np.full(40, 1e8), D=np.full(40, 1e9))
    with pytest.raises(FitError, match="has 3 different runs"):
        fit(copies, "additive", **FAST)


def test_a_law_without_its_inputs_is_refused(noisy):
    with pytest.raises(UsageError, match="needs a transfer matrix"):
        fit(noisy[2], "shapley", **FAST)
    with pytest.raises(UsageError, match="needs the language families"):
        fit(noisy[2], "family", **FAST)


def test_a_matrix_that_lacks_a_language_is_refused(noisy):
    small = TransferMatrix.from_sv(np.eye(3), ("en", "de", "fr"), ("en", "de", "fr"))
    with pytest.raises(DataError, match="zh"):
        fit(noisy[2], "shapley", small, **FAST)


@pytest.mark.parametrize("law", ["auto", "exponential"])
def test_folds_judge_and_choose_nothing(noisy, law):
    """Laws, regimes and beliefs: without folds of the user's a fit was another one, by up to a quarter of a loss."""
    found = [fit(noisy[2], law, folds=folds, bootstrap=0) for folds in (0, 3)]
    assert type(found[0].law) is type(found[1].law)
    losses = [one.predict("uniform", 1e8, 3e9).losses for one in found]
    np.testing.assert_array_equal(*losses)
    assert found[0].held_out is None
    assert 0 < found[1].held_out.mean["PE"] < 0.1


def test_auto_needs_three_mixtures():
    _, _, log = log_of("chinchilla", rows=12, noise=1e-3)
    asked: dict[str, Any] = {"folds": 3, "bootstrap": 0}
    with pytest.raises(FitError, match="at least three different mixtures; the log has 2"):
        fit(replace(log, p=log.p[np.arange(12) % 2]), **asked)
    assert fit(replace(log, p=log.p[np.arange(12) % 3]), **asked).held_out is not None


# law auto


def test_auto_finds_the_mixture_to_matter_or_not():
    given = inputs(3, 3)
    flat = simulate(true_law("chinchilla", given), given, mixtures(45, 3), noise=1e-2)
    options: dict[str, Any] = {"bootstrap": 0, "folds": 3, "starts": 1}
    found = fit(flat, "auto", given.transfer, **options)
    assert found.law.name == "learned-base"
    even, one = found.predict([[1 / 3] * 3, [0.8, 0.1, 0.1]], 1e8, 3e9).losses
    np.testing.assert_allclose(even, one, rtol=1e-2)  # within the noise: all sources are alike
