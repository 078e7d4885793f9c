"""Every default stands once, in `Settings`; Python's functions and the command line have no others."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from shapleymix.fitting.comparison import compare
from shapleymix.fitting.fit import Fit, fit
from shapleymix.fitting.settings import LEVEL, SEED, Settings

KNOWN = {field.name: field.default for field in fields(Settings)} | {"seed": SEED, "level": LEVEL}


@pytest.mark.parametrize("function", [fit, compare, Fit.predict])
def test_functions_take_their_defaults_from_settings(function):
    own = {name: known.default for name, known in inspect.signature(function).parameters.items() if name in KNOWN}
    assert own
    assert own == {name: KNOWN[name] for name in own}
