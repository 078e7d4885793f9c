"""Numbers as people read them."""

from __future__ import annotations

import pytest
from shapleymix_cli.views.numbers import MISSING, fixed, percent, significant


@pytest.mark.parametrize(("form", "shown"), [(fixed, "0.0000"), (significant, "0"), (percent, "0.0000%")])
def test_nothing_has_no_sign(form, shown: str):
    """Fault: a gain of nothing was -0.0000."""
    assert form(-0.0, 4) == shown
    assert form(None) == form(float("nan")) == MISSING


@pytest.mark.parametrize("form", [fixed, percent])
def test_what_rounds_to_nothing_has_no_sign(form):
    assert "-" not in form(-1e-9, 4)
    assert form(-0.5, 2).startswith("-")
