"""Beliefs, regions and exchanges, each against the formula or the enumeration that it must agree with."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.bounds import Bounds
from shapleymix.mixing.certificate import violation
from shapleymix.mixing.feasibility import require_feasible
from shapleymix.planning.belief import (
    OTHERS,
    OWN,
    Belief,
    before_any_run,
    slopes_of,
    under_power_terms,
    under_replicates,
)
from shapleymix.planning.candidates import asked, distinct, drawn, trained
from shapleymix.planning.exchange import MOST_GROUPS, Covariances, choose
from shapleymix.planning.questions import Questions
from shapleymix.planning.region import Region

M, K = 4, 3
OWNERS = np.eye(M, K, dtype=bool)


def mixtures(count: int, seed: int = 0, sources: int = M) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(sources, 0.5), count)


def terms(seed: int = 0) -> PowerTerms:
    rng = np.random.default_rng(seed)
    phi = rng.uniform(0.1, 1.0, (M, K)) + OWNERS
    return PowerTerms(np.zeros(K), rng.uniform(2, 3, K), np.full(K, 0.3), phi, rng.uniform(0.3, 0.8, (M, K)))


def covariance(belief: Belief, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return belief.features(p) @ belief.features(q).swapaxes(1, 2)


@pytest.fixture(params=["prior", "fit"])
def belief(request: pytest.FixtureRequest) -> Belief:
    if request.param == "prior":
        return before_any_run(OWNERS, noise=0.02)
    return under_power_terms(terms(), OWNERS, np.array([1e-4, 4e-4, 9e-4]), np.full(M, 1 / M))


def test_runs_shrink_a_belief_as_bayes_rule_says(belief: Belief):
    p, q = mixtures(5), mixtures(7, 1)
    counts, seen = np.array([1.0, 2, 1, 1, 3]), np.ones((5, K), dtype=bool)
    seen[1, 0] = False
    found = covariance(belief.after(p, counts, seen), q, q)
    prior, cross, own = covariance(belief, q, q), covariance(belief, q, p), covariance(belief, p, p)
    for k in range(K):
        rows = seen[:, k]
        inner = own[k][np.ix_(rows, rows)] + np.diag((belief.scatter(p)[k] / counts)[rows])
        expected = prior[k] - cross[k][:, rows] @ np.linalg.solve(inner, cross[k][:, rows].T)
        np.testing.assert_allclose(found[k], expected, rtol=1e-6, atol=1e-9)


def test_a_run_of_no_loss_that_counts_teaches_nothing(belief: Belief):
    p = mixtures(3)
    same = belief.after(p, np.ones(3), np.zeros((3, K), dtype=bool))
    np.testing.assert_allclose(covariance(same, p, p), covariance(belief, p, p), rtol=1e-10)


def test_before_any_run_own_sources_count_five_times_as_much():
    p = np.stack([np.eye(M)[0], np.eye(M)[1], np.eye(M)[3]])
    found = covariance(before_any_run(OWNERS), p, p)
    own, other = found[0, 0, 0] - found[0, 0, 1], found[0, 1, 1] - found[0, 1, 2]
    np.testing.assert_allclose([own, other], [OWN**2, OTHERS**2], rtol=1e-10)


@pytest.mark.parametrize(("floor", "base"), [(0.0, None), (0.7, None), (0.0, 1.0)])
def test_features_of_a_fitted_law_are_its_derivatives(floor: float, base: float | None):
    law = replace(terms(), floor=np.full(K, floor), base=None if base is None else np.full(K, base))
    p, step = 0.05 + 0.8 * mixtures(6), 1e-6
    if base is not None:  # without own data a law with a base is defined, and has slopes of its own
        law, p = replace(law, phi=np.where(OWNERS, 200.0, law.phi)), p * (np.arange(M) > 0)
    slopes = slopes_of(law, OWNERS, p)

    def moved(**changes: np.ndarray) -> np.ndarray:
        both = [np.log(replace(law, **{name: value[0] for name, value in changes.items()}).losses(p))]
        both.append(np.log(replace(law, **{name: value[1] for name, value in changes.items()}).losses(p)))
        return (both[0] - both[1]).T / (2 * step)

    def around(name: str, mask: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        value = np.asarray(getattr(law, name))
        return value * np.exp(step * mask), value * np.exp(-step * mask)

    np.testing.assert_allclose(slopes[:, :, 0], moved(a=np.array(around("a"))), rtol=1e-5)
    np.testing.assert_allclose(slopes[:, :, 1], moved(gamma=np.array(around("gamma"))), rtol=1e-4)
    np.testing.assert_allclose(slopes[:, :, 2], moved(s=np.array(around("s", OWNERS))), rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(slopes[:, :, 3], moved(s=np.array(around("s", ~OWNERS))), rtol=1e-4, atol=1e-9)
    for i in range(M):
        change = step * (np.arange(M) == i)[:, None]
        by_phi = moved(phi=np.array([law.phi + change, law.phi - change]))
        np.testing.assert_allclose(slopes[:, :, 4 + M + i], by_phi, rtol=1e-5)  # the middle of three exponents


def test_a_law_whose_coefficients_are_all_zero_still_learns_of_every_source():
    flat = replace(terms(), phi=np.zeros((M, K)) + 1e-9)
    found = under_power_terms(flat, OWNERS, np.full(K, 1e-4), np.full(M, 1 / M))
    assert np.isfinite(found.features(np.eye(M))).all()


def test_replicates_are_a_belief_of_their_own_covariance():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(30, M, K))
    belief = under_replicates(lambda p: np.einsum("rm,bmk->brk", p, draws), np.full(K, 1e-4))
    p = mixtures(5)
    losses = np.einsum("rm,bmk->brk", p, draws)
    found = covariance(belief, p, p)
    for k in range(K):
        np.testing.assert_allclose(found[k], np.cov(losses[:, :, k].T, bias=True), atol=1e-12)


def start(belief: Belief, candidates: np.ndarray, questions: Questions) -> Covariances:
    return Covariances.under(belief, candidates, [questions])


def test_updates_agree_with_the_belief_after_the_same_runs(belief: Belief):
    p, q = mixtures(9), mixtures(6, 1)
    asked_of = Questions.over(q, K)
    now = start(belief, p, asked_of)
    before = now.total()
    for place in (2, 5, 7):
        now.add(place)
    later = start(belief.after(p[[2, 5, 7]], np.ones(3), np.ones((3, K), dtype=bool)), p, asked_of)
    np.testing.assert_allclose(now.variance, later.variance, rtol=1e-5, atol=1e-10)
    np.testing.assert_allclose(now.among, later.among, rtol=1e-5, atol=1e-8)
    worth = now.worth()
    kept = now.total()
    now.add(3)
    assert kept - now.total() == pytest.approx(worth[3], rel=1e-6)
    virtual = now.worth(without=5)
    now.drop(5)
    np.testing.assert_allclose(virtual, now.worth(), rtol=1e-6, atol=1e-9)
    now.add(5)
    for place in (3, 2, 7, 5):
        now.drop(place)
    assert now.total() == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize("n", [3, 4])
def test_the_exchange_is_near_the_best_that_enumeration_finds(belief: Belief, n: int):
    """It ends where no single exchange helps: near the best set, and among the best of all."""
    p, q = mixtures(10, 3), mixtures(12, 4)
    asked_of = Questions.over(q, K)
    found = choose(belief, p, [asked_of], n)
    assert len(set(found.order.tolist())) == n

    def left(chosen: tuple[int, ...]) -> float:
        rows = p[list(chosen)]
        return start(belief.after(rows, np.ones(n), np.ones((n, K), dtype=bool)), p, asked_of).total()

    everything = sorted(map(left, combinations(range(10), n)))
    assert left(tuple(found.order.tolist())) <= 1.2 * everything[0]
    assert left(tuple(found.order.tolist())) <= everything[max(len(everything) // 20, 1)]
    way = found.mean(asked_of, 0)
    assert (np.diff(way) <= 1e-12).all(), "each run tells something"
    assert way[-1] == pytest.approx(left(tuple(found.order.tolist())), rel=1e-5)


def test_exchanges_only_improve(belief: Belief):
    p, asked_of = mixtures(60, 5), Questions.over(mixtures(30, 6), K)
    ends = [choose(belief, p, [asked_of], 8, passes).mean(asked_of, 0)[-1] for passes in (0, 3)]
    assert ends[1] <= ends[0] * (1 + 1e-9)


def test_contrasts_do_not_care_for_the_level():
    belief = before_any_run(OWNERS)
    contrast = Questions.around(np.full(M, 0.25), mixtures(5), np.ones(K))
    level = Questions.over(mixtures(5), K)
    assert (start(belief, mixtures(3), contrast).variance < 2 * OWN**2).all()
    assert (start(belief, mixtures(3), level).variance > 1).all()


def test_many_targets_are_averaged_in_groups():
    count = 2 * MOST_GROUPS
    belief = before_any_run(np.eye(5, count, dtype=bool))
    p = mixtures(6, sources=5)
    found = start(belief, p, Questions.over(p, count))
    assert found.among.shape == (MOST_GROUPS, 6, 6)
    whole = covariance(belief, p, p)
    np.testing.assert_allclose(found.among[0], whole[:2].mean(axis=0), rtol=1e-10)
    assert found.total() == pytest.approx(np.einsum("kcc->kc", whole).mean(), rel=1e-10)


BOUNDS = {
    "none": Bounds(),
    "caps": Bounds(caps=0.3),
    "floors": Bounds(floors={"a": 0.4}, caps={"b": 0.1}),
    "fixed": Bounds(fix="a=0.25"),
    "one mixture": Bounds(fix="a=0.25,b=0.25,c=0.5,d=0,e=0"),
    "groups": Bounds(groups=["a+b<=0.3", "c+d>=0.4"], caps={"c": 0.2}),
    "thin group": Bounds(groups=["a+b>=0.3", "a+b<=0.3"]),
    "l1": Bounds(near="uniform", within=0.3),
    "l1 and caps": Bounds(near="a=0.5,b=0.5", within=0.6, caps={"a": 0.4}),
    "kl": Bounds(near="uniform", within=0.05, distance="kl"),
    "kl off centre": Bounds(near="a=0.6,b=0.1,c=0.1,d=0.1,e=0.1", within=0.1, distance="kl", caps={"a": 0.5}),
    "kl and groups": Bounds(near="uniform", within=0.1, distance="kl", groups="a+b<=0.3"),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_all_that_is_drawn_lies_within_bounds(name: str):
    bounds = BOUNDS[name].at(tuple("abcde"), 1e9)
    require_feasible(bounds)
    region = Region.of(bounds)
    found = np.concatenate([drawn(region, 0), asked(region, 0)])
    assert max(violation(p, bounds) for p in found) <= 1e-9
    np.testing.assert_allclose(region.moved(found), found, atol=1e-9)
    assert len(distinct(found)) > (100 if name != "one mixture" else 0), "of many kinds"


def test_what_lies_outside_ends_at_a_bound_and_what_lies_within_stays():
    region = Region.of(BOUNDS["caps"].at(tuple("abcde"), 1e9))
    outside = np.eye(5)[:1]
    assert region.moved(outside)[0, 0] == pytest.approx(0.3)
    inside = np.full((1, 5), 0.2)
    np.testing.assert_array_equal(region.moved(inside), inside)


@pytest.mark.parametrize("name", ["caps", "groups", "l1"])
def test_corners_reach_the_ends_of_every_source(name: str):
    bounds = BOUNDS[name].at(tuple("abcde"), 1e9)
    corners = Region.of(bounds).corners(np.random.default_rng(0))
    ends = {"caps": [0.3] * 5, "groups": [0.3, 0.3, 0.2, 1.0, 0.6], "l1": [0.35] * 5}[name]
    np.testing.assert_allclose(corners.max(axis=0), ends, atol=1e-7)


def test_mixtures_that_were_trained_are_known_again():
    p = mixtures(5)
    assert trained(p, p[[1, 3]] + 1e-6).tolist() == [False, True, False, True, False]
    assert len(distinct(np.concatenate([p, p + 1e-6]))) == 5
