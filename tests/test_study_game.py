"""The study's game: its noise against a truth that is known, its controls, and laws with a matrix built in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import game
import inrun
import numpy as np
import pytest
import worth
from logs import SIZES, Study, by_seed

import shapleymix as sm
from shapleymix.game.coalitions import coalition_game
from shapleymix.laws.shapley import Shapley

FIXTURES = Path(__file__).parents[1] / "fixtures"
GAME = sm.read_runs(FIXTURES / "multilingual5_coalitions.csv")
SPREAD = 0.02


def two_seeds(generator: np.random.Generator) -> sm.RunLog:
    """The five languages' game with two made-up seeds, whose scatter is known."""
    log = GAME.select(np.concatenate([np.arange(len(GAME))] * 2))
    seed = ["0"] * len(GAME) + ["1"] * len(GAME)
    noise = SPREAD * generator.normal(size=log.loss.shape) * log.trained[:, None]
    names = tuple(f"{run}-{one}" for run, one in zip(log.runs, seed, strict=True))
    return replace(log, runs=names, seed=tuple(seed), loss=log.loss + noise, N=np.full(len(log), float(SIZES["tiny"])))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    sm.write_runs(two_seeds(np.random.default_rng(0)), tmp_path / "game-tiny.csv")
    names = "".join(f"{name},1000000\n" for name in GAME.sources)
    (tmp_path / "languages.csv").write_text(f"language,available_tokens\n{names}")
    return Study(tmp_path)


def test_seeds_are_parted_each_with_an_untrained_model(study: Study):
    whole = study.game_tiny
    for seed in (0, 1):
        log = by_seed(whole, seed)
        assert len(log) == 32
        assert set(log.seed or ()) == {str(seed)}
        assert coalition_game(log).complete
    once = whole.select(whole.trained | (np.array(whole.seed) == "0"))
    assert len(by_seed(once, 1)) == 32, "where a seed has no untrained model, another's stands in"


def test_the_scatter_and_the_standard_errors_are_the_truth(study: Study):
    assert np.sqrt(game.seed_variances(study).mean()) == pytest.approx(SPREAD, rel=0.1)
    stderr = study.sv.stderr
    assert stderr is not None
    redrawn = game.resampled(coalition_game(study.game_tiny), np.random.default_rng(0)).std(axis=0)
    np.testing.assert_allclose(redrawn, stderr, rtol=0.1)
    drawn = [sm.shapley_values(two_seeds(np.random.default_rng(one))) for one in range(100)]
    spread = np.std([one.sv for one in drawn if one.sv is not None], axis=0)
    said = np.mean([one.stderr for one in drawn if one.stderr is not None], axis=0)
    np.testing.assert_allclose(game.root_mean_square(said), game.root_mean_square(spread), rtol=0.1)


def test_noise_alone_leaves_less_where_there_is_more_of_it(study: Study):
    found = coalition_game(study.game_tiny)
    little, much = (game.by_noise_alone(found, study.sv, (scale, scale))[3] for scale in (1.0, 400.0))
    assert 0.99 < little < 1
    assert much < little


def test_controls_add_up_as_the_truth_and_shuffles_keep_what_they_keep():
    truth = sm.shapley_values(GAME)
    assert truth.sv is not None
    for made in (*inrun.controls(truth).values(), inrun.shuffled(truth, np.random.default_rng(0))):
        assert made.sv is not None
        np.testing.assert_allclose(made.sv.sum(axis=0), truth.sv.sum(axis=0))
    other = inrun.shuffled(truth, np.random.default_rng(0)).sv
    assert other is not None
    np.testing.assert_array_equal(np.diag(other), np.diag(truth.sv))
    np.testing.assert_array_equal(np.sort(other, axis=0), np.sort(truth.sv, axis=0))
    assert not np.array_equal(other, truth.sv)


def test_a_law_with_its_matrix_built_in_is_the_law_given_the_matrix():
    log = sm.read_runs(FIXTURES / "multilingual5_runs.csv")
    log = log.select(np.array([run.startswith("rand") for run in log.runs]))
    truth = sm.shapley_values(GAME)
    equal = inrun.controls(truth)["all equal"]
    built_in = sm.compare(log, [worth.with_matrix(Shapley, "exact", truth), worth.with_matrix(Shapley, "equal", equal)])
    for entry, matrix in zip(built_in.entries, (truth, equal), strict=True):
        given = sm.compare(log, "shapley", transfer=matrix).entries[0].scores
        assert entry.scores is not None
        assert given is not None
        np.testing.assert_allclose(entry.scores.PE, given.PE, rtol=1e-9)
    assert [entry.law for entry in built_in.entries] == ["exact", "equal"]
    assert Shapley.name == "shapley"


def test_the_share_of_the_drop_is_that_before_calibration():
    raw = sm.read_transfer(FIXTURES / "multilingual5_irds_raw.csv")
    assert raw.sv is not None
    shares = raw.sv.sum(axis=0) / np.array([raw.provenance["loss_drop"][one] for one in raw.targets])
    assert inrun.sum_over_drop(raw) == f"{shares.min():.3f} to {shares.max():.3f}"
