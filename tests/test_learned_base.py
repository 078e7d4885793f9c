"""The law with a base where a transfer matrix is given: believed as far as cross-validation says that it helps."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from shapleymix_cli.documents.fits import fit_document
from shapleymix_cli.views.fit import fit_view
from shapleymix_cli.views.tables import show

import shapleymix as sm
from shapleymix.fitting.beliefs import knobs_told
from shapleymix.fitting.fits import Fit
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

K, GAMMA = 8, 0.3
NAMES = tuple(f"l{place}" for place in range(K))
pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def matrix(rng: np.random.Generator) -> tuple[sm.TransferMatrix, FloatArray]:
    """Random Shapley values, their own largest, and the normalised ones."""
    sv = rng.uniform(-3, 0, (K, K))
    np.fill_diagonal(sv, 0.0)
    rows = {
        "source": np.repeat(NAMES, K).tolist(),
        "target": list(NAMES) * K,
        "sv": sv.ravel().tolist(),
    }
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
    for seed in range(3):
        rng = np.random.default_rng(seed)
        given, nsv = matrix(rng)
        u = nsv if told else rng.permutation(nsv.ravel()).reshape(K, K)
        p = rng.dirichlet(np.full(K, 0.5), 112)
        log = log_of(p, np.where(np.eye(K) > 0, 1.5, u), rng)
        few, rest = log.select(np.arange(runs)), log.select(np.arange(runs, 112))
        errors.append([error(sm.fit(few, "learned-base", sv, bootstrap=0), rest) for sv in (given, None)])
    with_matrix, without = np.mean(errors, axis=0)
    assert with_matrix < most * without


def test_without_a_matrix_nothing_is_tried_for_it():
    rng = np.random.default_rng(4)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 12), np.eye(K), rng)
    assert not np.any(sm.fit(log, "learned-base", bootstrap=0).law.nsv)


def test_a_target_of_one_loss_has_no_held_out_error_and_no_say():
    """Faults: its error was 0, from the fit that had seen it; weights were 0 / 0; and 0 bent the choice of all."""
    rng = np.random.default_rng(5)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 24), np.eye(K) * 1.5, rng)
    loss = log.loss.copy()
    loss[1:, 3] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = sm.fit(replace(log, loss=loss), "learned-base", bootstrap=5, threads=1)
    assert found.held_out is not None
    assert np.isnan(found.held_out.PE[3])
    others = np.delete(np.arange(K), 3)
    alone = sm.fit(log.select(np.arange(24)), "learned-base", bootstrap=0, threads=1)
    assert alone.held_out is not None
    np.testing.assert_allclose(found.held_out.PE[others], alone.held_out.PE[others], rtol=0.2)


def test_a_matrix_without_a_language_of_the_log_is_refused_by_name():
    """Fault: every law that takes the matrix dropped out of auto, and another won without a word."""
    rng = np.random.default_rng(6)
    log = log_of(rng.dirichlet(np.full(K, 0.5), 12), np.eye(K), rng)
    short = [(i, j) for i in range(K - 1) for j in range(K - 1)]
    rows = {"source": [NAMES[i] for i, _ in short], "target": [NAMES[j] for _, j in short], "sv": [-0.1] * len(short)}
    for law in ("auto", "learned-base"):
        with pytest.raises(sm.ShapleyMixError, match="l7"):
            sm.fit(log, law, sm.read_transfer(rows), bootstrap=0)


def test_the_exponent_of_own_data_is_shown_only_where_there_are_own_data(capsys):
    """For targets that are no sources it was shown with an interval, and made their fit look ill-conditioned."""
    rng = np.random.default_rng(3)
    log = log_of(rng.dirichlet(np.ones(K), 12), matrix(rng)[1], rng)
    foreign = replace(log, targets=("code", *log.targets[1:]))
    found = sm.fit(foreign, "learned-base", bootstrap=3, folds=0)
    shown = {symbol: [row[2] for row in found.parameters() if row[0] == symbol] for symbol in ("a", "c")}
    assert shown == {"a": [*foreign.targets[1:]], "c": [*foreign.targets]}
    show(fit_view(found, verbose=False))
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("a "))
    assert row[1] == "-"
    assert "-" not in row[2:]


def test_a_symbol_without_any_effect_trades_with_no_other():
    """The condition of a target that is no source was infinite."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(2), 60)
    u = rng.uniform(0.5, 1.0, (2, 2))
    loss = 2.5 * (1 + p**0.45 @ (u / GAMMA)) ** -GAMMA
    columns = {"N": [1e7] * 60, "D": [1e9] * 60, "p_en": p[:, 0], "p_de": p[:, 1], "loss_code": loss[:, 0]}
    found = sm.fit(sm.read_runs({"run": [f"r{row}" for row in range(60)], **columns}), "learned-base", bootstrap=0)
    assert [one.state for one in found.status] == ["converged"]


def test_a_fit_says_what_it_believed_before_any_run(tmp_path, capsys):
    """The choice of cross-validation was nowhere to be read."""
    rng = np.random.default_rng(3)
    given, nsv = matrix(rng)
    log = log_of(rng.dirichlet(np.ones(K), 8), nsv, rng)
    plain, told = (sm.fit(log, "learned-base", sv, bootstrap=0, folds=3) for sv in (None, given))
    values = type(plain.law).knobs
    assert set(plain.knobs) == {"u", "gamma", "c", "a"}, "without a matrix its share says nothing"
    assert set(told.knobs) == set(values)
    assert all(np.isin(chosen, values[name]).all() for name, chosen in told.knobs.items())
    told.save(tmp_path / "fit.json")
    read = Fit.load(tmp_path / "fit.json")
    assert read.to_document() == told.to_document()
    assert fit_document(read)["knobs"]["u"][NAMES[0]] == told.knobs["u"][0]
    show(fit_view(read, verbose=False))
    assert "Believed before any run, by cross-validation: u " in " ".join(capsys.readouterr().out.split())
    with pytest.raises(ValueError, match="knobs: u holds not one finite number"):
        replace(told, knobs={"u": told.knobs["u"][:-1]})


def test_what_was_chosen_is_told_by_its_targets():
    chosen = {"u": np.array([0.5, 0.15, 0.5]), "c": np.full(3, 0.45)}
    assert knobs_told(chosen, ("en", "de", "fr")) == [
        "believed before any run, by cross-validation: u 0.5 (0.15 for de), c 0.45"
    ]
    assert knobs_told({}, ("en",)) == []
