"""The law with a base where larger models, or longer trainings, make more of a target's own data."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import FAST

import shapleymix as sm
from shapleymix.fitting.symbols import Levels, draw_untold
from shapleymix.laws import LAWS
from shapleymix.laws.base import Law
from shapleymix.laws.learned_base import GROWTH, LearnedBase
from shapleymix.records import FloatArray

M = 4
NAMES = tuple(f"l{place}" for place in range(M))
pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def law_of(seed: int, replicates: tuple[int, ...] = (), **symbols: FloatArray) -> LearnedBase:
    """A law of M sources and targets with all symbols drawn; `symbols` (K,) replace some."""
    rng = np.random.default_rng(seed)
    ranges = {
        "E": (0.5, 1.0), "A": (0.2, 0.6), "alpha": (0.1, 0.4), "B": (0.2, 0.6), "beta": (0.2, 0.6), "gamma": (0.2, 0.6),
        "a": (0.3, 0.8), "c": (0.3, 0.8), "eta": (-0.2, 0.7), "zeta": (0.0, 0.8),
    }  # fmt: skip
    drawn = {name: rng.uniform(*ends, (*replicates, M)) for name, ends in ranges.items()}
    drawn["u"] = rng.uniform(0.05, 0.3, (*replicates, M, M)) + np.eye(M)
    drawn["floor"] = rng.uniform(0.0, 0.2, (*replicates, M))
    fixed = {"own": np.eye(M), "nsv": np.zeros((M, M)), "siblings": np.eye(M), "even": np.full(M, 1 / M)}
    fixed |= {"first_N": np.full(M, 0.9), "first_D": np.full(M, 0.99)}
    given = {name: np.broadcast_to(value, (*replicates, *value.shape)) for name, value in fixed.items()}
    return LearnedBase(**(drawn | given | symbols))


def log_of(law: LearnedBase, N: FloatArray, D: FloatArray, seed: int, noise: float = 2e-3) -> sm.RunLog:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(M, 1.0), len(N))
    loss = law(p, N, D) * np.exp(rng.normal(0, noise, p.shape))
    columns = {"run": [f"r{row}" for row in range(len(p))], "N": N, "D": D}
    columns |= {f"p_{name}": p[:, i] for i, name in enumerate(NAMES)}
    return sm.read_runs(columns | {f"loss_{name}": loss[:, j] for j, name in enumerate(NAMES)})


def budgets(rows: int) -> tuple[FloatArray, FloatArray]:
    return 1e6 * 4.0 ** (np.arange(rows) % 3), 1e8 * 3.0 ** (np.arange(rows) // 3 % 2)


@pytest.fixture(scope="module")
def points() -> tuple[FloatArray, FloatArray, FloatArray]:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(M), 6)
    p[0] = np.eye(M)[2]  # three sources absent
    return p, rng.uniform(1, 9, 6), rng.uniform(1, 9, 6)


PARTS = np.eye(M) + np.eye(M, k=1)
"""Every target but the first has two parts of own data."""


@pytest.mark.parametrize("own", [np.eye(M), PARTS])
@pytest.mark.parametrize("replicates", [(), (3,)])
def test_its_derivatives_are_those_of_the_equation(points, replicates, own):
    law = law_of(1, replicates, own=np.broadcast_to(own, (*replicates, M, M)))
    log_loss, slopes = law.expansion(*points)
    np.testing.assert_allclose(log_loss, np.log(law(*points)), rtol=1e-12, atol=1e-14)
    assert set(slopes) == {known.name for known in law.symbols_to_fit()}
    for known in law.symbols_to_fit():
        np.testing.assert_allclose(slopes[known.name], Law._difference(law, known, *points), atol=2e-9)


def test_growth_tells_mixtures_apart_and_leaves_the_level_to_the_core():
    """At an even ratio of own data alone, whatever has grown."""
    law = law_of(3).swap(u=np.eye(M))
    N, D = np.array([1.0, 2.0, 50.0]), np.array([9.0, 3.0, 80.0])
    p = np.full((3, M), 1 / M)
    at_pivot = (1 + (1 / law.gamma) * law.even**law.a) ** -law.gamma
    expected = law.core(N, D) * (law.floor + (1 - law.floor) * at_pivot)
    np.testing.assert_allclose(law(p, N, D), expected, rtol=1e-13)
    spread = np.ptp(np.log(law.swap(eta=np.full(M, 0.3), zeta=np.full(M, 0.3))(np.eye(M), N[[0] * M], D[[0] * M])))
    larger = np.ptp(np.log(law.swap(eta=np.full(M, 0.3), zeta=np.full(M, 0.3))(np.eye(M), N[[2] * M], D[[2] * M])))
    assert larger > spread


def gained(law: LearnedBase, N: FloatArray, D: FloatArray) -> FloatArray:
    """What own data have come to help by, (2, K), from the least budget to the largest N, and from there in D.

    In units of log Theta^gamma; runs tell these, where a share of a small fall of the core may slide against it.
    """
    start, larger, there = law.core(np.array([N.min(), N.max(), N.max()]), np.array([D.min(), D.min(), D.max()]))
    return np.array([law.eta * np.log(start / larger), law.zeta * np.log(larger / there)])


def test_growth_is_found_where_it_is_and_not_where_it_is_not():
    N, D = budgets(240)
    grows = law_of(5).swap(eta=np.full(M, 0.25), zeta=np.full(M, 0.6)).rescale(2e6, 1e8)
    level = grows.swap(eta=np.zeros(M), zeta=np.zeros(M))
    for true, close in ((grows, 0.017), (level, 0.006)):
        found = sm.fit(log_of(true, N, D, 0), "learned-base", **FAST).law
        np.testing.assert_allclose(gained(found, N, D), gained(true, N, D), atol=close)
    assert gained(grows, N, D)[1].min() > 0.05


def test_a_larger_size_is_predicted_better_where_own_data_gain_with_size():
    """Fault: one slope in the mixture at every size: it moved ratio away from what large models make most of."""
    N, D = budgets(90)
    grows = law_of(6).swap(eta=np.full(M, 0.3), zeta=np.full(M, 0.3)).rescale(2e6, 1e8)
    shares = []
    for seed in range(3):
        log = log_of(grows, N, D, seed)
        large = log.N.max() == log.N
        found, rest = sm.fit(log.select(~large), "learned-base", **FAST).law, log.select(large)
        level = found.swap(eta=np.zeros(M), zeta=np.zeros(M))
        with_growth, without = (
            np.abs(np.log(law.losses(rest.p, rest.N, rest.D) / rest.loss)).mean() for law in (found, level)
        )
        shares.append(with_growth / without)
    assert np.mean(shares) < 0.6


def test_one_budget_tells_no_growth_and_replicates_draw_it():
    law = law_of(7, (200,)).rescale(1e6, 1e8)
    one = np.ones(1)
    levels = Levels(2e6 * one, 3e8 * one, np.full(M, 1 / M), False)
    zero = law.swap(eta=0 * law.eta, zeta=0 * law.zeta)
    drawn = draw_untold(zero, levels, 0)
    p = np.random.default_rng(0).dirichlet(np.ones(M), 5)
    there = (np.full(5, 2e6), np.full(5, 3e8))
    np.testing.assert_allclose(drawn(p, *there), zero(p, *there), rtol=1e-12)
    for found in (drawn.eta, drawn.zeta):
        assert abs(float(found.std()) / GROWTH - 1) < 0.15
        assert float(np.abs(found).max()) <= 1
    several = Levels(2e6 * np.array([1.0, 2.0]), 3e8 * np.array([1.0, 2.0]), np.full(M, 1 / M), False)
    kept = draw_untold(law, several, 0)
    np.testing.assert_array_equal(kept.eta, law.eta)


def test_a_log_of_one_budget_holds_growth_at_nothing():
    rows = 30
    log = log_of(law_of(8).rescale(1e6, 1e8), np.full(rows, 2e6), np.full(rows, 3e8), 2)
    found = sm.fit(log, "learned-base", **FAST)
    assert not found.law.eta.any()
    assert not found.law.zeta.any()
    np.testing.assert_allclose(found.law.first_N, 2e6)


def test_a_target_that_is_no_source_grows_by_nothing():
    law = law_of(9)
    own = np.eye(M)
    own[0, 0] = 0
    foreign = law.swap(own=own)
    p = np.random.default_rng(3).dirichlet(np.ones(M), 4)
    N, D = np.full(4, 7.0), np.full(4, 5.0)
    other = foreign.swap(eta=law.eta + np.eye(M)[0], zeta=law.zeta + np.eye(M)[0])
    np.testing.assert_array_equal(foreign(p, N, D)[:, 0], other(p, N, D)[:, 0])
    assert {name: one.tolist() for name, one in foreign.idle().items()} == {
        name: [True, False, False, False] for name in ("a", "eta", "zeta")
    }
    assert LAWS["learned-base"] is LearnedBase


FAR = 10.0 ** np.array([0, 0.5, 1, 2, 3, 4, 6, 12, 50, 290])


def thin_mixtures(size: int) -> FloatArray:
    """Each language in turn at ratios of 0, .001, .01 and .3, the others even; and one language alone."""
    thin = [
        np.where(row > 0, ratio, (1 - ratio) / (size - 1)) for ratio in (0, 1e-3, 1e-2, 0.3) for row in np.eye(size)
    ]
    return np.array([*thin, *np.eye(size)])


def rise(law: LearnedBase, budget: str, N: float, D: float) -> float:
    """The most by which a log loss rises from one to the next of ever larger N, or D."""
    p = thin_mixtures(np.shape(law.even)[-1])
    rows = len(p)
    shape = (len(FAR), rows)
    N_all = np.broadcast_to(N * (FAR if budget == "N" else FAR * 0 + 1)[:, None], shape)
    D_all = np.broadcast_to(D * (FAR if budget == "D" else FAR * 0 + 1)[:, None], shape)
    loss = law(np.tile(p, (len(FAR), 1)), N_all.ravel(), D_all.ravel())
    assert np.isfinite(loss).all()
    assert (loss > 0).all()
    log_loss = np.log(loss).reshape(*loss.shape[:-2], *shape, -1)
    return float(np.diff(log_loss, axis=-3).max())


@pytest.mark.parametrize("seed", range(20))
def test_no_prediction_rises_with_more_tokens_or_a_larger_model(seed):
    """Fault: own data's help grew without end, so that more tokens made a language of a thin ratio ever worse."""
    rng = np.random.default_rng(seed)
    shares = {
        name: rng.uniform(-1, 1, (3, M)) if seed % 2 else rng.choice([-1.0, 1.0], (3, M)) for name in ("eta", "zeta")
    }
    floor = {"E": np.zeros((3, M))} if seed % 3 == 0 else {}
    gamma = {"gamma": 10 ** rng.uniform(-6, 1, (3, M))}
    law = law_of(seed, (3,), **shares, **floor, **gamma)
    for N, D in ((1.0, 1.2), (1.0, 1e6), (1e5, 1.2), (1e4, 1e4)):
        assert rise(law, "D", N, D) <= 1e-12
        assert rise(law, "N", N, D) <= 1e-12
    assert rise(law, "D", 1e-6, 1e-6) <= 1e-12, "with D at any budget, also below the runs"


def test_a_column_that_no_run_holds_changes_no_prediction():
    """Fault: it moved the even ratio, and with it far predictions."""
    N, D = budgets(18)
    log = log_of(law_of(10).rescale(2e6, 1e8), N, D, 3)
    wider = replace(log, p=np.column_stack([log.p, np.zeros(len(log))]), sources=(*log.sources, "xx"))
    one, other = (sm.fit(each, "learned-base", **FAST).law for each in (log, wider))
    np.testing.assert_allclose(other.even, 1 / M)
    p = thin_mixtures(M)
    far = (np.full(len(p), 1e9), np.full(len(p), 1e12))
    np.testing.assert_allclose(other(np.column_stack([p, 0 * p[:, 0]]), *far), one(p, *far), rtol=1e-6)
