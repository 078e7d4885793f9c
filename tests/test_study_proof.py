"""The study's proof by training: gains, their errors and the verdict, on runs whose objectives are known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import calibration
import hindsight
import logs
import numpy as np
import objectives
import promising
import proof
import pytest
import rounds
import slopes
import trials
from sections import joined

import shapleymix as sm

NAMES = ("en", "de", "es", "zh", "ja", "ko")


def trained(runs_of: dict[str, list[float]], spread: float = 0.01, shared: tuple[str, ...] = ()):
    """One problem's runs; strategies in `shared` have the even mixture."""
    even = np.full(6, 1 / 6)
    strategies = tuple(
        promising.Promise("unweighted", name, even, "proof-01" if name in shared else f"proof-{place + 1:02}")
        for place, name in enumerate(runs_of)
    )
    seeds = max(map(len, runs_of.values()))
    runs = np.array([[*values, *[np.nan] * (seeds - len(values))] for values in runs_of.values()])
    return trials.Trained(objectives.PROBLEMS[0], strategies, runs, spread, 40)


def test_a_gain_is_the_difference_over_common_seeds_with_the_error_of_both():
    """Fault: means over unlike seeds were compared, and what a seed does to every mixture did not cancel."""
    found = trained({"even": [2.0, 2.02, 2.34], "our default": [1.97, 1.99], "natural": [2.1]})
    gain, error = found.gain("our default", "even")
    assert gain == pytest.approx(0.03)
    assert error == pytest.approx(0.01 * np.sqrt(1 / 2 + 1 / 2))
    assert found.gain("even", "our default")[0] == pytest.approx(-0.03)
    assert found.mean("even") == (pytest.approx(2.12), pytest.approx(0.01 / np.sqrt(3)))
    assert found.best == "our default"
    assert found.sure(gain, error)
    assert not found.sure(0.01, error)


def test_strategies_that_share_a_mixture_gain_nothing_and_nothing_is_told():
    found = trained({"even": [2.0, 2.1], "our default": [2.0, 2.1]}, shared=("even", "our default"))
    assert found.gain("our default", "even") == (0.0, 0.0)
    assert not found.sure(0.0, 0.0)


def test_mixtures_without_a_common_seed_gain_nothing_that_is_known():
    found = trained({"even": [2.0, np.nan], "our default": [np.nan, 1.0]})
    gain, error = found.gain("our default", "even")
    assert np.isnan([gain, error]).all()
    assert not found.sure(gain, error)


def test_a_seed_that_moves_all_mixtures_is_seen_and_chance_is_not():
    rng = np.random.default_rng(0)
    groups, seeds = np.repeat(np.arange(12), 3), np.tile(np.arange(3), 12)
    plain = [rng.normal(size=12)[groups] + 0.02 * rng.normal(size=36) for _ in range(300)]
    chances = np.array([trials.unmoved(objective, groups, seeds) for objective in plain])
    assert (chances < 0.1).mean() == pytest.approx(0.1, abs=0.04)
    assert trials.unmoved(plain[0] + np.array([0.0, 0.0, 0.1])[seeds], groups, seeds) < 1e-6
    assert np.isnan(trials.unmoved(plain[0][:3], groups[:3], seeds[:3])), "one mixture leaves nothing to judge by"


def test_the_spread_over_seeds_is_pooled_without_bias():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        groups = np.repeat(np.arange(8), 3)
        found.append(trials.spread_of(rng.normal(size=8)[groups] + 0.02 * rng.normal(size=24), groups))
    spreads, freedoms = np.array(found).T
    assert set(freedoms) == {16}
    assert np.sqrt((spreads**2).mean()) == pytest.approx(0.02, rel=0.04)


def test_a_test_at_90_percent_errs_in_a_tenth():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        values = 0.02 * rng.normal(size=(20, 3))
        groups = np.repeat(np.arange(20), 3)
        spread, freedom = trials.spread_of(values.ravel(), groups)
        found = trials.Trained(objectives.PROBLEMS[0], trained({"even": [0], "natural": [0]}).strategies,
                              values[:2], spread, freedom)  # fmt: skip
        wrong += found.sure(*found.gain("natural", "even"))
    assert 0.06 < wrong / 400 < 0.14


def test_every_problem_is_feasible_and_its_weights_are_the_cores():
    languages = sm.read_languages(logs.HERE / "languages.csv")
    monolingual = dict.fromkeys(NAMES, 2.0) | {"ko": 1.0}
    for problem in objectives.PROBLEMS:
        available = problem.available(languages)
        if problem.scarce:
            assert sum(min(tokens, objectives.D) for tokens in available.values()) > objectives.D
        weights = problem.mean_weights(NAMES, monolingual)
        if problem.weights == "unweighted":
            np.testing.assert_allclose(weights, 1 / 6)
        elif problem.monolingual:
            assert weights[5] == pytest.approx(2 * weights[0])
        else:
            np.testing.assert_allclose(weights, np.array([3, 0.5, 0.5, 0.5, 5, 0.5]) / 10)
    assert sum(objectives.CRAWL.values()) == pytest.approx(1, abs=1e-12)


def test_monolingual_losses_are_those_of_the_runs_of_one_language():
    p = np.vstack([np.eye(6), np.full((1, 6), 1 / 6)])
    loss = np.arange(42.0).reshape(7, 6) + 1
    log = sm.RunLog(tuple("abcdefg"), np.full(7, 1e5), np.full(7, 1e6), p, loss, NAMES, NAMES)
    assert objectives.monolingual_losses(log) == dict(zip(NAMES, loss.diagonal().tolist(), strict=True))


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ({}, ["again-01", "again-01", "again-02"]),
        ({"proof-07": np.full(6, 1 / 6)}, ["proof-07", "proof-07", "again-01"]),
        ({"proof-07": np.eye(6)[0]}, ["again-01", "again-01", "again-02"]),
    ],
)
def test_strategies_that_agree_share_the_ratios_that_are_trained(before, names):
    even = np.full(6, 1 / 6)
    near = even + np.array([1e-4, -1e-4, 0, 0, 0, 0])
    far = even + np.array([0.1, -0.1, 0, 0, 0, 0])
    named, trained = promising._named(
        [promising.Promise("a", name, p) for name, p in zip("xyz", (even, near, far), strict=True)], before, "again"
    )
    assert [one.mixture for one in named] == names
    assert [name for name, _ in trained] == list(dict.fromkeys(names))
    np.testing.assert_array_equal(named[1].p, even)


def test_a_promise_after_the_training_is_refused(tmp_path: Path):
    (tmp_path / "proof.csv").write_text("")
    (tmp_path / "proof-again.csv").write_text("")
    for of in rounds.ROUNDS.values():
        with pytest.raises(sm.UsageError, match=f"{of.runs} is there: a promise after the training is none"):
            promising.promise(logs.Study(tmp_path), of)


def test_mixtures_that_are_not_trained_yet_are_named(tmp_path: Path):
    """Fault: a strategy without runs had the lowest mean of all problems."""
    for name in ("promised.csv", "languages.csv", "monolingual.csv"):
        (tmp_path / name).write_text((logs.HERE / name).read_text())
    lines = (logs.HERE / "monolingual.csv").read_text().splitlines()
    (tmp_path / "proof.csv").write_text("\n".join([lines[0], *(line + "1" for line in lines[1:])]) + "\n")
    for part in proof.PARTS:
        if part in (proof.again, slopes.slopes):
            continue
        assert "has no run of proof-01" in joined(part(logs.Study(tmp_path)))[0]


@pytest.fixture
def decided(tmp_path: Path):
    """The study's promises, and runs in which every optimum of the default beats all else by .05 nats."""
    for name in ("promised.csv", "languages.csv", "monolingual.csv"):
        (tmp_path / name).write_text((logs.HERE / name).read_text())
    study = logs.Study(tmp_path)
    best = {one.mixture for one in promising.promised(study) if one.strategy == promising.DEFAULT}
    ratios = {one.mixture: one.p for one in promising.promised(study)}
    rows = [["run", "N", "D", *(f"p_{name}" for name in NAMES), *(f"loss_{name}" for name in NAMES), "seed"]]
    for mixture, p in ratios.items():
        for seed, noise in enumerate((-0.01, 0.0, 0.01), start=1):
            loss = (1.95 if mixture in best else 2.0) + noise
            rows.append([f"{mixture}-{seed}", "389760", "999424", *map(repr, p.tolist()), *[repr(loss)] * 6, str(seed)])
    (tmp_path / "proof.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    return study


def test_a_clear_verdict_is_told(decided):
    first, table, counted = list(proof.verdict(decided))
    assert "gains over" in first
    assert table.count("**0.0500 ± 0.0082**") == 22, "two of three objectives are means of losses in nats"
    assert counted == "Of 32 comparisons 32 are told for our default and 0 against it."
    assert {row.split(" | ")[-1].rstrip(" |") for row in table.splitlines()[2:]} == {"our default"}


def test_promises_are_held_to_the_runs_the_right_way_round(decided):
    text, _, table = list(proof.promises(decided))
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    assert f"The default came out better in {len(rows)}" in text
    for one in promising.promised(decided):
        if one.problem == "unweighted" and one.strategy != promising.DEFAULT:
            row = next(row for row in rows if row[:2] == [one.problem, one.strategy])
            pairs = np.subtract.outer([-0.01, 0, 0.01], [-0.01, 0, 0.01]) + 0.05
            inside = ((one.low <= pairs) & (pairs <= one.high)).mean()
            assert row[5] == f"{100 * inside:.0f}%"
            assert row[4].startswith("0.0500 ± ")


def test_what_the_law_errs_by_is_what_seeds_do_not_make():
    """Promises of 0.05 and -0.05 that come to 0.02 with a seeds' error of 0.01, and intervals of 0.04 to a side."""
    of = [promising.Promise(name, name, np.ones(1), gain=gain, low=gain - 0.04, high=gain + 0.04)
          for name, gain in (("a", 0.05), ("b", -0.05))]  # fmt: skip
    text = calibration._of_the_law([calibration.Kept(one, 0.02, 0.01, 1.0, 0.012) for one in of])
    erred = np.sqrt((0.03**2 + 0.07**2) / 2 - 0.01**2)
    left = np.sqrt((0.04 / 1.6449) ** 2 - 2 * 0.012**2)
    assert f"errs by {erred:.3f} " in text
    assert f"the intervals leave {left:.3f} for it" in text
    assert "of 2 optima" in text


def test_hindsight_scores_laws_on_the_gains_of_which_all_say_something(decided, monkeypatch: pytest.MonkeyPatch):
    """Fault: a law without an answer for some gains was scored on the others alone."""

    class Said:
        def __init__(self, law: str) -> None:
            self.law, self.targets = law, NAMES

        def predict(self, p: np.ndarray, N: float, D: float) -> SimpleNamespace:
            scarce = p.min(axis=1, keepdims=True) < 0.01
            off = np.where(
                scarce, np.nan if self.law == "family" else 9.0, 0.0
            )  # a gain off by 9 where family has none
            return SimpleNamespace(losses=np.tile(2.0 + p[:, :1] + off, 6))

    monkeypatch.setattr(hindsight, "_fit", lambda study, law: Said(law))
    text, table = list(hindsight.hindsight(decided))
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ")[1:] for row in table.splitlines()[2:]}
    assert rows["`family`"] == rows["`shapley`"]
    said = [one for one in promising.promised(decided) if one.strategy != promising.DEFAULT]
    scarce = sum(one.p.min() < 0.01 for one in said)
    assert 0 < scarce < len(said)
    assert f"afterwards of {len(said) - scarce} of these {len(said)} gains" in text


def test_the_power_is_that_of_the_pooled_spread(decided):
    _, table = list(proof.power(decided))
    unweighted = table.splitlines()[2].split(" | ")
    assert unweighted[1:3] == ["0.0100", "52"]
    assert float(unweighted[5]) == pytest.approx(1.675 * 0.01 * np.sqrt(2 / 3), abs=1e-4)


def test_each_problem_has_its_table(decided):
    text = "\n".join(proof.trained(decided))
    for problem in objectives.PROBLEMS:
        assert f"**{problem.name}**" in text
    assert text.count("| even |") == 6


def test_one_run_of_each_mixture_tells_nothing_of_seeds(decided):
    log = decided.runs("proof.csv", "midi")
    sm.write_runs(log.select(np.array(log.seed) == "1"), decided.folder / "once.csv")
    (decided.folder / "once.csv").replace(decided.folder / "proof.csv")
    assert "fewer than two mixtures that were run twice" in joined(proof.power(logs.Study(decided.folder)))[0]


def test_together_fewer_are_told_than_one_by_one():
    assert trials.told_together([0.03, 0.001, 0.06, 0.5]) == [True, True, False, False]
    assert trials.told_together([0.04, 0.04, 0.04, 0.04]) == [False] * 4
    assert trials.told_together([]) == []


def test_further_seeds_are_a_test_of_their_own(decided):
    """Fault: seeds that were added where the default lost were pooled with those that had shown it."""
    before = list(proof.verdict(decided))
    path = decided.folder / "proof.csv"
    head, *rows = path.read_text().splitlines()
    more = [row.replace("-3,", "-6,", 1)[:-1] + "6" for row in rows if row.endswith(",3")]
    more += [row.replace("-2,", "-5,", 1)[:-1] + "5" for row in rows if row.endswith(",2")]
    path.write_text("\n".join([head, *rows, *more]) + "\n")
    study = logs.Study(decided.folder)
    assert list(proof.verdict(study)) == before
    _, table = list(proof.again(study))
    assert "**0.0500 ± " in table


def test_slopes_are_those_of_the_losses(tmp_path: Path):
    rng = np.random.default_rng(2)
    p = np.tile(rng.dirichlet(np.ones(6), 12), (3, 1))
    N, D = np.repeat(list(logs.SIZES.values()), 12).astype(float), np.full(36, 999_424.0)
    steep = np.repeat([-0.1, -0.2, -0.3], 12)[:, None]
    runs = tuple(f"r{row}" for row in range(36))
    log = sm.RunLog(runs, N, D, p, 2.0 * p**steep, NAMES, NAMES)
    sm.write_runs(log, tmp_path / "log.csv")
    (tmp_path / "languages.csv").write_text((logs.HERE / "languages.csv").read_text())
    _, table = list(slopes.slopes(logs.Study(tmp_path)))
    assert [line.count(f"-0.{place}00 ± 0.000") for place, line in enumerate(table.splitlines()[2:], 1)] == [6, 6, 6]
