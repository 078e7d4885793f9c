"""Every law on logs of odd shapes: it predicts and has an optimum, or says by its name why not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from simulated import FAST, inputs, mixtures, simulate, true_law, with_loss

from shapleymix.errors import FitError, ShapleyMixWarning
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.laws import LAWS, Inputs
from shapleymix.mixing.optimization import optimize
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix


def log_from(p, sizes=(2e7, 1e8, 5e8), tokens=(5e8, 3e9, 2e10)) -> RunLog:
    given = inputs()
    return simulate(true_law("learned-base", given), given, p, sizes=sizes, tokens=tokens, noise=1e-2)


def without_targets(log: RunLog) -> RunLog:
    """Losses of the second target in four runs alone."""
    return with_loss(log, np.where((np.arange(4) == 1) & (np.arange(len(log)) > 3)[:, None], np.nan, log.loss))


SHAPES = {
    "one D": lambda: log_from(mixtures(36, 4), tokens=(3e9,)),
    "one N": lambda: log_from(mixtures(36, 4), sizes=(1e8,)),
    "one N and D": lambda: log_from(mixtures(36, 4), sizes=(1e8,), tokens=(3e9,)),
    "one mixture": lambda: log_from(np.repeat(mixtures(1, 4), 18, axis=0)),
    "four runs": lambda: log_from(mixtures(4, 4)),
    "each language alone": lambda: log_from(np.eye(4)[np.arange(36) % 4] * 0.97 + 0.0075),
    "a target of four losses": lambda: without_targets(log_from(mixtures(36, 4))),
}


def fitted(log: RunLog, name: str, given: Inputs, refusal: str) -> Fit | None:
    """The fit; None where it is refused in these words, and any other error as it is."""
    try:
        return fit(log, name, given.transfer, given.languages, starts=1, **FAST)
    except FitError as error:
        if refusal not in str(error):
            raise
        return None


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_law_is_right_or_refused_by_name(name, shape):
    log, given = SHAPES[shape](), inputs()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        found = fitted(log, name, given, f"law '{name}'")
        if found is None:
            return
        told = found.predict("uniform", log.N[0], log.D[0])
        assert (told.losses > 0).all()
        if name == "chinchilla":
            return
        best = optimize(found, log.N[0], log.D[0], caps=0.9)
    rivals = 0.9 * mixtures(200, 4, seed=2) + 0.025
    N, D = np.full(len(rivals), log.N[0]), np.full(len(rivals), log.D[0])
    assert best.objective <= np.nanmean(found.law(rivals, N, D), axis=1).min() + 1e-6
    assert best.p.max() <= 0.9 + 1e-9
    assert best.p.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "count"),
    [("effective-data", 200), ("shapley", 200), ("family", 200), ("additive", 200), ("learned-base", 60)],
)
def test_many_languages(name, count):
    """Two targets of more sources than the 40 runs: enough where transfer is given or believed, not to learn it all."""
    names, rng = tuple(f"l{i}" for i in range(count)), np.random.default_rng(0)
    unknown = np.full(count, np.nan)
    families = Languages(names, tuple(f"F{i % 9}" for i in range(count)), unknown, None, unknown)
    matrix = TransferMatrix.from_sv(rng.uniform(0.2, 1.5, (count, 2)), names, names[:2])
    given = Inputs(names, names[:2], matrix, families)
    log = simulate(true_law("shapley", given), given, rng.dirichlet(np.full(count, 0.3), size=40), noise=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShapleyMixWarning)
        found = fitted(log, name, given, f"law '{name}' fits")
        if found is None:
            assert name in ("effective-data", "additive")
            return
        assert found.fitted_scores.mean["PE"] < 0.05
        best = optimize(found, 1e8, 3e9, caps=0.2)
    assert best.objective <= found.law(log.p, np.full(40, 1e8), np.full(40, 3e9)).mean(axis=1).min() + 1e-6
