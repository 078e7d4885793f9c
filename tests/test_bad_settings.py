"""What is no setting is refused by its name, before anything is fitted; sizes are taken as they are elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shapleymix.errors import UsageError
from shapleymix.fitting.comparison import compare
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import Settings
from shapleymix.mixing.demands import Demands

NAN = float("nan")
WRONG = {
    "delta": (0.0, -1, NAN, "x", True),
    "prior": (-1, NAN, np.inf, "x", None),
    "starts": (0, -1, 1.5, "6", None),
    "threads": (0, -2, "two", 1.5),
    "bootstrap": (-1, 1.5, "x", None, True),
    "folds": (-1, 2.5, "x"),
    "seed": (-1, 1.5, "x", None),
    "min_tokens": ("many", -1, [3], NAN, True),
    "min_own_tokens": ("many", -1, [3]),
    "drop_warmup": (1, -0.1, "x", NAN),
    "last_only": (1, "yes", None),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_setting_that_is_none_is_refused_by_name(noisy, name, value):
    """delta=NaN, prior=-1 and seed='x' were fitted with; the others were a TypeError, or NumPy's ValueError."""
    _, inputs, log = noisy
    words = "warm-up|drop_warmup" if name == "drop_warmup" else name
    calls: tuple[Any, ...] = (fit,) if name == "bootstrap" else (fit, compare)
    for call in calls:
        with pytest.raises(UsageError, match=words):
            call(log, transfer=inputs.transfer, **{name: value})


def test_token_counts_of_filters_may_be_sizes():
    """min_own_tokens='20k' was a UFuncTypeError."""
    assert Settings(min_own_tokens="20k", min_tokens="1.5B") == Settings(min_own_tokens=2e4, min_tokens=1.5e9)


def test_infinite_delta_is_least_squares_and_no_mistake():
    assert Settings(delta=np.inf).delta == np.inf


@pytest.mark.parametrize("law", [3, object, None, int, "nolaw"])
def test_what_is_no_law_is_refused(noisy, law):
    """law=3 was a TypeError of issubclass."""
    with pytest.raises(UsageError, match="no law"):
        fit(noisy[2], law)


@pytest.mark.parametrize("laws", [3, [], ["chinchilla", 3], "nolaw", ""])
def test_what_are_no_laws_to_compare_are_refused(noisy, laws):
    """laws='learned-base' was read letter by letter, laws=3 a TypeError, laws=[] an IndexError."""
    with pytest.raises(UsageError, match="no law"):
        compare(noisy[2], laws)


def test_laws_may_be_named_in_one_text(noisy):
    found = compare(noisy[2], "chinchilla, additive", folds=2, starts=1, threads=1)
    assert [entry.law for entry in found.entries] == ["chinchilla", "additive"]


@pytest.mark.parametrize("level", [0, 1, "x", None, NAN, 2])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(UsageError, match="level"):
        Demands(level=level)


@pytest.mark.parametrize("shape", [(1, 0), (98, 4), (99, 3), (99,)])
def test_a_fit_wants_as_many_residual_quantiles_as_it_has_targets(noisy, shape):
    """A stored fit with residuals (1, 0) loaded, and its first prediction was an IndexError."""
    from dataclasses import replace

    _, inputs, log = noisy
    found = fit(log, "shapley", inputs.transfer, bootstrap=0, folds=2, starts=1, threads=1)
    assert isinstance(found, Fit)
    assert found.residuals is not None
    assert found.residuals.shape == (99, 4)
    with pytest.raises(ValueError, match="residuals"):
        replace(found, residuals=np.zeros(shape))
