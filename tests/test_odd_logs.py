"""Logs that no law was made for: a fit still gives finite losses, a document, and no warning of NumPy's."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from simulated import log_of

from shapleymix.fitting.fits import fit
from shapleymix.tables.runs import RunLog


def checkerboard(log: RunLog) -> RunLog:
    row, column = np.indices(log.loss.shape)
    return log.with_loss(np.where((row + column) % 2, np.nan, log.loss))


ODD = {
    "constant losses": lambda log: log.with_loss(np.full(log.loss.shape, 2.0)),
    "losses of a million": lambda log: log.with_loss(log.loss * 1e6),
    "losses that grow with data": lambda log: log.with_loss(log.loss * np.sqrt(log.D)[:, None] * 1e-4),
    "losses of noise": lambda log: log.with_loss(np.exp(np.random.default_rng(0).normal(size=log.loss.shape))),
    "one language a run": lambda log: replace(log, p=np.eye(4)[np.arange(len(log)) % 4]),
    "one target": lambda log: log.aligned(log.sources, ["de"]),
    "half of the losses": checkerboard,
}


@pytest.mark.parametrize("law", ["shapley-tempered", "learned-concave", "family"])
@pytest.mark.parametrize("oddity", sorted(ODD))
def test_odd_logs_are_fitted(oddity, law):
    _, given, log = log_of("shapley-tempered", rows=36, noise=1e-2)
    odd = ODD[oddity](log)
    assert given.transfer is not None
    matrix = given.transfer.aligned(odd.sources, odd.targets)
    found = fit(odd, law, matrix, given.languages, bootstrap=3, folds=3, starts=1, threads=1)
    predicted = found.predict(np.full(4, 0.25), 1e8, 1e10)
    assert np.isfinite(predicted.losses).all()
    assert (predicted.losses > 0).all()
    assert len(found.status) == len(odd.targets)
    json.dumps(found.to_document(), allow_nan=False)
