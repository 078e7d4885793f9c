"""From logs to a fit: what it must find, what must not change it, and what it must say."""

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from simulated import FAST, log_of, mixtures, with_loss

from shapleymix.errors import FitError
from shapleymix.fitting.estimation import Stop, estimate
from shapleymix.fitting.fit import Fit, fit
from shapleymix.laws import LAWS
from shapleymix.tables.runs import RunLog, write_runs

pytestmark = pytest.mark.usefixtures("one_prior")


def text_of(found: Fit, *, without: tuple[str, ...] = ()) -> str:
    document = found.to_document()
    for name in without:
        del document["provenance"][name]
    return json.dumps(document)


def core_of(found: Fit) -> dict[str, np.ndarray]:
    return {known.name: np.asarray(getattr(found.law, known.name)) for known in type(found.law).symbols_to_fit()}


# what the budgets can tell


def test_one_D_takes_the_data_term_from_public_runs_and_says_so():
    truth, given, log = log_of("shapley", rows=30, tokens=(1e10,))
    found = fit(log, "shapley", given.transfer, **FAST)
    assert set(found.held) == {"B", "beta"}
    np.testing.assert_array_equal(found.law.beta, 0.5)
    assert {row[0] for row in found.parameters()} == {"E", "A", "alpha", "B", "beta", "gamma"}
    p = mixtures(5, 4, seed=7)
    np.testing.assert_allclose(
        found.predict(p, 1e8, 1e10).losses, truth(p, np.full(5, 1e8), np.full(5, 1e10)), rtol=1e-6
    )
    assert not [warning for warning in found.predict(p[:1], 1e8, 1e10).warnings if "one D" in warning]
    (warning,) = (text for text in found.predict(p, 1e8, 5e10).warnings if "D" in text)
    assert "one D (10B)" in warning
    assert "public runs" in warning


def test_one_N_takes_the_size_term_from_public_runs_and_says_so():
    _, _, log = log_of("learned-base", rows=30, sizes=(1e8,))
    found = fit(log, "learned-base", **FAST)
    assert set(found.held) == {"A", "alpha", "eta"}
    np.testing.assert_array_equal(found.law.alpha, 0.2)
    assert any("one N (100M)" in text for text in found.predict(log.p, 2e8, log.D).warnings)


def test_learned_transfer_is_in_its_gauge_in_every_replicate():
    _, _, log = log_of("effective-data", rows=40, noise=5e-3)
    found = fit(log, "effective-data", bootstrap=5, folds=0)
    for law in (found.law, found.replicates):
        np.testing.assert_allclose(law.coefficients.max(axis=-2), 1.0, rtol=1e-12)  # type: ignore[union-attr]


# what must not matter


def test_missing_losses_are_as_good_as_rows_of_weight_nought(noisy):
    _, given, log = noisy
    loss = log.loss.copy()
    loss[3:9, 0] = np.nan
    missing = fit(with_loss(log, loss), "shapley-tempered", given.transfer, **FAST)
    rows = np.r_[0:3, 9:36]
    shorter = fit(log.select(rows), "shapley-tempered", given.transfer, **FAST)
    whole = fit(log, "shapley-tempered", given.transfer, **FAST)
    p, N, D = log.p, log.N, log.D
    np.testing.assert_allclose(missing.law(p, N, D)[:, 0], shorter.law(p, N, D)[:, 0], rtol=1e-5)
    np.testing.assert_allclose(missing.law(p, N, D)[:, 1:], whole.law(p, N, D)[:, 1:], rtol=1e-12)
    np.testing.assert_array_equal(missing.fitted_scores.rows, [30, 36, 36, 36])


def test_a_row_of_weight_nought_changes_nothing(noisy):
    _, given, log = noisy
    weight = np.where(np.arange(36) % 7 == 0, 0.0, 1.0)
    spoiled = np.where(weight[:, None] > 0, log.loss, 19.0)
    one = fit(replace(log, weight=weight, loss=spoiled), "shapley-tempered", given.transfer, **FAST)
    other = fit(replace(log, weight=weight), "shapley-tempered", given.transfer, **FAST)
    for symbol, value in core_of(one).items():
        np.testing.assert_array_equal(value, core_of(other)[symbol])
    assert one.fitted_scores.to_document() == other.fitted_scores.to_document()


def test_the_order_of_rows_changes_no_byte(noisy, tmp_path, monkeypatch):
    monkeypatch.setattr("shapleymix.fitting.estimation.CHUNK_BYTES", 3e4)
    _, given, log = noisy
    log = log.select(np.arange(24))
    paths = []
    for index, order in enumerate((np.arange(24), np.random.default_rng(0).permutation(24))):
        (tmp_path / str(index)).mkdir()
        paths.append(tmp_path / str(index) / "runs.csv")
        write_runs(log.select(order), paths[-1])
    one, other = (fit(path, "auto", given.transfer, bootstrap=3, folds=2, starts=1) for path in paths)
    assert one.provenance["log_sha256"] != other.provenance["log_sha256"]
    assert len(str(one.provenance["log_sha256"])) == 64
    assert text_of(one, without=("log", "log_sha256")) == text_of(other, without=("log", "log_sha256"))


@pytest.mark.parametrize(
    ("name", "delta", "rtol"), [("shapley-tempered", np.inf, 1e-7), ("additive", 1e-3, 5e-3), ("family", np.inf, 1e-7)]
)
def test_the_order_of_columns_changes_no_number(noisy, name, delta, rtol):
    """Sums run in another order. Where nearly all residuals are in Huber's linear zone, the optimum is a flat face.

    Replicates of what is believed are drawn column by column, and are others.
    """
    _, given, log = noisy
    source, target = np.array([2, 0, 3, 1]), np.array([3, 1, 0, 2])
    turned = log.align([log.sources[i] for i in source], [log.targets[j] for j in target])
    options: dict[str, Any] = {"bootstrap": 3, "folds": 3, "delta": delta}
    one = fit(log, name, given.transfer, given.languages, **options)
    other = fit(turned, name, given.transfer, given.languages, **options)
    p, N, D = log.p, log.N, log.D
    np.testing.assert_allclose(other.law(p[:, source], N, D), one.law(p, N, D)[:, target], rtol=rtol)
    np.testing.assert_allclose(other.held_out.PE, one.held_out.PE[target], rtol=20 * rtol)
    np.testing.assert_array_equal(other.coverage.whole_p_range, one.coverage.whole_p_range[source])


def test_the_seed_decides_the_replicates_and_nothing_else(noisy):
    _, given, log = noisy
    options = {"transfer": given.transfer, "bootstrap": 4, "folds": 3}
    one, again, other = (fit(log, "shapley-tempered", seed=seed, **options) for seed in (1, 1, 2))
    assert text_of(one) == text_of(again)
    assert one.law.to_document() == other.law.to_document()
    assert [found.provenance["seed"] for found in (one, other)] == [1, 2]
    assert one.replicates.to_document() != other.replicates.to_document()  # type: ignore[union-attr]


# filters and splits


def test_filters_leave_rows_out_and_count_them(noisy):
    _, given, log = noisy
    fewest = (log.p * log.D[:, None]).min(axis=1)
    limit = float(np.sort(fewest)[5])
    found = fit(log, "shapley-tempered", given.transfer, min_tokens=limit, **FAST)
    assert found.rows == 31
    assert any("left out 5 rows" in notice for notice in found.notices)
    kept = fit(log.select(fewest >= limit), "shapley-tempered", given.transfer, **FAST)
    split = tuple("fit" if tokens >= limit else "held-out" for tokens in fewest)
    spoiled = replace(log, split=split, loss=np.where(fewest[:, None] >= limit, log.loss, 50.0))
    apart = fit(spoiled, "shapley-tempered", given.transfer, **FAST)
    for one in (found, apart):
        np.testing.assert_array_equal(one.law(log.p, log.N, log.D), kept.law(log.p, log.N, log.D))


# standing, parameters, files


def test_targets_at_which_the_search_stopped_early_are_told(noisy, monkeypatch):
    _, given, log = noisy
    monkeypatch.setattr(estimate, "__defaults__", (None, None, Stop(1, 1e-8)))
    assert fit(log, "shapley", given.transfer, **FAST).stopped == log.targets


def test_one_mixture_tells_nothing_about_mixtures(noisy):
    _, given, log = noisy
    alone = replace(log, p=np.tile(log.p[:1], (36, 1)))
    with pytest.raises(FitError, match="all 36 runs have one"):
        fit(alone, "shapley", given.transfer, **FAST)


def test_parameters_are_those_of_the_law_with_intervals_around_them(noisy):
    _, _, log = noisy
    found = fit(log, "learned-base", bootstrap=40, folds=0)
    rows = found.parameters()
    assert len(rows) == 4 * (11 + 4)
    for symbol, source, target, value, low, high in rows:
        j = found.targets.index(target)
        place = (j,) if source is None else (found.sources.index(source), j)
        assert value == getattr(found.law, symbol)[place]
        drawn = getattr(found.replicates, symbol)[(slice(None), *place)]
        assert min(value, drawn.min()) <= low <= value <= high <= max(value, drawn.max())
    assert all(np.isnan(row[4]) for row in fit(log, "learned-base", **FAST).parameters())


def test_a_log_without_ratios_fits_predicts_and_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    N, D = rng.uniform(1e7, 1e9, 30), rng.uniform(1e9, 1e11, 30)
    loss = (1.7 + 400 * N**-0.34 + 1500 * D**-0.37)[:, None]
    log = RunLog(tuple(map(str, range(30))), N, D, np.empty((30, 0)), loss, (), ("loss",))
    found = fit(log, bootstrap=3, folds=3)
    assert found.law.name == "chinchilla"
    found.save(tmp_path / "fit.json")
    for one in (found, Fit.load(tmp_path / "fit.json")):
        predicted = one.predict(np.empty((30, 0)), N, D)
        np.testing.assert_allclose(predicted.losses, loss, rtol=1e-6)
        assert predicted.warnings == ()


def test_a_black_box_fits_without_replicates(noisy, tmp_path):
    pytest.importorskip("lightgbm")
    log = noisy[2]
    found = fit(log, "gbm", bootstrap=50, folds=3)
    assert found.replicates is None
    assert found.parameters() == []
    assert any("black box has no bootstrap replicates" in notice for notice in found.notices)
    assert found.held_out is not None
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    np.testing.assert_array_equal(again.predict(log.p, log.N, log.D).low, found.predict(log.p, log.N, log.D).low)


@dataclass(frozen=True)
class NoMixture(LAWS["chinchilla"]):  # type: ignore[misc]
    """A user's subclass of a law of ours."""

    kind = "law/test-no-mixture"
    name = "test-no-mixture"


def test_a_users_own_law_fits_and_comes_back(noisy, tmp_path):
    found = fit(noisy[2], NoMixture, bootstrap=2, folds=3)
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert type(again.law) is NoMixture
    assert again.provenance["law"] == "test-no-mixture"
