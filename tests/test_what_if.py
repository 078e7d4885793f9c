"""What more data would bring: the same answer as asking again with those data, its paired gain, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from known_fits import SOURCES, TOKENS, Bumpy, FakeFit

from shapleymix.errors import InfeasibleError, UsageError
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.optimization import optimize
from shapleymix.tables.sizes import parse_size

BUDGET = (1e9, 1e11)


def asked(what_if, B: int = 2, **options) -> Mixture:
    return optimize(FakeFit(B), *BUDGET, **{"available": TOKENS, **options}, what_if=what_if)


def tokens_with(**more: float) -> dict[str, float]:
    return {name: parse_size(size) + more.get(name, 0.0) for name, size in TOKENS.items()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_epochs": 1},
        {"max_epochs": {"fi": 2.5}},
        {"objective": "worst"},
        {"groups": "fi+code<=0.15"},
        {"near": "uniform", "within": 0.5},
        {"near": "uniform", "within": 0.2, "distance": "kl"},
        {"anchor": "uniform", "kl": 0.1},
        {"weights": "normalized"},
        {"floors": {"code": 0.1}, "caps": {"en": 0.5}},
    ],
    ids=str,
)
def test_it_is_the_optimum_with_those_tokens(options):
    mix = asked(["fi+3B", "fi+3B,de-5B", "fi-500M"], **options)
    changes = [{"fi": 3e9}, {"fi": 3e9, "de": -5e9}, {"fi": -5e8}]
    for found, change in zip(mix.what_if, changes, strict=True):
        again = optimize(FakeFit(0), *BUDGET, **{**options, "available": tokens_with(**change)})
        np.testing.assert_allclose(found.p, again.p, atol=2e-6)
        np.testing.assert_allclose(found.caps, again.caps)
        np.testing.assert_allclose(found.epochs, again.epochs, atol=1e-3)
        assert found.objective == pytest.approx(again.objective, rel=1e-9)
        assert found.gain == pytest.approx(mix.objective - again.objective, abs=1e-9)
        assert found.certificate.relative_gap <= 1e-8
        assert found.tokens == change
    more, _, less = mix.what_if
    assert more.gain + mix.penalty - more.penalty >= -1e-9
    assert less.gain + mix.penalty - less.penalty <= 1e-9
    assert mix == asked(["fi+3B", "fi+3B,de-5B", "fi-500M"], **options)


def test_the_gain_is_paired_over_the_replicates():
    mix = asked("fi+3B", B=40, level=0.8)
    replicates = FakeFit().replicate_terms(*BUDGET)
    assert replicates is not None
    (found,) = mix.what_if
    spread = replicates.losses(mix.p).mean(axis=-1) - replicates.losses(found.p).mean(axis=-1)
    low, high = np.quantile(spread, [0.1, 0.9], method="nearest")
    assert (found.gain_low, found.gain_high) == pytest.approx((low, high), rel=1e-9)
    assert found.probability == np.mean(spread > 0)
    assert np.isnan(optimize(FakeFit(B=0), *BUDGET, available=TOKENS, what_if="fi+3B").what_if[0].gain_low)


def test_what_brings_nothing_changes_nothing():
    mix = asked(["en+1T", "fi+1B"], caps={"fi": 0.01})
    for found in mix.what_if:
        assert found.gain == 0
        np.testing.assert_array_equal(found.p, mix.p)


def test_the_mixture_to_stay_near_to_stays():
    mix = asked("fi+50B", near="natural", within=0.3)
    center = np.array([parse_size(TOKENS[name]) for name in SOURCES])
    assert np.abs(mix.what_if[0].p - center / center.sum()).sum() <= 0.3 + 1e-9


def test_signs_in_names_and_sizes():
    class Odd(FakeFit):
        def __init__(self) -> None:
            super().__init__(B=0, sources=("zh-Hans", "c++", "zh", "x+1"))

    available = {"zh-Hans": 1e9, "c++": 1e9, "zh": 1e11, "x+1": 1e11}
    mix = optimize(Odd(), *BUDGET, available=available, what_if=["zh-Hans+1e+9", "c++-0.5B, x+1 + 1k", "zh-1M"])
    assert [found.tokens for found in mix.what_if] == [{"zh-Hans": 1e9}, {"c++": -5e8, "x+1": 1e3}, {"zh": -1e6}]


@pytest.mark.parametrize(
    ("what_if", "options", "message"),
    [
        ("fi", {}, "no change of tokens"),
        ("+5B", {}, "no change of tokens"),
        (5, {}, "no change"),
        ("", {}, None),
        ("fii+5B", {}, "'fii' is not one of the sources"),
        ("fi+many", {}, "'many' is not a size"),
        ("fi+1B,fi+2B", {}, "'fi' is given twice"),
        ("fi-3B", {}, "'fi' has 2B tokens, too few to take 3B away"),
        ("fi+1B", {"available": {"en": "1T"}}, "the available tokens of 'fi' are not known"),
        ("fi+1B", {"available": None}, "the available tokens of 'fi' are not known"),
        ("fi+1B", {"method": "clipped"}, "what_if asks for optima"),
    ],
)
def test_wrong_changes_are_told(what_if, options, message):
    if message is None:
        assert asked(what_if, **options).what_if == ()
        return
    with pytest.raises(UsageError, match=message):
        asked([what_if] if isinstance(what_if, int) else what_if, **options)


def test_less_data_may_leave_no_mixture_and_a_search_no_proof():
    with pytest.raises(InfeasibleError, match="what if fi-2B: "):
        asked("fi-2B", floors={"fi": 0.01})
    assert asked("fi-2B").what_if[0].p[2] == 0
    with pytest.raises(UsageError, match="what_if needs a law that is convex"):
        optimize(Bumpy(), *BUDGET, allow_nonconvex=True, available=TOKENS, what_if="fi+1B")


def test_saved_with_the_mixture(tmp_path):
    mix = asked(["fi+3B", "fi+3B,de-5B"])
    mix.save(tmp_path / "mix.json")
    assert Mixture.load(tmp_path / "mix.json") == mix
