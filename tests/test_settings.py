"""Every default stands once, in `Settings`; Python's functions and the command line have no others."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from shapleymix_cli.commands import compare as compare_command
from shapleymix_cli.commands import fit as fit_command

from shapleymix.fitting.comparison import compare
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.fitting.settings import LEVEL, SEED, Settings

KNOWN = {field.name: field.default for field in fields(Settings)} | {"seed": SEED, "level": LEVEL}


WORDS = {"delta": "the law's own]", "min_own_tokens": "0, but fit takes apart"}


@pytest.mark.parametrize("function", [fit, compare, Fit.predict])
def test_functions_take_their_defaults_from_settings(function):
    own = {name: known.default for name, known in inspect.signature(function).parameters.items() if name in KNOWN}
    assert own
    assert own == {name: KNOWN[name] for name in own}


@pytest.mark.parametrize("command", [fit_command.command, compare_command.command])
def test_the_command_line_takes_its_defaults_from_settings(command):
    options = {option.name: option for option in command.params if option.name in KNOWN}
    assert {"seed", "prior", "threads", "delta", "folds"} <= set(options)
    for name, option in options.items():
        if KNOWN[name] is False:
            assert option.is_flag, name
        elif option.default is not None and repr(option.default) != "Sentinel.UNSET":
            assert option.default == KNOWN[name], name
        else:
            usual = WORDS[name] if KNOWN[name] is None else f"{KNOWN[name]:g}"
            assert f"[default: {usual}" in option.help, name
