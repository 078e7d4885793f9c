"""The languages table."""

from __future__ import annotations

import numpy as np
import pytest

from shapleymix.errors import DataError
from shapleymix.tables.languages import read_languages


def test_the_fixture(fixtures):
    table = read_languages(fixtures / "multilingual5_languages.csv")
    assert table.names == ("en", "de", "fr", "zh", "ja")
    assert table.family == ("Germanic", "Germanic", "Romance", "Sino-Tibetan", "Japonic")
    assert (table.available_tokens > 1e6).all()
    assert table.weight is None
    assert np.isnan(table.max_epochs).all()


def test_sizes_gaps_and_extra_columns(tmp_path):
    path = tmp_path / "languages.csv"
    path.write_text("language,family,available_tokens,weight,max_epochs,note\nen,,100B,2,4,x\nde,Germanic,,1,,\n")
    table = read_languages(path)
    assert table.family == (None, "Germanic")
    assert table.available_tokens[0] == 100e9
    assert np.isnan(table.available_tokens[1])
    assert table.weight is not None
    assert table.weight.tolist() == [2, 1]
    assert table.max_epochs[0] == 4
    assert table.notices == ("ignored the column 'note'",)


def test_aligning_reorders_every_column_and_names_what_is_missing(tmp_path):
    table = read_languages({"language": ["en", "de", "fr"], "available_tokens": [1, 2, 3], "weight": [4, 5, 6]})
    turned = table.aligned(["fr", "en"])
    assert turned.available_tokens.tolist() == [3, 1]
    assert turned.weight is not None
    assert turned.weight.tolist() == [6, 4]
    with pytest.raises(DataError, match="'dee' is missing from the languages table") as caught:
        table.aligned(["dee"])
    assert "did you mean 'de'?" in str(caught.value)


def test_every_fault_at_once(tmp_path):
    path = tmp_path / "languages.csv"
    path.write_text("language,available_tokens,weight,max_epochs\nen,-1,x,0\nen,5,-2,\n,1,1,1\na=b,1,,1\n")
    with pytest.raises(DataError) as caught:
        read_languages(path)
    text = str(caught.value)
    for part in (
        ":2 [available_tokens]: available_tokens = -1",
        ":2 [weight]: weight is not a number: 'x'",
        ":2 [max_epochs]: max_epochs = 0",
        ":3 [language]: repeats the language 'en' of line 2",
        ":3 [weight]: weight = -2",
        ":4 [language]: language is empty",
        ":5 [language]: the language 'a=b' contains '='",
        ":5 [weight]: weight is empty",
    ):
        assert part in text
    assert len(caught.value.faults) == 8


def test_a_table_without_languages_is_refused():
    with pytest.raises(DataError, match="has no column 'language'"):
        read_languages({"Language": ["en"]})
