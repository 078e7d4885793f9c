"""A published rival that learns by its own means: MARINER's form."""

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls
from simulated import inputs, log_of, mixtures, simulate, true_law

from shapleymix import Fit, RunLog, compare, fit
from shapleymix.laws import BLACK_BOXES, Observations
from shapleymix.laws.rivals import Mariner, choose_half_pooled, choose_pooled, folds_of
from shapleymix.statistics import nonnegative


def noisy_log(rows: int = 60) -> RunLog:
    return log_of("learned-base", rows=rows, noise=1e-3)[2]


def one_budget(rows: int) -> RunLog:
    given = inputs()
    return simulate(true_law("learned-base", given), given, mixtures(rows, 4), sizes=(1e8,), tokens=(3e9,), noise=1e-3)


def test_a_weight_of_two_is_the_row_twice():
    log = noisy_log(30)
    twice = np.concatenate([np.arange(30), np.arange(10)])
    weight = np.where(np.arange(30) < 10, 2.0, 1.0)[:, None] * np.ones(log.loss.shape)
    box, logs = BLACK_BOXES["mariner"], np.log(log.loss)
    by_weight = box.learn(Observations(log.p, log.N, log.D, logs, weight), log.groups, 0)
    alone = Observations(log.p[twice], log.N[twice], log.D[twice], logs[twice], np.ones((40, logs.shape[1])))
    by_rows = box.learn(alone, log.groups[twice], 0)
    np.testing.assert_allclose(by_weight(log.p, log.N, log.D), by_rows(log.p, log.N, log.D), rtol=1e-2)


def test_a_fit_is_compared_saved_and_read_back(tmp_path):
    log = one_budget(36)
    holes = replace(log, loss=np.where(np.arange(36)[:, None] % 7 == np.arange(4), np.nan, log.loss))
    found = fit(holes, "mariner", bootstrap=20, folds=3)
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.law(log.p, log.N, log.D), found.law(log.p, log.N, log.D))
    table = compare(holes, ["mariner", "chinchilla"], folds=3)
    assert table.best() == "mariner"
    low, high = (getattr(found.predict(log.p[:2], log.N[:2], log.D[:2]), side) for side in ("low", "high"))
    assert (low < high).all()


def test_four_mixtures_are_enough():
    log = noisy_log(4)
    found = fit(log, "mariner", bootstrap=0, folds=0)
    losses = found.law(log.p, log.N, log.D)
    assert ((losses > 0.5 * log.loss.min()) & (losses < 2 * log.loss.max())).all()


def test_mariner_recovers_its_own_form():
    rng = np.random.default_rng(0)
    sources, targets = 6, 3
    law = Mariner(
        phi=np.full(targets, 1.9),
        c=np.full(targets, 0.4),
        rho=3.0,
        kappa=0.7,
        tau=np.full(targets, np.inf),
        alpha=rng.uniform(0.0, 0.8, (sources, targets)) * (rng.random((sources, targets)) < 0.6),
        beta=np.zeros((sources, targets)),
        n=np.full(targets, 0.1),
        d=np.full(targets, 0.05),
    )
    p, unseen = mixtures(150, sources, 1), mixtures(50, sources, 2)
    N, D = rng.choice([1e7, 1e8], 150), rng.choice([1e9, 4e9], 150)
    found = Mariner.learn(Observations(p, N, D, np.log(law(p, N, D)), np.ones((150, targets))), np.arange(150), 0)
    one = np.ones(50)
    np.testing.assert_allclose(found(unseen, 1e8 * one, 1e9 * one), law(unseen, 1e8 * one, 1e9 * one), rtol=3e-3)


def test_nonnegative_ridge_agrees_with_scipy():
    rng = np.random.default_rng(0)
    rows, right = rng.normal(size=(50, 12, 20)) ** 2, rng.normal(size=(50, 12))
    rows[:, :, 3] = rows[:, :, 4]  # columns that only the ridge tells apart
    gram = rows.swapaxes(1, 2) @ rows + 1e-4 * np.eye(20)
    found = nonnegative(gram, np.einsum("qrp,qr->qp", rows, right))
    for number in range(50):
        augmented = np.vstack([rows[number], 1e-2 * np.eye(20)])
        expected, _ = nnls(augmented, np.concatenate([right[number], np.zeros(20)]))
        np.testing.assert_allclose(found[number], expected, atol=1e-9)


def test_choices_are_pooled_over_targets():
    error = np.array([[1.0, 1.2, 9.0], [1.1, 1.0, 1.0], [3.0, 3.0, 1.5]])
    assert choose_pooled(error) == 1
    np.testing.assert_array_equal(choose_half_pooled(error), [1, 1, 1])
    torn = np.array([[1.0, 1.2, 1.2], [3.0, 1.0, 1.0]])
    np.testing.assert_array_equal(choose_half_pooled(torn), [0, 0, 0])
    np.testing.assert_array_equal(choose_half_pooled(np.array([[1.0, 1.9, 1.9], [3.0, 1.0, 1.0]])), [0, 1, 1])
    folds = folds_of(np.array([4, 4, 1, 7, 7, 7, 2]), 3, 0)
    assert len({folds[0], folds[1]}) == len({folds[3], folds[4], folds[5]}) == 1
    assert set(folds.tolist()) == {0, 1, 2}
