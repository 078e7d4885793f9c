"""Aligning labels: the permutation property, and messages that name every label at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapleymix.errors import DataError
from shapleymix.tables.names import align, check_label, repeated

LABELS = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@given(LABELS, st.randoms())
def test_aligning_picks_each_wanted_label(names, random):
    wanted = random.sample(names, random.randint(1, len(names)))
    index = align(names, to=wanted)
    assert [names[k] for k in index] == wanted


@given(LABELS)
def test_aligning_twice_is_the_identity(names):
    there = align(names, to=names[::-1])
    back = align(names[::-1], to=names)
    assert list(there[back]) == list(range(len(names)))


def test_every_missing_label_is_named_with_what_may_be_meant():
    with pytest.raises(DataError) as caught:
        align(["german", "french"], to=["germann", "frensh"], what="sources", origin="sv.csv")
    text = str(caught.value)
    assert "sv.csv: 'germann' is missing from the sources" in text
    assert "did you mean 'german'?" in text
    assert "did you mean 'french'?" in text
    assert len(caught.value.faults) == 2


def test_unknown_labels_are_faults_only_where_the_sets_must_be_equal():
    assert list(align(["en", "de"], to=["de"])) == [1]
    with pytest.raises(DataError, match="'en' is not one of the sources"):
        align(["en", "de"], to=["de"], what="sources", exact=True)


def test_a_repeated_label_is_refused():
    with pytest.raises(DataError, match="'en' occurs more than once"):
        align(["en", "de", "en"], to=["de"])


def test_repeated_lists_each_label_once():
    assert repeated(["a", "b", "a", "b", "a", "c"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("", "is empty"),
        (" en", "begins or ends with white space"),
        ("a=b", "contains '='"),
        ("a,b", "contains ','"),
        ("zh hans", None),
        ("中文", None),
    ],
)
def test_labels_that_could_not_be_written_are_refused(label, problem):
    assert check_label(label) == problem
