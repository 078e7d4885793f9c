"""The study's comparisons: what is fitted, what judges, and what it cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import helps
import laws
import numpy as np
import pytest
from logs import HERE, Study
from spending import OWN, TRACKING, Bought, Draw, draws_of, error_of

import shapleymix as sm
from shapleymix.sweeping.listed import read_mixtures
from shapleymix.tables.joining import concat

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
WAYS = ("on_mixtures", "on_coalitions", "on_both", "on_values", "on_one_tracked", "given", "beside")
RUNS = 16


@pytest.fixture(scope="module")
def whole() -> sm.RunLog:
    return sm.read_runs(FIXTURES / "multilingual5_runs.csv")


@pytest.fixture(scope="module")
def log(whole: sm.RunLog) -> sm.RunLog:
    """Forty mixtures at one size and token count, of which eight are coalitions."""
    return whole.select((whole.N.max() == whole.N) & (whole.D < 1.5e6))


@pytest.fixture(scope="module")
def game(log: sm.RunLog) -> sm.RunLog:
    """All coalitions, said to be of that size."""
    small = sm.read_runs(FIXTURES / "multilingual5_coalitions.csv")
    return replace(small, N=np.full(len(small), log.N[0]))


@pytest.fixture(scope="module")
def draws(log: sm.RunLog, game: sm.RunLog) -> list[Draw]:
    return draws_of(log, game, 8)


def way(name: str, whole: sm.RunLog) -> helps.Way:
    """A way to spend runs, with a matrix or a second log where it takes one."""
    even = sm.TransferMatrix.from_sv(np.eye(5), whole.sources, whole.targets)
    extra = {"on_one_tracked": {"matrix": even}, "given": {"matrix": even}, "beside": {"others": smaller(whole)}}
    return partial(getattr(Draw, name), **extra.get(name, {}))


def smaller(whole: sm.RunLog) -> sm.RunLog:
    """Runs of the smaller model, in the longer of two trainings."""
    return whole.select((whole.N.max() > whole.N) & (whole.D > 1.5e6))


def bought(draw: Draw, name: str, whole: sm.RunLog, runs: int = RUNS) -> Bought:
    found = way(name, whole)(draw, runs)
    assert found is not None
    return found


def test_each_mixture_judges_once_and_none_is_a_coalition(draws: list[Draw], game: sm.RunLog):
    judging = [key for draw in draws for key in draw.held_out.mixture_keys]
    assert len(judging) == len(set(judging)) == 32
    assert not set(judging) & set(game.mixture_keys)
    for draw in draws:
        assert {*draw.mixtures.mixture_keys, *draw.held_out.mixture_keys} == set(judging)


@pytest.mark.parametrize("name", WAYS)
def test_no_held_out_mixture_is_fitted(name: str, draws: list[Draw], whole: sm.RunLog):
    for draw in draws:
        found = bought(draw, name, whole)
        assert not set(found.paid.mixture_keys) & set(draw.held_out.mixture_keys)
        assert set(found.fitted.runs) <= set(found.paid.runs)
    assert any(set(smaller(whole).mixture_keys) & set(draw.held_out.mixture_keys) for draw in draws)


@pytest.mark.parametrize("name", WAYS)
def test_losses_of_held_out_mixtures_change_nothing_that_is_fitted(
    name: str, draws: list[Draw], log: sm.RunLog, game: sm.RunLog, whole: sm.RunLog
):
    held = np.isin(log.mixture_keys, draws[3].held_out.mixture_keys)
    other = draws_of(replace(log, loss=np.where(held[:, None], 9.0, log.loss)), game, 8)[3]
    assert (other.held_out.loss == 9.0).all()
    before, after = (bought(draw, name, whole) for draw in (draws[3], other))
    assert after.fitted.runs == before.fitted.runs
    np.testing.assert_array_equal(after.fitted.loss, before.fitted.loss)
    if before.matrix is not None:
        assert after.matrix is not None
        np.testing.assert_array_equal(after.matrix.nsv, before.matrix.nsv)


@pytest.mark.parametrize("runs", [4, 7, 8, 16, 24])
def test_ways_of_one_budget_cost_the_same(runs: int, draws: list[Draw], whole: sm.RunLog):
    for name in ("on_mixtures", "on_coalitions", "on_both", "on_values", "given"):
        found = bought(draws[0], name, whole, runs)
        assert found.cost(draws[0].held_out) == pytest.approx(runs), name
        assert len(set(zip(found.paid.runs, found.paid.mixture_keys, strict=True))) == runs
    assert bought(draws[0], "on_one_tracked", whole, runs).cost(draws[0].held_out) == pytest.approx(runs + TRACKING)


def test_a_smaller_model_costs_its_compute(draws: list[Draw], whole: sm.RunLog):
    found = bought(draws[0], "beside", whole)
    extra = len(found.paid) - RUNS
    assert found.cost(draws[0].held_out) == pytest.approx(RUNS + extra * 2 * 23_712 / 97_600)


def test_more_runs_than_there_are_cannot_be_bought(draws: list[Draw], whole: sm.RunLog):
    assert way("on_mixtures", whole)(draws[0], 29) is None
    assert way("on_both", whole)(draws[0], 63) is None
    assert way("on_coalitions", whole)(draws[0], 32) is None
    assert np.isnan(error_of(None, "learned-base", draws[0].held_out))


def test_values_are_of_the_coalitions_that_were_paid_for(draws: list[Draw], game: sm.RunLog, whole: sm.RunLog):
    every = bought(draws[0], "on_coalitions", whole, 31)
    assert every.matrix is not None
    np.testing.assert_allclose(every.matrix.nsv, sm.shapley_values(game).nsv)
    values = bought(draws[0], "on_values", whole, 24)
    assert len(values.fitted) == 12
    assert values.matrix is not None
    assert values.matrix.provenance["coalitions"] == 13  # and the untrained model, which costs nothing
    assert bought(draws[0], "on_coalitions", whole, 4).matrix is None  # too few to tell five languages apart


def test_the_error_is_that_of_a_fit_on_runs_that_it_did_not_see(draws: list[Draw], game: sm.RunLog):
    draw = draws[0]
    found = draw.given(24, sm.shapley_values(game))
    assert found is not None
    fit = sm.fit(found.fitted, "shapley-tempered", found.matrix, bootstrap=0, folds=0, min_own_tokens=OWN)
    predicted = fit.law.losses(draw.held_out.p, draw.held_out.N, draw.held_out.D)
    wanted = np.abs(predicted - draw.held_out.loss).mean(axis=0) / draw.held_out.loss.mean(axis=0)
    assert error_of(found, "shapley-tempered", draw.held_out) == pytest.approx(wanted.mean())


def test_seed_noise_is_the_error_of_the_true_law(game: sm.RunLog):
    rng = np.random.default_rng(0)
    noise = [rng.normal(0.0, 0.02, game.loss.shape) for _ in range(2)]
    seeds = [
        replace(game, loss=game.loss * (1 + one), seed=(str(place),) * len(game)) for place, one in enumerate(noise)
    ]
    both = concat([seeds[0], seeds[1].select(np.arange(len(game))[::-1])])
    errors = [abs(one[(game.p > 0).sum(axis=1) >= helps.MANY]).mean() for one in noise]
    assert helps.seed_noise(both) == pytest.approx(np.mean(errors), rel=0.15)


def test_a_difference_is_told_where_it_is_more_than_chance():
    rng = np.random.default_rng(0)
    draws = 9  # that correlate as folds do: one in so many of the runs that judge
    shared = rng.normal(size=(2000, 1)) * np.sqrt(1 / draws) + rng.normal(size=(2000, draws)) * np.sqrt(1 - 1 / draws)
    assert np.mean(np.abs([helps.told(one) for one in shared])) == pytest.approx(0.0455, abs=0.015)
    assert helps.told(np.array([-1.0, -1.1, -0.9])) == -1
    assert helps.told(np.array([1.0, 1.1, 0.9])) == 1
    assert helps.told(np.array([1.0, 1.1, 0.9]) * 1e-5) == 0  # as surely, and of no digit that is printed


def test_cells_say_what_was_told():
    errors = {
        (helps.ALONE, helps.USUAL): {4: np.array([0.02, 0.03, 0.025]), 8: np.array([0.01, 0.02, np.nan])},
        ("more", "law"): {4: np.array([0.01, 0.02, 0.015])},
        ("less", "law"): {4: np.array([0.03, 0.04, 0.035]), 8: np.array([0.01, 0.02, 0.03])},
    }
    text, count = helps.shown(errors)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert lines[0] == ["what was bought", "law", "4", "8"]
    assert lines[2:] == [  # three draws: their standard errors of 0.29 and 0.58 times the root of 1 + 3 / 2
        [helps.ALONE, f"`{helps.USUAL}`", "2.50 ± 0.46", ""],
        ["more", "`law`", "**1.50 ± 0.46**", ""],
        ["less", "`law`", "_3.50 ± 0.46_", "2.00 ± 0.91"],
    ]
    assert count == "Of 2 differences 2 are told; if nothing differed, luck would tell 0.1. Better: 1; worse: 1."


@pytest.fixture(scope="module")
def planned() -> sm.RunLog:
    """A log of the study's mixtures, whose losses fall with the target's own ratio, at three sizes."""
    lists = [read_mixtures(HERE / name) for name in laws.MIXTURES]
    p = np.concatenate([one.p for one in lists])
    sizes = np.repeat([23_712.0, 97_600.0, 389_760.0], [len(one) for one in lists])
    names = tuple(f"{name}-{size:g}" for one, size in zip(lists, (1, 2, 3), strict=True) for name in one.names)
    loss = (1.5 + 5 * sizes[:, None] ** -0.2) * (0.02 + p) ** -0.1
    return sm.RunLog(names, sizes, np.full(len(p), 1e6), p, loss, lists[0].sources, lists[0].sources)


def test_random_mixtures_are_told_from_curated_ones(planned: sm.RunLog):
    random = laws.drawn(Study(), planned)
    assert [name.startswith("random") for name in planned.runs] == random.tolist()
    assert random.sum() == 32 + 18 + 8
    turned = planned.aligned(planned.sources[::-1])
    np.testing.assert_array_equal(laws.drawn(Study(), turned), random)


def test_a_parted_log_fits_one_kind_and_judges_by_the_other(planned: sm.RunLog):
    fitted = laws.drawn(Study(), planned)
    found = sm.compare(laws.parted(planned, fitted), ["exponential"], split=True, min_own_tokens=OWN)
    assert (found.rows, found.mixtures) == ((~fitted).sum(), 8)
    moved = replace(planned, loss=np.where(fitted[:, None], planned.loss, 1.0))
    after = sm.compare(laws.parted(moved, fitted), ["exponential"], split=True, min_own_tokens=OWN)
    errors = [one.entries[0].scores.mean["PE"] for one in (found, after) if one.entries[0].scores]
    assert errors[0] < 0.1 < 0.5 < errors[1]  # the same fit, judged by others


def test_the_table_says_which_differences_can_be_told(planned: sm.RunLog):
    found = sm.compare(planned, ["learned-base", "chinchilla"], leave_largest_N=True, min_own_tokens=OWN)
    text = "\n\n".join(laws.told(found, 58, "learned-base", "the fitted runs alone"))
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    assert [row[1].strip() for row in rows] == ["`learned-base`", "`chinchilla`"]
    assert [row[-2].strip() for row in rows] == ["", "worse"]
    assert "Scored on 86 losses of 16 runs of 16 mixtures" in text  # europe, cjk and han lack three, three and four
    assert "times 1.13 for" in text
    assert "Of 1 differences 1 are told; if nothing differed, luck would tell 0.0." in text
    assert "`auto` takes `learned-base`, by the fitted runs alone." in text
    narrow = laws.verdict(found, 1, 0, 1.0)
    assert (narrow, laws.verdict(found, 1, 0, 1e6)) == ("worse", laws.UNKNOWN)


def test_no_coalition_judges(planned: sm.RunLog):
    known = laws.coalitions(planned)
    assert {planned.runs[row].rsplit("-", 1)[0] for row in np.flatnonzero(known)} == {"uniform", "europe", "cjk", "han"}
    assert known.sum() == 4 * 3


def test_some_laws_of_a_comparison_are_that_comparison_without_the_others(planned: sm.RunLog):
    found = sm.compare(planned, ["chinchilla", "learned-base", "exponential"], leave_largest_N=True, min_own_tokens=OWN)
    fewer = laws.among(found, ["learned-base", "exponential"])
    assert [entry.law for entry in fewer.entries] == ["learned-base", "exponential"]
    np.testing.assert_array_equal(fewer.gap, found.gap[1:, 1:])
    assert fewer.preferred() in {"learned-base", "exponential"}


@pytest.mark.parametrize("part", helps.PARTS, ids=lambda part: part.__name__)
def test_every_part_asks_what_can_be_bought(part: Callable[[Study], Iterator[str]], monkeypatch: pytest.MonkeyPatch):
    def found(bought: Bought | None, law: str, held_out: sm.RunLog) -> float:
        return float("nan") if bought is None else len(bought.fitted) + held_out.loss.mean()

    monkeypatch.setattr(helps, "error_of", found)
    text = "\n\n".join(part(Study()))
    head, first = [line for line in text.splitlines() if line.startswith("| ")][::2][:2]
    cells = [cell.strip() for cell in head.split("|")[3:-1]]
    wanted = helps.RUNS if part is helps.same_size else helps.LARGER[part.__name__]
    assert cells == [str(runs) for runs in wanted]
    assert helps.ALONE in first
    assert re.search(r"Of \d+ differences \d+ are told", text)
