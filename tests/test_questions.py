"""Logs that fit without an error and should be questioned; and no question where there is nothing to ask."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated import FAST, log_of, with_loss

from shapleymix.errors import DataError, UsageError
from shapleymix.fitting.evidence import gather, progress, questions_of_fit, questions_of_log
from shapleymix.fitting.fit import fit
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import study_of
from shapleymix.records import FloatArray
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "multilingual5_runs.csv"


def asked(log: RunLog) -> tuple[str, ...]:
    return questions_of_log(log, ~np.isnan(log.loss))


@pytest.fixture
def log() -> RunLog:
    return log_of("shapley", rows=30, noise=5e-3)[2]


def with_mean(log: RunLog, digits: int = 8) -> RunLog:
    mean = np.round(log.loss.mean(axis=1, keepdims=True), digits)
    return with_loss(log, np.concatenate([log.loss, mean], axis=1), (*log.targets, "avg"))


def test_sound_logs_raise_no_question(log):
    assert asked(log) == ()
    assert asked(replace(log, p=np.zeros((30, 0)), sources=())) == ()
    assert asked(read_runs(FIXTURE)) == ()
    assert asked(log.select([0])) == ()
    assert asked(with_loss(log, np.full(log.loss.shape, 2.0))) == ()


def test_losses_below_what_text_allows_are_questioned(log):
    (found,) = asked(with_loss(log, log.loss / 20))
    assert found.startswith("all losses are below 0.3 nats per token (")


@pytest.mark.parametrize(
    ("N", "D", "loss"),
    [(1e11, 1e9, 1), (1e3, 1e11, 1), (1e9, 100, 1), (7e4, 1.4e12, 1), (8e8, 4e4, 1), (243, 1e5, 1), (1e9, 1e11, 9)],
    ids=["swapped", "tokens a parameter", "billions of D", "millions of N", "millions of D", "both", "perplexities"],
)
def test_numbers_of_no_language_model_are_refused(log, tmp_path, N, D, loss):
    """Fault: logs in other units, or with N and D swapped, were fitted in silence."""
    table = log.columns() | {"N": log.N * N / log.N.mean(), "D": log.D * D / log.D.mean()}
    table |= {name: column * loss for name, column in table.items() if name.startswith("loss_")}
    with pytest.raises(DataError) as caught:
        read_runs(table, origin="a.csv")
    assert caught.value.location.file == "a.csv"
    assert caught.value.hint


REAL = sorted((Path(__file__).resolve().parents[2] / "shared" / "data").glob("*.csv"))
SOUND = [*sorted(FIXTURE.parent.glob("*_runs.csv")), *sorted(FIXTURE.parent.glob("*_coalitions.csv")), *REAL]


@pytest.mark.parametrize("path", SOUND, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("seen", [False, True], ids=["whole", "one row"])
def test_real_logs_raise_no_question_but_of_their_checkpoints(path, seen):
    """The shared logs are there in a checkout beside them alone; the fixtures are always there."""
    try:
        log = read_runs(path)
    except DataError:
        pytest.skip("no run log")
    kept = log.select(log.trained)
    found = asked(kept.select([0]) if seen else kept)
    assert all("checkpoints" in text for text in found)
    assert len(found) == ((progress(kept) < 1).any() and not seen)


def study_notices(log: RunLog, vocabulary: float) -> tuple[str, ...]:
    return study_of(log, None, None, Settings(), 0, vocabulary=vocabulary).evidence.notices


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_corrupted_losses_are_named_by_row(log, factor):
    """Fault: single corrupted losses moved a fit without a word."""
    spoiled = log.loss.copy()
    spoiled[7, 1] *= factor
    spoiled[12, 3] *= factor**1.5
    found = fit(with_loss(log, spoiled), "learned-base", **FAST)
    (notice,) = [notice for notice in found.notices if "far from the law" in notice]
    assert notice.startswith("2 of 120 losses lie far from the law")
    assert notice.index("run-12 at D") < notice.index("run-7 at D")
    assert f"zh {spoiled[12, 3]:.4g}, fitted" in notice
    assert not any("far from the law" in notice for notice in fit(log, "learned-base", **FAST).notices)


def checkpointed(drift: FloatArray) -> RunLog:
    """Ten runs of eight checkpoints each, whose log losses are off a law by the drift (8,)."""
    _, _, first = log_of("chinchilla", rows=10, sizes=(1e8, 2e8, 4e8))
    law = log_of("chinchilla", rows=10)[0]
    rows, step = np.repeat(np.arange(10), 8), np.tile(np.arange(1, 9), 10)
    log = replace(first.select(rows), D=1e9 * step * (1.0 + np.repeat(np.arange(10) % 3, 8)))
    return with_loss(log, law(log.p, log.N, log.D) * np.exp(drift[step - 1])[:, None])


def test_checkpoints_are_questioned_and_their_drift_is_measured():
    """Fault: checkpoints of a decaying learning rate were taken for final losses."""
    drift = np.linspace(-0.02, 0.02, 8)
    log = checkpointed(drift)
    assert "70 of 80" in asked(log)[0]
    residual = np.tile(drift, 10)[:, None] * np.ones((1, 4))
    (found,) = questions_of_fit(log, residual, np.ones(log.loss.shape, dtype=bool))
    assert f"{drift[:2].mean():+.2%}" in found
    assert f"{drift[6:].mean():+.2%}" in found


def test_the_share_that_is_dropped_is_of_each_run():
    log = checkpointed(np.zeros(8))
    np.testing.assert_allclose(progress(log), np.tile(np.arange(1, 9) / 8, 10))
    found = gather(log, Settings(drop_warmup=0.25))
    assert len(found.log) == 70
    assert any("10 rows" in notice for notice in found.notices)
    single = log_of("shapley", rows=30)[2]
    assert len(gather(single, Settings(drop_warmup=0.9)).log) == 30


@pytest.mark.parametrize("share", [-0.1, 1.0, np.nan])
def test_a_warmup_that_is_no_share_is_refused(share):
    with pytest.raises(UsageError, match="a warm-up of"):
        Settings(drop_warmup=share)


def test_dropping_the_warmup_fits_the_rest(log):
    noisy = checkpointed(np.array([0.3, 0.2, 0, 0, 0, 0, 0, 0]))
    whole, rest = (fit(noisy, "chinchilla", drop_warmup=share, **FAST) for share in (0.0, 0.3))
    assert rest.rows == 60
    assert rest.fitted_scores.mean["PE"] < 1e-3 < whole.fitted_scores.mean["PE"]


def test_unused_losses_are_not_questioned(log):
    loss = log.loss.copy()
    loss[0] = 40.0
    weight = np.ones(30)
    weight[0] = 0.0
    assert gather(replace(with_loss(log, loss), weight=weight), Settings()).notices == ()


def test_runs_that_do_not_drift_are_not_questioned():
    log = checkpointed(np.zeros(8))
    noise = 3e-3 * np.random.default_rng(0).standard_normal(log.loss.shape)
    assert questions_of_fit(log, noise, np.ones(log.loss.shape, dtype=bool)) == ()


def test_the_last_checkpoints_alone_tell_final_losses():
    noisy = checkpointed(np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0]))
    last = progress(noisy) == 1
    evidence = gather(noisy, Settings(last_only=True))
    assert len(evidence.log) == 10
    assert any("70 rows" in notice for notice in evidence.notices)
    found = fit(noisy, "chinchilla", last_only=True, **FAST)
    alone = fit(noisy.select(last), "chinchilla", **FAST)
    points = noisy.p, noisy.N, noisy.D
    np.testing.assert_array_equal(found.law(*points), alone.law(*points))
    single = log_of("shapley", rows=30)[2]
    assert len(gather(single, Settings(last_only=True)).log) == 30
