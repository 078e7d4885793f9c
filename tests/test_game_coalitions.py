"""The game found in a log: which runs, which budget, what is missing, what repeats say."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from simulated import with_loss
from test_game_exact import shapley_by_permutations

from shapleymix.errors import DataError, UsageError
from shapleymix.game.coalitions import Game, coalition_game, coalition_masks, shapley_values
from shapleymix.game.exact import members_of
from shapleymix.game.kriging import exact_variance
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix


@pytest.fixture(scope="module")
def measured(fixtures: Path) -> RunLog:
    return read_runs(fixtures / "multilingual5_coalitions.csv")


def make_log(names: str, loss: np.ndarray, N: float = 1e6, D: float = 1e9) -> RunLog:
    """All coalitions of one-letter languages in the order of bitmasks, with losses (2**K, T)."""
    held = members_of(np.arange(2 ** len(names)), len(names)).astype(float)
    count = len(held)
    p = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
    tokens = np.where(np.arange(count) == 0, 0.0, D)
    runs = tuple(f"run{index}" for index in range(count))
    targets = tuple(f"t{index}" for index in range(loss.shape[1]))
    return RunLog(runs, np.full(count, N), tokens, p, loss, tuple(names), targets)


def join(*logs: RunLog) -> RunLog:
    arrays = {name: np.concatenate([getattr(log, name) for log in logs]) for name in ("N", "D", "p", "loss")}
    runs = tuple(f"{index}-{run}" for index, log in enumerate(logs) for run in log.runs)
    return replace(logs[0], runs=runs, lines=None, seed=None, split=None, weight=None, **arrays)


def random_losses(players: int, seed: int = 0, targets: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(2, 6, size=(2**players, targets))


def test_measured_log_equals_enumeration(measured: RunLog) -> None:
    matrix = shapley_values(measured)
    masks = (measured.p > 0) @ (1 << np.arange(5))
    loss = np.empty_like(measured.loss)
    loss[masks] = measured.loss
    np.testing.assert_allclose(matrix.sv, shapley_by_permutations(loss[0] - loss), atol=1e-13)
    assert (matrix.sources, matrix.targets) == (measured.sources, measured.targets)
    assert matrix.stderr is None
    told = {"method": "exact", "N": 23712.0, "D": 999424.0, "players": 5, "coalitions": 32, "repeats": 1}
    assert matrix.provenance.items() >= told.items()


def test_order_of_rows_changes_nothing(measured: RunLog) -> None:
    shuffled = measured.select(np.random.default_rng(0).permutation(len(measured)))
    np.testing.assert_array_equal(shapley_values(shuffled).nsv, shapley_values(measured).nsv)


def test_missing_coalitions_are_named(measured: RunLog) -> None:
    en, zh, ja = (measured.p[:, measured.sources.index(name)] for name in ("en", "zh", "ja"))
    part = measured.select((en + zh < 1) & (ja < 1) | (en == 1) | (zh == 1))
    with pytest.raises(DataError, match=r"2 of 31 coalitions missing .*: en\+zh, ja\n.*\(sampled\)"):
        shapley_values(part)
    assert coalition_game(part).missing() == ("en+zh", "ja")


def test_sampled_keeps_efficiency_and_covers(measured: RunLog) -> None:
    exact = shapley_values(measured).sv
    part = measured.select(np.delete(np.arange(len(measured)), [7, 9, 20, 22]))
    matrix = shapley_values(part, sampled=True)
    assert (matrix.provenance["method"], matrix.provenance["coalitions"]) == ("smooth", 28)
    np.testing.assert_allclose(matrix.sv.sum(axis=0), exact.sum(axis=0), atol=1e-13)
    assert np.mean(np.abs(matrix.sv - exact) <= 2 * matrix.stderr) > 0.9


def test_sampled_is_exact_where_nothing_is_missing(measured: RunLog) -> None:
    matrix = shapley_values(measured, sampled=True)
    np.testing.assert_array_equal(matrix.nsv, shapley_values(measured).nsv)
    assert matrix.stderr is None


def test_repeats_are_averaged_and_give_standard_errors() -> None:
    """Over many simulated pairs of runs, the spread of the values is the standard error that each reports."""
    truth, generator = random_losses(3, targets=1), np.random.default_rng(1)
    found = []
    for _ in range(300):
        noisy = [truth + 0.01 * generator.normal(size=truth.shape) for _ in range(2)]
        found.append(shapley_values(join(*(make_log("abc", loss) for loss in noisy))))
    values = np.array([each.sv for each in found])
    errors = np.array([each.stderr for each in found])
    np.testing.assert_allclose(values.mean(axis=0), shapley_by_permutations(truth[0] - truth), atol=2e-3)
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), values.std(axis=0), rtol=0.15)
    assert found[0].provenance["repeats"] == 2


def test_runs_without_the_targets_language_have_a_noise_of_their_own() -> None:
    """They scatter ten times as much here, and the last target, which is no player, has the scatter of all."""
    generator = np.random.default_rng(1)
    own = members_of(np.arange(16), 4)
    spread = np.column_stack([np.where(own, 0.01, 0.1), np.full(16, 0.05)])
    logs = [make_log("abcd", 4 + spread * generator.normal(size=spread.shape)) for _ in range(40)]
    game = coalition_game(replace(join(*logs), targets=(*"abcd", "other")))
    np.testing.assert_allclose(np.sqrt(40 * game.noise[1:]), spread[1:], rtol=0.3)


def test_noise_that_depends_on_the_size_of_the_coalition_is_told_by_size() -> None:
    """Fault: one noise of all sizes gave all entries of a column one error, off by half (.54) where sizes differ."""
    members = members_of(np.arange(64), 6)
    alone = 0.02 + 0.5 ** members.sum(axis=1, keepdims=True)
    spread = np.where(members, 0.02, alone)
    truth = np.sqrt(exact_variance(np.vstack([np.zeros((1, 6)), spread[1:] ** 2 / 2])))
    generator, found = np.random.default_rng(3), []
    for _ in range(40):
        logs = [make_log("abcdef", 4 + spread * generator.normal(size=spread.shape)) for _ in range(2)]
        game = coalition_game(replace(join(*logs), targets=tuple("abcdef")))
        found.append(np.sqrt(exact_variance(np.vstack([np.zeros((1, 6)), game.noise[1:]]))))
    off = np.log(np.array(found) / truth)
    assert np.sqrt((off**2).mean()) < 0.4


def test_where_only_runs_with_the_language_are_repeated_their_noise_stands_in() -> None:
    """Two runs of the grand coalition, which has every language."""
    log = replace(make_log("abc", random_losses(3, targets=3)), targets=tuple("abc"))
    game = coalition_game(join(log, with_loss(log.select([7]), log.loss[[7]] + 0.2)))
    np.testing.assert_allclose(game.noise, np.where(game.repeats == 2, 0.01, 0.02)[:, None] * np.ones(3))


def test_one_repeated_coalition_gives_all_their_noise() -> None:
    log = make_log("ab", random_losses(2, targets=1))
    again = with_loss(log.select([3]), log.loss[[3]] + 0.2)
    game = coalition_game(join(log, again))
    np.testing.assert_allclose(game.noise[:, 0], np.array([0.02, 0.02, 0.02, 0.01]))
    np.testing.assert_allclose(game.loss[3], log.loss[3] + 0.1)
    np.testing.assert_array_equal(game.repeats, [1, 1, 1, 2])


def test_repeated_untrained_model_says_nothing_of_training() -> None:
    log = make_log("ab", random_losses(2))
    assert coalition_game(join(log, log.select([0]))).noise is None


def test_the_only_complete_game_is_taken() -> None:
    small, large = make_log("abc", random_losses(3, 1)), make_log("abc", random_losses(3, 2), N=5e6)
    log = join(small, large.select(np.arange(7)))
    assert (coalition_game(log).N, coalition_game(log, N=5e6).missing()) == (1e6, ("a+b+c",))


def test_several_complete_games_need_a_choice() -> None:
    log = join(make_log("ab", random_losses(2, 1)), make_log("ab", random_losses(2, 2), D=2e9))
    with pytest.raises(UsageError, match=r"2 complete games: .*D = 1000000000; .*D = 2000000000"):
        coalition_game(log)
    np.testing.assert_array_equal(coalition_game(log, D=1.999e9).loss[1:], random_losses(2, 2)[1:])
    with pytest.raises(UsageError, match="no coalition run has D = 3000000000"):
        coalition_game(log, D=3e9)


def test_without_a_complete_game_the_fullest_is_taken() -> None:
    small, large = make_log("abc", random_losses(3, 1)), make_log("abc", random_losses(3, 2), N=5e6)
    game = coalition_game(join(small.select([0, 1, 2, 7]), large.select([0, 1, 2, 3, 4, 7])))
    assert (game.N, len(game.masks), game.complete) == (5e6, 6, False)


def test_of_several_untrained_models_the_one_of_the_nearest_size_stands_in() -> None:
    """Sizes are compared by their ratio: a model twice as large is nearer than one of a third of the size."""
    log = make_log("ab", random_losses(2))
    sizes = np.array([3e5, 2e6])
    ends = replace(log.select([0, 0]), N=sizes, loss=np.array([[9.0, 9.0], [8.0, 8.0]]))
    game = coalition_game(join(log.select([1, 2, 3]), ends))
    assert game.notices == ("no untrained model at N = 1000000; the one at N = 2000000 stands in",)
    assert game.complete
    np.testing.assert_array_equal(game.loss[0], [8.0, 8.0])


def test_untrained_model_is_never_assumed(measured: RunLog) -> None:
    with pytest.raises(DataError, match=r"untrained model .* is missing\n.*measured"):
        shapley_values(measured.select(measured.trained))


def test_unmeasured_losses_are_named_with_their_lines(measured: RunLog) -> None:
    loss = measured.loss.copy()
    loss[7, 3] = loss[9, 1] = np.nan
    with pytest.raises(
        DataError, match=r"(?s)2 faults.*:9 \[loss_zh\]: coalition en\+fr .*:11 .*en\+ja has no loss for de"
    ):
        shapley_values(with_loss(measured, loss))


def test_a_log_without_coalitions_or_languages_is_refused() -> None:
    log = make_log("ab", random_losses(2))
    p = np.where(log.p == 0.5, [0.7, 0.3], 0.0)
    with pytest.raises(DataError, match="no coalition run"):
        coalition_game(replace(log, p=p).select([0, 3]))
    with pytest.raises(DataError, match="1 to 62 languages, the log has 0"):
        coalition_game(replace(log, p=np.zeros((4, 0)), sources=()))


@pytest.mark.parametrize(
    ("p", "mask"),
    [
        ([0.5, 0.5, 0.0], 3), ([1.0, 0.0, 0.0], 1), ([1 / 3, 1 / 3, 1 / 3], 7), ([0.333, 0.333, 0.334], 7),
        ([0.0, 0.4995, 0.5005], 6), ([0.48, 0.52, 0.0], -1), ([0.495, 0.495, 0.01], -1), ([0.6, 0.4, 0.0], -1),
        ([0.34, 0.33, 0.33], -1),
    ],
)  # fmt: skip
def test_which_mixtures_are_coalitions(p: list[float], mask: int) -> None:
    assert coalition_masks(np.array([p]), np.array([1e9])).tolist() == [mask]


def test_rounding_of_ratios_does_not_hide_a_coalition() -> None:
    """Every subset of 17 languages of one to 17 members, its ratios rounded to three decimals."""
    held = np.tri(17, dtype=bool)
    p = np.round(held / held.sum(axis=1, keepdims=True), 3)
    masks = coalition_masks(p / p.sum(axis=1, keepdims=True), np.full(17, 1e9))
    assert masks.tolist() == [2**size - 1 for size in range(1, 18)]


def test_values_of_an_additive_game_order_its_coalitions_perfectly_and_flipped_ones_the_wrong_way():
    value = np.array([[0.5, 0.1], [0.2, -0.3], [0.1, 0.05]])
    masks = np.arange(8)
    loss = 5.0 - ((masks[:, None] >> np.arange(3)) & 1) @ value
    game = Game(("a", "b", "c"), ("a", "x"), masks, loss, np.ones(8, dtype=np.int64), None, 1e6, 1e8)
    values = TransferMatrix.from_sv(value[::-1], ("c", "b", "a"), ("a", "x"))
    np.testing.assert_allclose(game.datamodelling_score(values).spearman, 1.0)
    flipped = TransferMatrix.from_sv(-value, ("a", "b", "c"), ("a", "x"))
    np.testing.assert_allclose(game.datamodelling_score(flipped).spearman, -1.0)
