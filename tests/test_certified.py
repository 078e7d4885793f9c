"""By its law no mixture beats a proved optimum: laws, regimes, bounds, objectives, repetition, scores."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from known_fits import Bumpy

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.laws.task_curves import TRANSFORMS, TaskCurves
from shapleymix.mixing.optimize import problem
from shapleymix.mixing.question import BELOW

ROOT = Path(__file__).resolve().parents[1]
RUNS, COALITIONS = (str(ROOT / f"fixtures/multilingual5_{name}.csv") for name in ("runs", "coalitions"))
N, D = 97600.0, 1998848.0
SUPPLY = "en=1M,de=150k,fr=150k,zh=200k,ja=150k"
CASES = [
    {}, {"objective": "worst"}, {"caps": "zh=.12,ja=.2"}, {"caps": "en=0"}, {"fix": "en=1"}, {"weights": "en=1,zh=2"},
    {"groups": "zh+ja<=.3", "objective": "worst"}, {"groups": "en+de=.5", "caps": 0.4}, {"floors": "en=.001"},
    {"near": "uniform", "within": 0.4}, {"kl": 0.1, "anchor": "en=.6,de=.4"}, {"weights": "normalized"},
    {"after": "en=.6,ja=.4", "trained": "500k"}, {"after": "en=1", "trained": "1M", "groups": "zh+ja<=.3"},
    {"after": "uniform", "trained": "1M", "objective": "worst"}, {"unit": "bpb", "groups": "zh+ja<=.3"},
    {"unit": "bpb", "weights": "normalized", "caps": "en=0"}, {"unit": "bpb", "weights": "en=1,zh=2"},
    {"floors": 0.1}, {"fix": "ja=.2"}, {"objective": "worst", "weights": "en=2,de=1"}, {"min_tokens": "zh=400k"},
    {"after": "en=.6,ja=.4", "trained": "500k", "caps": "de=.2", "floors": "zh=.3", "near": "uniform", "within": 0.5},
    {"after": "uniform", "trained": "500k", "unit": "bpb", "objective": "worst", "groups": "zh+ja<=.3"},
    {"after": "uniform", "trained": "1M", "unit": "bpb", "kl": 0.1, "anchor": "uniform"}, {"unit": "bpb", "caps": 0.4},
    {"after": "en=1", "trained": "1M", "available": SUPPLY, "max_epochs": 2}, {"unit": "bpb", "objective": "worst"},
    {"near": "uniform", "within": 0.1, "distance": "kl"}, {"available": SUPPLY, "max_epochs": 2, "caps": "en=.5"},
]  # fmt: skip
SIZES = {"language": ["en", "de", "fr", "zh", "ja"], "bytes_per_token": [4.4, 4.1, 4.2, 3.1, 3.6]}


@cache
def fitted(law: str) -> sm.Fit:
    return sm.fit([RUNS, COALITIONS], law=law, bootstrap=0, folds=0)


def rivals(question, own: np.ndarray) -> np.ndarray:
    """Mixtures evenly and sparsely drawn, near the optimum, with traces, and of corners; those within the bounds."""
    rng = np.random.default_rng(1)
    M = len(own)
    drawn = [rng.dirichlet(np.full(M, shape), 300) for shape in (1.0, 0.3)]
    near = 0.97 * own + 0.03 * rng.dirichlet(np.ones(M), 150)
    traces = np.where(own > 0, own, 2e-6)[None] * np.exp(0.1 * rng.normal(size=(150, M)))
    corners = [question.within.minimise_linear(cost) for cost in rng.normal(size=(12, M))]
    inner = rng.dirichlet(np.full(12, 0.3), 150) @ np.stack(corners)
    p = np.concatenate([*drawn, near, traces / traces.sum(axis=1, keepdims=True), inner, 0.9 * own + 0.1 * inner])
    return p[[question.within.violation(one) <= 1e-9 for one in p]]


@pytest.mark.parametrize("turn", range(2))
@pytest.mark.parametrize("keywords", CASES, ids=str)
def test_by_the_law_no_mixture_is_better_than_a_proved_optimum(keywords, turn):
    """Under two of three laws in turn: what forms of laws make of bounds is crossed in `test_engines`."""
    law = ("effective-data", "exponential", "learned-base")[(CASES.index(keywords) + turn) % 3]
    fit = fitted(law)
    repeated = law != "exponential" and (CASES.index(keywords) in (0, 1, 6) or {"after", "unit"} & keywords.keys())
    unit = {"unit": "bpb", "languages": SIZES} if "unit" in keywords else {}
    for supply in (unit, {"available": SUPPLY, **unit})[: 2 if repeated else 1]:
        assert_best(fit, (N, D), keywords, supply)


def assert_best(fit: sm.Fit, budget: tuple[float, float], keywords: dict, supply: dict) -> None:
    """The optimum is proved, within its bounds, as `predict` has it, and better than its rivals."""
    question = problem(fit, *budget, **{**keywords, **supply})
    found = question.solve()
    assert found.relative_gap <= 1e-7
    assert question.within.violation(found.p) <= 1e-9
    assert len(found.warnings) <= 3
    p = np.concatenate([found.p[None], rivals(question, found.p)])
    assert len(p) > 20
    told = {name: (keywords | supply)[name] for name in {"available", "unit", "languages"} & (keywords | supply).keys()}
    losses = question.surface.mean(p)
    np.testing.assert_array_equal(fit.predict(p[:4], *budget, **told).losses, losses[:4])
    assert found.objective == pytest.approx(question.goal.of(losses)[0], rel=1e-9, nan_ok=True)
    values = question.goal.of(question.surface.of_law(p)) + [question.goal.penalty(one) for one in p]
    assert found.certificate.objective == pytest.approx(values[0], rel=1e-9, nan_ok=True)
    assert found.lower_bound <= np.nanmin(values) + 1e-9


KEPT = {"kept": "uniform"}
SUPPLY_IN_PARTS = {"available": "en/clean=100k,en/noised=300k,de/clean=200k,de/noised=1M,fr/clean=50k,fr/noised=400k"}
IN_PARTS = [
    {}, {"objective": "worst"}, {"weights": "normalized"}, {"groups": "en<=.3"}, {"near": "uniform", "within": 0.4},
    {"keep_within": "en"}, {"keep_within": "en,de", "objective": "worst"}, {"keep_within": "fr", "caps": "en/clean=.1"},
    {"keep_within": "de", "groups": "en+fr<=.5"}, {"unit": "bpb", "keep_within": "fr"}, {"unit": "bpb"},
    {"keep_within": "de", "kl": 0.1, "anchor": "uniform"}, {"after": "uniform", "trained": "300k", "groups": "en>=.6"},
    {"keep_within": "fr", "after": "en/noised=1", "trained": "300k"}, {"unit": "bpb", "weights": "normalized"},
]  # fmt: skip


@cache
def fitted_in_parts(new: bool = False) -> sm.Fit:
    """Of three languages in two parts, and where asked for a third part of one, which no run held."""
    found = sm.fit(str(ROOT / "fixtures/nested_runs.csv"), bootstrap=0, folds=0)
    return sm.like(found, "en/new") if new else found


@pytest.mark.parametrize("keywords", IN_PARTS, ids=str)
def test_the_same_of_languages_in_parts(keywords):
    """Kept ratios, sums by parent and units, with repeated tokens in turn, with a part without runs and without."""
    unit = {"unit": "bpb", "languages": SIZES} if "unit" in keywords else {}
    for new in (False, True):
        more = SUPPLY_IN_PARTS if (IN_PARTS.index(keywords) + new) % 2 else {}
        kept = KEPT if "keep_within" in keywords else {}
        assert_best(fitted_in_parts(new), (23712.0, 1e6), keywords | kept, more | unit)


def test_the_own_languages_of_targets_stay_above_the_edge_of_the_regime():
    fit = fitted("effective-data")
    found = sm.optimize(fit, N, D)
    edge = fit.at(N, D).edge
    assert (edge > 0).any()
    assert (found.p >= edge - 1e-12).all()
    assert any("en" in text for text in (*found.warnings, *found.notices))
    for web, parents in (("en/web", {}), ("enweb", {"enweb": "en"})):
        part = replace(fit, sources=(web, *fit.sources[1:]), parents=parents)
        np.testing.assert_array_equal(sm.optimize(part, N, D).p, found.p)
    alone = sm.optimize(fit, N, D, weights="zh=1")
    assert (alone.floors[:3] == 0).all(), "languages that do not count may be left out"
    typed, worst = (sm.optimize(fit, N, D, **one) for one in ({"floors": "en=0"}, {"objective": "worst"}))
    assert 0 < typed.p[0] < edge[0], "a typed floor holds in place of the edge"
    assert all(price.saves >= 0 for one in (found, typed, worst) for price in one.binding)


def test_where_every_run_held_a_language_no_optimum_leaves_it_out():
    log = sm.read_runs(RUNS)
    log = log.select((log.p > 0).all(axis=1))
    fit = sm.fit(log, law="exponential", bootstrap=0, folds=0)
    assert fit.absent is None
    for keywords in ({"weights": "en=1,zh=1e-4"}, {"weights": "en=1,zh=1e-4", "caps": "ja=0"}):
        assert sm.optimize(fit, N, D, **keywords).p[3] >= BELOW * log.p[:, 3].min() - 1e-12
    assert sm.optimize(fit, N, D, weights="en=1,zh=1e-4", floors="zh=0").p[3] < BELOW * log.p[:, 3].min()


def test_without_a_language_the_other_regime_is_what_is_minimised():
    fit = fitted("effective-data")
    surface = fit.at(N, D)
    found = sm.optimize(fit, N, D, caps="en=0")
    assert found.p[0] == 0
    law = float(surface.of_law(found.p)[0, 0])
    assert law == pytest.approx(float(surface.absent.losses(found.p)[0]), rel=1e-9)
    assert found.losses[0] == pytest.approx(law * np.exp(fit.absent.residual.mean(found.p[None])[0, 0]), rel=1e-9)


class Tasks(SimpleNamespace):
    """Scores of two languages, by curves of the losses."""

    def places(self, targets):
        return np.array([targets.index(label.partition("/")[2]) for label in self.labels])

    def draw(self, count):
        return TaskCurves(*(np.broadcast_to(one, (count, 2)) for one in self.curves[:2]), *self.curves[2:])

    def weights(self, given, objective):
        return dict.fromkeys(self.labels, 0.5)


def tasks(shape: str, a: float, b: float, other: str = "zh") -> Tasks:
    code = float(list(TRANSFORMS).index(shape))
    lines = TaskCurves(np.full(2, a), np.full(2, b), np.full(2, 0.25), np.full(2, code))
    known = {"scatter": np.full(2, 0.01), "loss_range": np.array([[1.0, 4.0]] * 2)}
    return Tasks(labels=("cloze/en", f"cloze/{other}"), targets=("en", other), curves=lines, **known)


SCORED = [(False, one) for one in ({}, {"objective": "worst"}, {"groups": "en+zh<=.5"}, {"caps": 0.4})]
SCORED += [(True, one) for one in IN_PARTS if not {"unit", "weights"} & one.keys()]


SHAPES = (("minus", 0.2, 1.0), ("log", -0.3, 0.9), ("sigmoid", 2.0, 5.0))


@pytest.mark.parametrize(("in_parts", "keywords"), SCORED, ids=str)
def test_mixtures_chosen_for_scores_are_the_best_of_many(in_parts, keywords):
    """In parts each question that losses were asked, under every shape of scores: with repeated tokens, and without."""
    turn = SCORED.index((in_parts, keywords))
    for number, shape in enumerate(SHAPES if not in_parts else (SHAPES[turn % 3], SHAPES[(turn + 1) % 3])):
        assert_best_for_scores(shape, in_parts, keywords, supplied=(number + turn) % 2 == 1)


def assert_best_for_scores(shape: tuple[str, float, float], in_parts: bool, keywords: dict, supplied: bool) -> None:
    fit, budget = (fitted_in_parts(), (23712.0, 1e6)) if in_parts else (fitted("learned-base"), (N, D))
    asked = {"downstream": tasks(*shape, "fr" if in_parts else "zh"), **keywords}
    fit, supply = (fitted_in_parts(new=True), SUPPLY_IN_PARTS) if in_parts and supplied else (fit, {})
    question = problem(fit, *budget, **asked, **supply, **(KEPT if "keep_within" in keywords else {}))
    found = question.solve()
    assert (found.measure, found.weights_origin) == ("error", "unweighted")
    assert question.within.violation(found.p) <= 1e-9
    p = rivals(question, found.p)
    values = question.goal.of(question.surface.of_law(p)) + [question.goal.penalty(one) for one in p]
    assert found.certificate.objective <= np.nanmin(values) + 1e-9
    assert np.isnan(found.gap) or found.relative_gap <= 1e-7


def test_a_law_without_pieces_is_searched_for_scores_too():
    score = tasks("minus", 0.2, 1.0)
    score.labels, score.targets = ("cloze/en", "cloze/fi"), ("en", "fi")
    score.loss_range = np.array([[0.0, 9.0]] * 2)
    found = sm.optimize(Bumpy(), N, D, downstream=score)
    assert np.isnan(found.gap)
    assert found.p.sum() == pytest.approx(1)
    with pytest.raises(UsageError):
        problem(Bumpy(), N, D, downstream=score, unit="bpb")
    even = problem(Bumpy(), N, D, downstream=score).objective(np.full(4, 0.25))
    assert found.objective < even
