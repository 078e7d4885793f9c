"""Keywords that several functions share: named and typed once, with their defaults in one dataclass.

Such a function takes `**keywords: Unpack[Names]`, where `Names` is a `TypedDict`, and makes the dataclass of them. Type
checkers read the names and types from the one, editors follow the call into the other, and `spelt_out` tells
`inspect.signature` and `help`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import TypeVar

from shapleymix.errors import UsageError, did_you_mean

Function = TypeVar("Function", bound=Callable[..., object])


def spelt_out(settings: type, names: Collection[str]) -> Callable[[Function], Function]:
    """Show the `**keywords` of a function to `help` as those fields of a dataclass, with their defaults.

    Parameters
    ----------
    settings : type
        The dataclass that the function makes of its keywords.
    names : collection of str
        The fields that may be given: the keys of the `TypedDict`.
    """
    shown = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(settings)
        if one.name in names
    ]

    def show(function: Function) -> Function:
        own = inspect.signature(function)
        *explicit, rest = own.parameters.values()
        assert rest.kind is inspect.Parameter.VAR_KEYWORD
        vars(function)["__signature__"] = own.replace(parameters=[*explicit, *shown])
        return function

    return show


def checked(function: str, keywords: Mapping[str, object], names: Collection[str]) -> None:
    """Refuse keywords that a function does not take.

    Raises
    ------
    UsageError
        Naming the first, and the keyword that may have been meant.
    """
    for given in keywords:
        if given not in names:
            raise UsageError(f"{function}() has no keyword {given!r}", hint=did_you_mean(given, names))
