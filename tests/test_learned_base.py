"""The law with a base where a transfer matrix is given: believed as far as cross-validation says that it helps."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from simulated import FAST

import shapleymix as sm
from shapleymix.fitting.fit import Fit
from shapleymix.records import FloatArray
from shapleymix.tables.languages import harm_map
from shapleymix.tables.runs import RunLog

K, GAMMA = 8, 0.3
NAMES = tuple(f"l{place}" for place in range(K))
pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def matrix(rng: np.random.Generator) -> tuple[sm.TransferMatrix, FloatArray]:
    """Random Shapley values, their own largest, and the normalised ones."""
    sv = rng.uniform(-3, 0, (K, K))
    np.fill_diagonal(sv, 0.0)
    rows = {"source": np.repeat(NAMES, K).tolist(), "target": list(NAMES) * K, "sv": sv.ravel().tolist()}
    return sm.read_transfer(rows), np.exp(sv)


def log_of(p: FloatArray, u: FloatArray, rng: np.random.Generator) -> RunLog:
    """Runs under the law with coefficients u (M, K)."""
    theta = 1 + p**0.45 @ (u / GAMMA)
    loss = 2.5 * theta**-GAMMA * np.exp(rng.normal(0, 2e-3, p.shape))
    columns = {"run": [f"r{row}" for row in range(len(p))], "N": [1e7] * len(p), "D": [1e9] * len(p)}
    columns |= {f"p_{name}": p[:, i] for i, name in enumerate(NAMES)}
    return sm.read_runs(columns | {f"loss_{name}": loss[:, j] for j, name in enumerate(NAMES)})


def error(found: Fit, log: RunLog) -> float:
    return float(np.abs(np.log(found.law.losses(log.p, log.N, log.D) / log.loss)).mean())


@pytest.mark.parametrize(("told", "runs", "most"), [(True, 5, 0.5), (True, 12, 0.9), (False, 5, 1.2), (False, 12, 1.2)])
def test_a_matrix_is_believed_where_it_helps_and_does_little_harm_where_not(told, runs, most):
    errors = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        given, nsv = matrix(rng)
        u = nsv if told else rng.permutation(nsv.ravel()).reshape(K, K)
        p = rng.dirichlet(np.full(K, 0.5), 112)
        log = log_of(p, np.where(np.eye(K) > 0, 1.5, u), rng)
        few, rest = log.select(np.arange(runs)), log.select(np.arange(runs, 112))
        errors.append([error(sm.fit(few, "learned-base", sv, **FAST), rest) for sv in (given, None)])
    with_matrix, without = np.mean(errors, axis=0)
    assert with_matrix < most * without


def test_without_a_matrix_nothing_is_tried_for_it():
    rng = np.random.default_rng(4)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 12), np.eye(K), rng)
    assert not np.any(sm.fit(log, "learned-base", **FAST).law.nsv)


def test_a_target_of_one_loss_has_no_held_out_error_and_no_say():
    """Faults: its error was 0, from the fit that had seen it; weights were 0 / 0; and 0 bent the choice of all."""
    rng = np.random.default_rng(5)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 24), np.eye(K) * 1.5, rng)
    loss = log.loss.copy()
    loss[1:, 3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = sm.fit(replace(log, loss=loss), "learned-base", bootstrap=5)
    assert np.isnan(found.held_out.PE[3])
    others = np.delete(np.arange(K), 3)
    alone = sm.fit(log.select(np.arange(24)), "learned-base", bootstrap=0)
    np.testing.assert_allclose(found.held_out.PE[others], alone.held_out.PE[others], rtol=0.3)


def test_a_matrix_without_a_language_of_the_log_is_refused_by_name():
    """Fault: every law that takes the matrix dropped out of auto, and another won without a word."""
    rng = np.random.default_rng(6)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 12), np.eye(K), rng)
    short = [(i, j) for i in range(K - 1) for j in range(K - 1)]
    rows = {"source": [NAMES[i] for i, _ in short], "target": [NAMES[j] for _, j in short], "sv": [-0.1] * len(short)}
    for law in ("auto", "learned-base"):
        with pytest.raises(sm.ShapleyMixError, match="l7"):
            sm.fit(log, law, sm.read_transfer(rows), bootstrap=0)


def test_a_symbol_without_any_effect_trades_with_no_other():
    """The condition of a target that is no source was infinite."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(2), 60)
    u = rng.uniform(0.5, 1.0, (2, 2))
    loss = 2.5 * (1 + p**0.45 @ (u / GAMMA)) ** -GAMMA
    columns = {"N": [1e7] * 60, "D": [1e9] * 60, "p_en": p[:, 0], "p_de": p[:, 1], "loss_code": loss[:, 0]}
    found = sm.fit(sm.read_runs({"run": [f"r{row}" for row in range(60)], **columns}), "learned-base", **FAST)
    assert found.stopped == ()


PARTS = tuple(f"{name}/{part}" for name in ("en", "de", "fr") for part in ("web", "books"))


def nested_log(p: FloatArray, alike: bool, rng: np.random.Generator) -> RunLog:
    """Runs on two parts of each of three languages, which do the same, or of which the second helps little."""
    foreign = np.repeat(rng.uniform(0, 0.5, (3, 3)), 2, axis=0)
    u = np.where(np.repeat(np.eye(3), 2, axis=0) > 0, 1.5, foreign)
    u = u if alike else u * np.tile([1.0, 0.1], 3)[:, None]
    loss = 2.5 * (1 + p**0.45 @ (u / GAMMA)) ** -GAMMA * np.exp(rng.normal(0, 4e-3, (len(p), 3)))
    columns = {"run": [f"r{row}" for row in range(len(p))], "N": [1e7] * len(p), "D": [1e9] * len(p)}
    columns |= {f"p_{name}": p[:, i] for i, name in enumerate(PARTS)}
    return sm.read_runs(columns | {f"loss_{name}": loss[:, j] for j, name in enumerate(("en", "de", "fr"))})


@pytest.mark.parametrize(("alike", "most"), [(True, 0.8), (False, 1.05)])
def test_parts_of_a_language_are_its_own_data_and_act_alike_until_runs_say_otherwise(alike, most):
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.full(6, 0.6), 100)
        nested = nested_log(p, alike, rng)
        apart = replace(nested, sources=tuple(name.replace("/", "-") for name in nested.sources))
        fits = [sm.fit(log.select(np.arange(10)), "learned-base", **FAST) for log in (nested, apart)]
        errors.append([error(found, nested.select(np.arange(10, 100))) for found in fits])
    with_parents, without = np.mean(errors, axis=0)
    assert with_parents < most * without


def test_repeats_of_a_part_harm_its_own_language_alone():
    own = harm_map(("en/web", "en/books", "de"), ("en", "de"))
    np.testing.assert_array_equal(own, [[1, 0], [1, 0], [0, 1]])
