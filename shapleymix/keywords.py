"""Keywords that several functions share: named and typed once, with their defaults in one dataclass.

Such a function takes `**keywords: Unpack[Names]`, where `Names` is a `TypedDict`, and makes the dataclass of them. Type
checkers read the names and types from the one, editors follow the call into the other, and `spelt_out` tells
`inspect.signature` and `help`: in the docstring of the function, an entry `**keywords : Settings`, with the name of the
dataclass, stands for what that says of each field.
"""

from __future__ import annotations

import inspect
import re
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
        if function.__doc__ is not None:  # as Python leaves it with -OO
            function.__doc__ = _with_fields(inspect.cleandoc(function.__doc__), settings, names)
        return function

    return show


ENTRY = re.compile(r"^(\w+(?:, \w+)*)( : .+(?:\n .+)+)", re.MULTILINE)


def _with_fields(doc: str, settings: type, names: Collection[str]) -> str:
    """A docstring in which the dataclass's own entries stand for that of `**keywords`, but for what it says itself."""
    said = {name for heads, _ in ENTRY.findall(doc) for name in heads.split(", ")}
    wanted = [name for name in names if name not in said]
    entries = []
    for heads, rest in ENTRY.findall(inspect.cleandoc(settings.__doc__ or "")):
        shown = [name for name in heads.split(", ") if name in wanted]
        entries += [", ".join(shown) + rest] if shown else []
    return re.sub(rf"^\*\*\w+ : {settings.__name__}(\n .+)+", lambda _: "\n".join(entries), doc, flags=re.MULTILINE)


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
