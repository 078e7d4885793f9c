"""Run logs whose rows belong together: folds that keep mixtures whole, and several logs as one."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import log_of, same_rows

from shapleymix.errors import DataError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.mixing.optimize import optimize
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import concat, write_runs

pytestmark = pytest.mark.usefixtures("one_prior")


@pytest.mark.parametrize("seed", range(2))
def test_neither_names_nor_orders_matter(seed, fixtures):
    """Fault: renaming `en` to `zen` moved an optimum from .331 to .289, as folds were drawn by name."""
    log = log_of("learned-base", rows=24, noise=1e-2, seed=seed)[2]
    log = read_runs(fixtures / "multilingual5_runs.csv") if seed else log
    rng, M = np.random.default_rng(seed), len(log.sources)
    rows, columns, targets = rng.permutation(len(log)), rng.permutation(M), rng.permutation(M)
    names = dict(zip(log.sources, rng.permutation([f"name-{letter}" for letter in "abcde"[:M]]).tolist(), strict=True))
    renamed = replace(
        log.select(rows),
        runs=log.runs,
        sources=tuple(names[name] for name in log.sources),
        targets=tuple(names[name] for name in log.targets),
    )
    turned = renamed.align([renamed.sources[i] for i in columns], [renamed.targets[j] for j in targets])
    assert np.array_equal(turned.folds(5), log.folds(5)[rows])
    found = []
    for one in (log, renamed, turned):
        told = fit(one, "learned-base", bootstrap=3, folds=3)
        prediction, mix = told.predict("uniform", 1e9, 1e11), optimize(told, 1e9, 1e11)
        i, j = (np.argsort(order if one is turned else np.arange(M)) for order in (columns, targets))
        rival = mix.baselines[0]
        gain = [mix.objective, mix.objective_low, rival.gain, rival.gain_low, rival.gain_high, rival.probability]
        losses = (prediction.losses, prediction.low, prediction.high)
        found.append([mix.p[i], mix.p_low[i], gain, *(each[0, j] for each in losses)])
    for first, *others in zip(*found, strict=True):
        for other in others:
            np.testing.assert_allclose(other, first, atol=1e-9)


def test_folds_that_cannot_be(fixtures):
    log = read_runs(fixtures / "multilingual5_coalitions.csv")
    with pytest.raises(DataError, match="33 folds need 33 different mixtures; the log has 32"):
        log.folds(33)
    with pytest.raises(UsageError):
        log.folds(1)


def test_noise_in_the_last_bits_does_not_part_a_mixture():
    """Ratios are compared in steps of 1e-4, to the nearest: a floor would part .29996 and .30004."""
    halves = np.array([[0.00005, 0.99995], [0.12345, 0.87655], [0.5, 0.5], [0.29996, 0.70004]])
    nudged = np.nextafter(halves, 1)
    nudged[3] = 0.30004, 0.69996
    table = {"run": [f"{k}" for k in range(8)], "N": [1e6] * 8, "D": [1e7] * 8, "loss": [1.0] * 8}
    both = np.vstack([halves, nudged])
    log = read_runs(table | {"p_x": both[:, 0], "p_y": both[:, 1]})
    assert (log.mixture_keys[:4], len(set(log.groups.tolist()))) == (log.mixture_keys[4:], 4)


def test_a_log_without_ratios_groups_by_run():
    log = read_runs({"run": ["a", "a", "b"], "N": [1e6] * 3, "D": [1e7, 2e7, 1e7], "loss": [3, 2, 4]})
    assert log.groups[0] == log.groups[1] != log.groups[2]


def test_several_logs_as_one(fixtures):
    game, runs = (read_runs(fixtures / f"multilingual5_{name}.csv") for name in ("coalitions", "runs"))
    turned = runs.align(runs.sources[::-1], runs.targets[::-1])
    both = concat([game, turned])
    assert (len(both), both.sources) == (len(game) + len(runs), game.sources)
    assert same_rows(both.select(np.arange(len(game), len(both))), runs)
    assert same_rows(both, read_runs([fixtures / "multilingual5_coalitions.csv", fixtures / "multilingual5_runs.csv"]))
    assert both.digest not in (game.digest, runs.digest)


def test_several_logs_with_other_labels_are_refused():
    first = read_runs({"run": ["a"], "N": [1e6], "D": [1e7], "p_en": [1], "loss_en": [1]})
    other = read_runs({"run": ["b"], "N": [1e6], "D": [1e7], "p_eng": [1], "loss_en": [1]})
    with pytest.raises(DataError, match="did you mean 'eng'"):
        concat([first, other])


def test_a_row_in_two_logs_is_refused_and_a_clash_of_ids_resolved(tmp_path):
    base = {"run": ["a", "b"], "N": [1e6, 1e6], "D": [1e7, 1e7], "p_en": [1, 0.5], "p_de": [0, 0.5], "loss_en": [3, 3]}
    first = read_runs(base)
    with pytest.raises(DataError, match=r"repeats run 'a' at D = 1e.07 of <memory>:1"):
        concat([first, read_runs(base)])
    later = concat([first, read_runs(base | {"D": [2e7, 2e7]})])
    assert later.runs == ("a", "b", "a", "b")
    assert concat([first, read_runs(base | {"seed": [1, 1]})]).runs[0] != "a"
    for name, N in (("small", 1e6), ("large", 2e6)):
        write_runs(read_runs(base | {"N": [N, 1e6], "D": [1e7, 10 * N]}), tmp_path / f"{name}.csv")
    joined = read_runs([tmp_path / "small.csv", tmp_path / "large.csv"])
    assert joined.runs == ("small/a", "b", "large/a", "b")


def test_weights_and_splits_of_several_logs_are_filled():
    table = {"run": ["a"], "N": [1e6], "D": [1e7], "loss": [1]}
    both = concat([read_runs(table | {"weight": [2], "split": ["held-out"]}), read_runs(table | {"run": ["b"]})])
    assert (both.weight.tolist(), both.split) == ([2, 1], ("held-out", "fit"))
    assert both.seed is None
