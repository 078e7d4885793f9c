"""What `optimize` says of a rival and `predict` of the same mixtures is the same: crossed over what they may meet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
from simulated import inputs, mixtures, simulate, true_law

import shapleymix as sm
from shapleymix.fitting.fits import Fit
from shapleymix.mixing.candidates import Candidate
from shapleymix.mixing.doubts import told
from shapleymix.mixing.gains import Rival

LAWS = ("learned-base", "shapley", "exponential")
SUPPLY = {"en": 3e10, "de": 4e8, "fr": 2e8, "zh": 1e8}
CROSSED = list(
    product(
        LAWS,
        ("known", "never seen", "without replicates", "without folds"),
        ({}, {"weights": "en=2,de=1"}, {"available": SUPPLY}),
        ((1e8, 1e9), (1e10, 3e10)),
    )
)


@dataclass(frozen=True)
class Pair:
    """A rival of an optimum, and the optimum as a candidate against the rival."""

    rival: Rival
    candidate: Candidate


@cache
def fitted(law: str, kind: str) -> Fit:
    given = inputs()
    p = mixtures(20, 4)
    if kind == "never seen":
        p = np.column_stack([mixtures(20, 3), np.zeros(20)])
    log = simulate(true_law(law, given), given, p, sizes=(1e8,), tokens=(1e9,), noise=3e-3)
    bootstrap, folds = 0 if kind == "without replicates" else 24, 0 if kind == "without folds" else 4
    return sm.fit(log, law, given.transfer, bootstrap=bootstrap, folds=folds, threads=1)


def asked(fit: Fit, budget: tuple[float, float], level: float, **options: object) -> Pair:
    p = "en=0.4,de=0.3,fr=0.1,zh=0.2"
    mix = sm.optimize(fit, *budget, compare_to={"plan": p}, level=level, **options)
    named = {"plan": p, "best": mix.mixture}
    rival = next(one for one in mix.baselines if one.name == "plan")
    return Pair(rival, sm.compare_mixtures(fit, named, *budget, level=level, **options).entries[1])


@pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
@pytest.mark.parametrize(("law", "kind", "options", "budget"), CROSSED)
def test_both_say_the_same_of_the_same_two_mixtures(law, kind, options, budget):
    found = asked(fitted(law, kind), budget, 0.8, **options)
    rival, one = found.rival, found.candidate
    luck = rival.promised - rival.gain
    assert luck >= 0
    said = (rival.promised, rival.gain_low + luck, rival.gain_high + luck)
    np.testing.assert_allclose((one.gain, one.gain_low, one.gain_high), said, rtol=1e-7, atol=1e-9)
    if luck == 0:
        assert one.probability == pytest.approx(rival.probability, nan_ok=True)
        assert rival.told == told(one.gain_low, one.probability)
    if luck == 0 and rival.promised > 0:  # a rival beyond the bounds may be better, and a candidate told to be worse
        assert rival.told == one.told
