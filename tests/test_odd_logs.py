"""Logs that no law was made for: a fit still gives finite losses, a document, and no warning of NumPy's."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated import FAST, log_of, with_loss

from shapleymix.errors import DataError, FitError
from shapleymix.fitting.fit import fit
from shapleymix.laws import LAWS
from shapleymix.tables.runs import RunLog


def checkerboard(log: RunLog) -> RunLog:
    row, column = np.indices(log.loss.shape)
    return with_loss(log, np.where((row + column) % 2, np.nan, log.loss))


ODD = {
    "constant losses": lambda log: with_loss(log, np.full(log.loss.shape, 2.0)),
    "losses of a million": lambda log: with_loss(log, log.loss * 1e6),
    "losses that grow with data": lambda log: with_loss(log, log.loss * np.sqrt(log.D)[:, None] * 1e-4),
    "losses of noise": lambda log: with_loss(log, np.exp(np.random.default_rng(0).normal(size=log.loss.shape))),
    "one language a run": lambda log: replace(log, p=np.eye(4)[np.arange(len(log)) % 4]),
    "one target": lambda log: log.aligned(log.sources, ["de"]),
    "half of the losses": checkerboard,
    "budgets of a billionth and a septillion": lambda log: replace(log, N=log.N * 1e-17, D=log.D * 1e14),
    "weights of a googol": lambda log: replace(log, weight=np.where(np.arange(len(log)) < 18, 1e100, 1e-100)),
    "the least positive weights": lambda log: replace(log, weight=np.full(len(log), 5e-324)),
}
BEYOND = {
    "N": lambda log: replace(log, N=log.N * 1e290),
    "D": lambda log: replace(log, D=np.where(np.arange(len(log)) == 5, 1e-300, log.D)),
    "loss_de": lambda log: with_loss(log, log.loss * np.where(np.arange(4) == 1, 1e200, 1.0)),
    "loss_zh": lambda log: with_loss(log, log.loss * np.where(np.arange(4) == 3, 1e-200, 1.0)),
}


@pytest.mark.parametrize("law", ["shapley-tempered", "learned-base", "family"])
@pytest.mark.parametrize("oddity", sorted(ODD))
def test_odd_logs_are_fitted(oddity, law):
    _, given, log = log_of("shapley-tempered", rows=36, noise=1e-2)
    odd = ODD[oddity](log)
    assert given.transfer is not None
    matrix = given.transfer.aligned(odd.sources, odd.targets)
    found = fit(odd, law, matrix, given.languages, bootstrap=3, folds=3, starts=1, threads=1)
    predicted = found.predict(np.full(4, 0.25), max(1.0, odd.N[0]), odd.D[0])
    assert np.isfinite(predicted.losses).all()
    assert (predicted.losses > 0).all()
    assert len(found.status) == len(odd.targets)
    json.dumps(found.to_document(), allow_nan=False)


@pytest.mark.parametrize("law", ["chinchilla", "learned-base", "shapley-tempered", "additive", "exponential", "family"])
@pytest.mark.parametrize("column", sorted(BEYOND))
def test_numbers_near_the_ends_of_floating_point_are_refused_by_place(column, law):
    """Fault: they overflowed in the search, or the fit was thrown away by the check of its symbols."""
    _, given, log = log_of("shapley-tempered", rows=36, noise=1e-2)
    with pytest.raises(DataError, match=rf"{column} = \S+ of run 'run-\d+' is outside of"):
        fit(BEYOND[column](log), law, given.transfer, given.languages, **FAST)


@pytest.mark.parametrize("law", ["chinchilla", "learned-base", "shapley-tempered", "additive", "exponential", "family"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_log_of_one_or_two_rows_is_fitted_or_refused_by_name(rows, law):
    _, given, log = log_of("shapley-tempered", rows=rows, noise=1e-2)
    if law == "chinchilla" or (LAWS[law].knobs and rows == 2):  # what it believes stands in for runs
        found = fit(log, law, given.transfer, given.languages, **FAST)
        losses = found.law(log.p, log.N, log.D)
        assert (losses >= log.loss.min(axis=0) * 0.999).all()
        assert (losses <= log.loss.max(axis=0) * 1.001).all()
    else:
        with pytest.raises(FitError, match=f"law '{law}'"):
            fit(log, law, given.transfer, given.languages, **FAST)
