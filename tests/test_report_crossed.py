"""Every question that `optimize` answers, put to a report: the page gives the same numbers, or says what it cannot put.

Fits that know repetition, none of it, or two regimes, with sources that no run saw, met by every kind of bound.
"""

from __future__ import annotations

import itertools
import shlex
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import runner
from report_tools import QUICK, RUNS, data_of, in_node, known_fit, law_of, needs_node, small_fit
from test_absent import two_regimes

import shapleymix as sm

pytestmark = [needs_node, pytest.mark.filterwarnings("ignore")]
BEGIN = """
    return content.map((one) => {
        const data = opened(one), state = begun(data), answer = answerOf(data, state);
        const candidates = data.candidates.map(({ p }) => judged(data, state, p, answer));
        return {
            fault: answer.fault ?? null, p: [...answer.p ?? []], losses: [...answer.losses ?? []],
            objective: answer.objective ?? null, gap: answer.gap ?? null, worth: [...answer.worth ?? []],
            command: commandOf(data, state),
            candidates: candidates.map(({ objective, within }) => ({ objective, within })),
        };
    });
"""
FITS = ("repetition", "four epochs", "two regimes", "an unseen source", "fewer targets")
SAME: dict[str, dict[str, Any]] = {
    "nothing": {},
    "caps": {"caps": 0.3},
    "floors": {"floors": "{0}=0.05,{1}=0.2"},
    "a fixed one": {"fix": "{0}=0.3"},
    "tokens": {"available": "{0}=100k,{1}=1M"},
    "epochs": {"available": "{0}=300k,{1}=2M", "max_epochs": "{0}=1,{1}=2"},
    "fewest tokens": {"min_tokens": "{1}=200k"},
    "weights": {"weights": "{0}=3,{1}=1"},
    "normalized": {"weights": "normalized"},
    "without a language": {"caps": "{0}=0"},
    "what-if": {"available": "{0}=300k", "what_if": "{0}+100k"},
    "everything": {
        "caps": "{0}=0.4", "floors": "{1}=0.1", "available": "{0}=200k,{1}=3M", "max_epochs": 2,
        "weights": "{0}=1,{1}=0.5", "compare_to": "uniform", "min_tokens": "{1}=10k",
    },
}  # fmt: skip
BEYOND: dict[str, dict[str, Any]] = {
    "groups of sources": {"groups": "{0}+{1}<=0.2"},
    "least worst loss": {"objective": "worst"},
    "near an anchor": {"anchor": "uniform", "kl": 0.5},
    "more than caps, floors and weights": {"near": "uniform", "within": 0.01},
    "cautious choice": {"cautious": True},
}


def _filled(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {key: value.format(*names) if isinstance(value, str) else value for key, value in options.items()}


@pytest.fixture(scope="module")
def fits() -> dict[str, sm.Fit]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = small_fit()
        seen = known.coverage.mixtures.copy()
        seen[:, 2] = 0
        apart = sm.fit(two_regimes(1.2), "learned-base", bootstrap=0, folds=4, threads=1)
        assert apart.absent is not None
        return {
            "repetition": known,
            "four epochs": sm.fit(RUNS, "exponential", **{**QUICK, "bootstrap": 0}),
            "two regimes": apart,
            "an unseen source": replace(known, coverage=replace(known.coverage, mixtures=seen)),
            "fewer targets": known_fit(known, law_of("additive", 5, 3, 2), 5, 3),
        }


def _mixture(fit: sm.Fit, options: dict[str, Any]) -> sm.Mixture:
    return sm.optimize(fit, float(fit.N_range[1]), 4e6, **_filled(options, fit.targets))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, fits) -> Path:
    place = tmp_path_factory.mktemp("fits")
    for name, fit in fits.items():
        fit.save(place / f"{name}.json")
    return place


@pytest.fixture(scope="module")
def begun(fits, folder):
    """Every fit met by every question: its place, the library's mixture, and the page's answer."""
    asked = list(itertools.product(FITS, SAME))
    best = [_mixture(fits[name], SAME[what]) for name, what in asked]
    pages = [
        sm.report(fits[name], one, name=str(folder / f"{name}.json"))
        for (name, _), one in zip(asked, best, strict=True)
    ]
    told = {what for (_, what), page in zip(asked, pages, strict=True) for _ in page.notices}
    assert told == {what for what, options in SAME.items() if "min_tokens" in options}, "kept, but as ratios"
    return list(zip(asked, best, in_node(BEGIN, [data_of(page.html) for page in pages]), strict=True))


def test_the_page_begins_at_the_numbers_of_the_mixture(begun):
    for place, best, one in begun:
        scale = best.weights.sum()  # of normalized weights the mean is of ratios of losses
        assert one["fault"] is None, place
        assert np.abs(np.array(one["p"]) - best.p).max() < 1e-6, place
        np.testing.assert_allclose(np.array(one["losses"], dtype=float), best.losses, atol=1e-6, err_msg=str(place))
        np.testing.assert_allclose(np.array(one["objective"], dtype=float) * scale, best.objective, rtol=1e-7)
        assert one["gap"] <= 1e-9 * one["objective"] if one["objective"] else True, place
        for rival, there in zip(best.baselines, one["candidates"][1:], strict=True):
            objective = np.array(there["objective"], dtype=float) * scale
            if not rival.reason:
                np.testing.assert_allclose(objective, rival.objective, rtol=1e-7, err_msg=f"{place}: {rival.name}")
            assert there["within"] == rival.within_bounds, (place, rival.name)


def test_the_command_that_a_page_shows_gives_its_numbers(begun, capsys):
    """Some of them, so that each fit and each question has its turn."""
    run = runner(capsys)
    for place, _, one in begun[::7] + begun[3::11] + begun[5::24]:
        outcome = run(*shlex.split(one["command"])[1:], "--json")
        assert outcome.code == 0, (place, outcome.err)
        np.testing.assert_allclose(one["p"], outcome.document["p"], atol=1e-6, err_msg=str(place))
        found, said = (np.array(number, dtype=float) for number in (outcome.document["objective"], one["objective"]))
        np.testing.assert_allclose(said, found, rtol=1e-9, err_msg=str(place))


@pytest.mark.parametrize("what", BEYOND)
def test_what_a_page_cannot_put_is_said_by_name(fits, what):
    for name in ("repetition", "two regimes"):
        made = sm.report(fits[name], _mixture(fits[name], BEYOND[what]))
        assert len(made.notices) == 1
        assert what in made.notices[0]
        (one,) = in_node(BEGIN, [data_of(made.html)])
        assert one["fault"] is None


def test_an_unseen_source_stays_at_zero_unless_it_is_allowed(fits):
    fit = fits["an unseen source"]
    held, free = (_mixture(fit, {"allow_unseen": allowed}) for allowed in (False, True))
    pages = [data_of(sm.report(fit, one).html) for one in (held, free)]
    assert [page["held"][2] for page in pages] == [True, False]
    assert [page["flags"] for page in pages] == [[], ["--allow-unseen"]]
    answers = in_node(BEGIN, pages)
    for one, best in zip(answers, (held, free), strict=True):
        np.testing.assert_allclose(one["p"], best.p, atol=1e-6)


def test_another_fits_mixture_is_refused(fits):
    best = _mixture(fits["repetition"], {})
    with pytest.raises(sm.UsageError, match="other sources than the fit"):
        sm.report(fits["two regimes"], best)
    with pytest.raises(sm.UsageError, match="other targets than the fit"):
        sm.report(fits["fewer targets"], replace(_mixture(fits["fewer targets"], {}), targets=("s0", "s1", "x")))
    other = replace(fits["repetition"], law=law_of("shapley", 5, 5, 1))
    with pytest.raises(sm.UsageError, match="is of another fit"):
        sm.report(other, best)


def test_a_language_taken_to_be_like_another_can_be_moved(fits):
    fit = sm.like(fits["two regimes"], "nl=de")
    best = sm.optimize(fit, 1e8, 4e6, available="nl=100k")
    (one,) = in_node(BEGIN, [data_of(sm.report(fit, best, flags=["--like", "nl=de"]).html)])
    np.testing.assert_allclose(one["p"], best.p, atol=1e-6)
