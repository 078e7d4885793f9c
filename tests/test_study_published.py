"""Rank correlation with published transfer: against SciPy, by enumeration, in the right direction."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import published
import pytest
from logs import NotYetError
from scipy.stats import spearmanr

import shapleymix as sm

RNG = np.random.default_rng(3)
VALUES = RNG.normal(size=(5, 5))
SCORES = np.where(np.eye(5, dtype=bool), np.nan, np.round(VALUES + RNG.normal(size=(5, 5)), 0))
OFF = ~np.eye(5, dtype=bool)


def test_correlation_is_scipys_also_with_ties():
    assert published.over_all(VALUES, SCORES) == pytest.approx(spearmanr(VALUES[OFF], SCORES[OFF])[0])
    first = published.within(VALUES, SCORES)[0]
    assert first == pytest.approx(spearmanr(VALUES[1:, 0], SCORES[1:, 0])[0])


def test_leading_axes_are_kept():
    many = RNG.normal(size=(3, 5, 5))
    np.testing.assert_allclose(published.within(many, SCORES)[2], published.within(many[2], SCORES))
    np.testing.assert_allclose(published.over_all(many, SCORES)[1], published.over_all(many[1], SCORES))


def test_chance_counts_relabellings_of_languages_and_never_of_pairs():
    here = published.over_all(VALUES, SCORES)
    there = [published.over_all(VALUES[list(one)][:, list(one)], SCORES) for one in permutations(range(5))]
    expected = np.mean([one >= here - 1e-12 for one in there])
    assert published.chance(VALUES, SCORES, published.over_all) == pytest.approx(expected)
    assert published.chance(VALUES, VALUES, published.over_all) == pytest.approx(1 / 120)


def test_a_table_is_read_from_source_to_target_and_only_where_it_has_all_pairs():
    rows = [(a, b, 10.0 * i + j) for i, a in enumerate("xyz") for j, b in enumerate("xyz") if a != b]
    frame = pl.DataFrame([*rows, ("w", "x", 0.0)], schema=["source", "target", "bts"], orient="row")
    found = published._in_common("some", frame, "bts", ("z", "w", "x"))
    assert found.languages == ("z", "x")
    assert found.scores[0, 1] == 20.0, "from z to x"
    assert found.scores[1, 0] == 2.0


def test_without_the_published_tables_the_section_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(published, "SHARED", tmp_path)
    with pytest.raises(NotYetError, match=r"atlas_bts_38x38\.csv.*not beside"):
        published._read("ATLAS")


def test_controls_know_the_script_and_nothing_else():
    same, latin = (one.values(("en", "zh", "ja", "ko")) for one in published.controls(("en", "zh", "ja", "ko")))
    np.testing.assert_array_equal(same, [[1, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(latin, np.tile([1, 0, 0, 0], (4, 1)))
    scores = published.Published("some", tuple("abcde"), SCORES)
    by_target = sm.TransferMatrix.from_sv(np.tile(np.arange(5.0), (5, 1)), "abcde", "abcde")
    tied = published.Ours("by target", by_target, None)
    assert published._row(tied, scores)[-2:] == ("", ""), "within a target it ranks nothing"
