"""Mixtures: sums, draws, distances, and their written form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shapleymix.errors import DataError, StoreError, UsageError
from shapleymix.tables import simplex

AMOUNTS = arrays.arrays(np.float64, st.integers(1, 12), elements=st.floats(1e-6, 1.0))


@given(AMOUNTS, st.randoms())
def test_the_order_of_columns_does_not_change_a_bit_of_a_sum(amounts, random):
    shuffled = amounts.tolist()
    random.shuffle(shuffled)
    assert simplex.row_sums(shuffled) == simplex.row_sums(amounts)


@given(AMOUNTS)
def test_renormalising_is_idempotent_and_keeps_proportions(amounts):
    once = simplex.renormalise(amounts)
    assert simplex.row_sums(once) == pytest.approx(1.0, abs=simplex.EXACT)
    assert np.array_equal(simplex.renormalise(once), once)
    assert np.allclose(once * amounts[0], once[0] * amounts, rtol=1e-8)


def test_rows_that_sum_to_one_are_not_touched():
    written = np.array([[0.62, 0.12, 0.10, 0.08, 0.08], [0.1, 0.2, 0.3, 0.2, 0.2]])
    assert np.array_equal(simplex.renormalise(written), written)


@pytest.mark.parametrize(
    ("ratios", "message"),
    [([0.5, 0.6], "sums to 1.1"), ([1.5, -0.5], "negative"), ([np.nan, 1.0], "finite"), ([], "at least one")],
)
def test_what_is_no_mixture_is_refused(ratios, message):
    with pytest.raises(DataError, match=message):
        simplex.check(ratios)


def test_a_batch_of_mixtures_passes():
    draws = np.random.default_rng(0).dirichlet(np.full(7, 0.3), size=50)
    assert np.array_equal(simplex.check(draws), draws)


@given(AMOUNTS)
def test_a_written_mixture_reads_back_to_the_last_bit(amounts):
    p = simplex.renormalise(amounts)
    names = [f"l{k}" for k in range(len(p))]
    assert np.array_equal(simplex.parse_mixture(simplex.format_mixture(p, names), names), p)


def test_mixtures_as_typed():
    names = ["en", "de", "fr"]
    assert simplex.parse_mixture("de=0.5, en=.5", names).tolist() == [0.5, 0.5, 0.0]
    assert simplex.parse_mixture("uniform", names).tolist() == [1 / 3] * 3
    assert simplex.parse_mixture({"fr": 1.0}, names).tolist() == [0, 0, 1]
    assert simplex.parse_mixture("en=0.333,de=0.333,fr=0.333", names) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("en=0.5,dee=0.5", ["'dee' is not one of the sources", "did you mean 'de'?"]),
        ("en=0.5,en=0.5", ["'en' is given twice"]),
        ("en=70,de=30", ["sums to 100", "en=0.7,de=0.3"]),
        ("en=1.5,de=-0.5", ["de=-0.5 is not a ratio"]),
        ("en=nan", ["en=nan is not a ratio"]),
        ("en", ["'en' is no ratio"]),
        ("en=half", ["'en=half' is no ratio"]),
        ("", ["is no ratio"]),
        ("xx=0.5,yy=-1", ["'xx' is not", "'yy' is not", "yy=-1 is not a ratio"]),
    ],
)
def test_a_wrong_mixture_says_what_and_what_to_do(text, parts):
    with pytest.raises(UsageError) as caught:
        simplex.parse_mixture(text, ["en", "de"])
    assert all(part in str(caught.value) for part in parts)


def test_a_file_of_ratios_by_name_is_a_mixture(tmp_path):
    path = tmp_path / "plain.json"
    path.write_text('{"en": 0.25, "de": 0.75}')
    np.testing.assert_array_equal(simplex.parse_mixture(path, ("de", "en", "fr")), [0.75, 0.25, 0])
    np.testing.assert_array_equal(simplex.parse_mixture(str(path), ("de", "en", "fr")), [0.75, 0.25, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "holds no mixture"),
        ("[0.5, 0.5]", "holds no mixture"),
        ('{"en": 2}', "sums to 2, expected 1"),
        ('{"xx": 1}', "'xx' is not one of the sources"),
        ('{"en": [1]}', "not a number"),
        ('{"kind": "predictions", "en": 1}', "holds predictions, expected a mixture"),
        ('{"kind": "fit", "mixture": {"en": 1}}', "holds a fit, expected a mixture"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_place(tmp_path, text, message):
    path = tmp_path / "plain.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=message) as caught:
        simplex.parse_mixture(path, ("de", "en"))
    assert caught.value.location.file == str(path)
