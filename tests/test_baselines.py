"""Baseline mixtures: identities of smoothing, and families."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapleymix.errors import UsageError
from shapleymix.tables.mixtures import (
    USUAL,
    baseline,
    baselines_beside,
    epochs_of,
    mixtures_of,
    rivals_of,
    smooth,
    uniform,
    unimax,
    usual,
)

SOURCES = ("en", "de", "fi", "sw")
AVAILABLE = np.array([100.0, 25.0, 4.0, 0.0])


def test_smoothing_goes_from_uniform_to_natural():
    np.testing.assert_allclose(smooth(AVAILABLE[:3], 0.0), uniform(3))
    np.testing.assert_allclose(smooth(AVAILABLE, 1.0), AVAILABLE / 129)
    np.testing.assert_allclose(baseline("natural", SOURCES, AVAILABLE, 1e3), AVAILABLE / 129)
    np.testing.assert_allclose(smooth(AVAILABLE, 0.5), np.array([10, 5, 2, 0]) / 17)


def test_the_unit_of_the_sizes_does_not_matter():
    np.testing.assert_allclose(smooth(AVAILABLE * 1e9, 0.3), smooth(AVAILABLE, 0.3), rtol=1e-13)


def test_tables_offer_what_is_known():
    names = ("en", "de")
    unknown = baselines_beside(names, np.array([1.0, np.nan]), {"mine": "en=0.9,de=0.1"}, 1.0)
    assert list(unknown) == ["uniform", "mine"]
    known = baselines_beside(names, np.array([1.0, 4.0]), None, 1.0)
    assert list(known) == ["uniform", "temperature:2", "natural"]
    assert all(p.sum() == pytest.approx(1) for p in known.values())


def unimax_of_the_paper(counts, budget, epochs):
    """Chung et al. 2023, Algorithm 1, as printed: a loop over languages in ascending order of their counts."""
    order = sorted(range(len(counts)), key=lambda index: counts[index])
    taken, left = {}, budget
    for position, index in enumerate(order):
        per_language = left / (len(counts) - position)
        taken[index] = counts[index] * epochs if per_language > counts[index] * epochs else per_language
        left -= taken[index]
    total = sum(taken.values())
    return [taken[index] / total for index in range(len(counts))]


def test_a_unimax_that_does_not_fill_the_budget_is_refused_with_the_epochs_it_takes():
    available = np.array([10.0, 30.0])
    with pytest.raises(UsageError, match="'unimax:2' does not fill D = 100") as refusal:
        baseline("unimax:2", ["a", "b"], available, 100.0)
    assert refusal.value.hint == "take unimax:2.5 or more, or a smaller D"
    np.testing.assert_allclose(epochs_of(baseline("unimax:2.5", ["a", "b"], available, 100.0), available, 100.0), 2.5)
    assert usual(available, 100.0) == ("uniform", "natural", "temperature:2", "unimax:4")
    assert usual(available, 30.0) == USUAL


@given(st.lists(st.floats(1e3, 1e12), min_size=1, max_size=12), st.floats(1e3, 1e13), st.sampled_from([0.5, 1, 4, 10]))
def test_unimax_is_the_papers_algorithm(counts, budget, epochs):
    names = [f"l{place}" for place in range(len(counts))]
    p = unimax(np.array(counts), budget, epochs)
    np.testing.assert_allclose(p, unimax_of_the_paper(counts, budget, epochs), rtol=1e-12)
    realised = epochs_of(p, np.array(counts), budget)
    if epochs * sum(counts) < budget * (1 - 1e-8):
        with pytest.raises(UsageError, match="does not fill D"):
            baseline(f"unimax:{epochs}", names, np.array(counts), budget)
    if epochs * sum(counts) >= budget:
        np.testing.assert_array_equal(baseline(f"unimax:{epochs}", names, np.array(counts), budget), p)
        assert (realised <= epochs * (1 + 1e-9)).all()
        even = p[realised < epochs * (1 - 1e-9)]
        assert np.ptp(even) <= 1e-12 if len(even) else True


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_temperature_is_a_power_of_the_tokens(temperature):
    p = baseline(f"temperature:{temperature:g}", SOURCES, AVAILABLE, 1e3)
    expected = np.append(AVAILABLE[:3] ** (1 / temperature), 0)
    np.testing.assert_allclose(p, expected / expected.sum())


def test_tables_take_mixtures_under_names_of_their_own():
    """The command line had a table of its own, since this one took names of baselines only."""
    found = mixtures_of(["plan=en=50%,de=0.5", "flat=uniform", {"sw": 1.0}], SOURCES, AVAILABLE, 50.0)
    assert list(found) == ["plan", "flat", "mixture 3"]
    np.testing.assert_allclose(epochs_of(found["plan"], AVAILABLE, 50.0)[:3], [0.25, 1.0, 0.0])
    assert epochs_of(found["mixture 3"], AVAILABLE, 50.0)[3] == np.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temperature", "no baseline"), ("natural:3", "no baseline"), ("unimax:0", "not above 0"),
        ("unimax:x", "not a number"), ("temperature:0.3", "write temperature:3.333"), ("temprature:2", "no baseline"),
    ],
)  # fmt: skip
def test_wrong_baselines_are_told(text, message):
    with pytest.raises(UsageError, match=message):
        baseline(text, SOURCES, AVAILABLE, 1e3)


def test_rivals_have_names_of_their_own_or_are_their_own():
    rivals = rivals_of(["unimax:4", "plan=en=50%,de=50%", "flat=natural", "en=1", "old.json"])
    assert rivals == {
        "unimax:4": "unimax:4", "plan": "en=50%,de=50%", "flat": "natural", "en=1": "en=1", "old.json": "old.json",
    }  # fmt: skip


def test_two_different_mixtures_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two mixtures are named"):
        rivals_of(["a=en=1", "a=de=1"])
    assert list(rivals_of(["a=en=1", "a=en=1", "en=1", "en=1"])) == ["a", "en=1"]


def test_a_rival_cannot_take_the_name_of_another_mixture():
    with pytest.raises(UsageError, match="two mixtures are named 'temperature:2'"):
        baselines_beside(SOURCES, np.ones(4), ["temperature:2=en=1"], 1e3)
    assert list(baselines_beside(SOURCES, np.full(4, np.nan), ["uniform"], 1e3)) == ["uniform"]
