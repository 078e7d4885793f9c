"""Sizes as people type them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapleymix.errors import UsageError
from shapleymix.tables.sizes import format_size, parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("243M", 243e6),
        ("100B", 100e9),
        ("1.5e9", 1.5e9),
        ("1e22", 1e22),
        ("2T", 2e12),
        ("500k", 5e5),
        ("500K", 5e5),
        (" 7g ", 7e9),
        ("1.1B", 1.1e9),
        (".5M", 5e5),
        ("23712", 23712.0),
        ("0", 0.0),
        (23712, 23712.0),
    ],
)
def test_sizes_are_the_nearest_double_to_what_is_typed(text, value):
    assert parse_size(text) == value


@pytest.mark.parametrize("text", ["", "M", "-5M", "5X", "1_000", "1,000", "nan", "inf", "1e999", "5 M B", "0x10", "٣"])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="243M") as caught:
        parse_size(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("number", [math.nan, math.inf, -1.0])
def test_numbers_that_are_no_size_are_refused(number):
    with pytest.raises(UsageError):
        parse_size(number)


def test_several_sizes():
    assert parse_sizes("100M, 1B,2e9") == (1e8, 1e9, 2e9)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.43e8, "243M"),
        (3.171e9, "3.171B"),
        (97600, "97.6k"),
        (23712, "23.71k"),
        (999_999, "1M"),
        (512, "512"),
        (0, "0"),
        (5e14, "500T"),
        (1e22, "1e22"),
        (123e6, "123M"),
    ],
)
def test_sizes_are_shown_in_their_usual_form(value, text):
    assert format_size(value) == text


@given(st.floats(min_value=1e-3, max_value=1e25), st.integers(min_value=1, max_value=8))
def test_what_is_shown_reads_back_within_its_digits(value, digits):
    shown = parse_size(format_size(value, digits))
    assert shown == pytest.approx(value, rel=0.51 * 10 ** (1 - digits))
