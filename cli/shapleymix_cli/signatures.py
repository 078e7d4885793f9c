"""Options made from the functions of the library: their names, defaults and texts are those of the signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import click

from shapleymix.errors import UsageError

BY_NAME = ("Ratios", "Amounts", "EpochsSpec", "TokensSpec", "WeightSpec", "Mapping", "BytesPerToken")
"""Types of values by name, such as `en=0.5,de=0.2`: given several times, they are one list."""
LISTED = ("Sequence", "Rivals", "LikeSpec", "Map |")
"""Types of which several may be given."""
METAVARS = {
    "Ratios": "en=0.5,...", "Amounts": "en=5T,...", "EpochsSpec": "4|en=2,...", "TokensSpec": "1B|en=1B,...",
    "WeightSpec": "en=1,de=2", "Rivals": "[NAME=]MIX", "GroupSpec": "en+de<=0.6", "MixturesSpec": "TABLE",
    "MixtureSpec": "MIX", "LanguagesSpec": "TABLE", "Table": "TABLE", "Logs": "LOG", "Size": "SIZE",
    "Mapping": "en=2.1,...", "int": "COUNT", "float": "NUMBER",
}  # fmt: skip
"""How a value of a type is written; the first that stands in the annotation counts."""
FILES = ("TABLE", "LOG", "FILE", "FIT")
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : .+\n((?: {4,}.+\n?)+)", re.MULTILINE)


class Option(click.Option):
    """An option that knows whether its values are by name, so that a project file's are kept beside those typed."""

    by_name = False


class Number(click.ParamType):
    """A number, also as people type sizes: `0.5`, `1e22`, `243M`."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        from shapleymix.tables.words import parse_size

        return parse_size(str(value), "" if param is None else param.opts[0])


class Sizes(click.ParamType):
    """Sizes with commas between, each with or without the name of its model: `243M,1B`, `tiny=23712,mini=97600`."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from shapleymix.tables.words import parse_budget

        if not isinstance(value, str):
            return value
        parts = [part.rpartition("=") for part in value.split(",")]
        sizes = [parse_budget(size, "" if param is None else param.opts[0]) for _, _, size in parts]
        named = dict(zip((name for name, _, _ in parts if name), sizes, strict=False))
        if named and len(named) < len(parts):
            raise UsageError(f"{value!r}: give each size a name of its own, or none", hint="tiny=23712,mini=97600")
        return named or tuple(sizes)


def options_of(function: Callable[..., object]) -> list[click.Option]:
    """An option for each parameter of a function, with the text that its NumPy docstring has for it."""
    texts = texts_of(function)
    found = inspect.signature(function).parameters.values()
    usual = "As for `shapleymix optimize`."
    return [_option(one, texts.get(one.name, usual)) for one in found if one.kind != one.VAR_KEYWORD]


def texts_of(function: Callable[..., object]) -> dict[str, str]:
    """What a docstring says of each parameter, as one line without marks of code."""
    entries = _ENTRY.findall(f"{inspect.getdoc(function) or ''}\n")
    return {name: _plain(text) for names, text in entries for name in names.split(", ")}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace('`"', "").replace('"`', "").replace("`", "")


def _option(parameter: inspect.Parameter, text: str) -> click.Option:
    kind, default = str(parameter.annotation), parameter.default
    flag = parameter.name if len(parameter.name) == 1 else f"-{parameter.name.replace('_', '-')}"
    shown = default if default not in (None, (), False, inspect.Parameter.empty) else None
    made: dict[str, Any] = {"help": text + (f"  [default: {shown}]" if shown is not None else "")}
    if kind.startswith("bool"):
        return Option([f"-{flag}", parameter.name], is_flag=True, default=None, **made)
    metavar = next((METAVARS[name] for name in METAVARS if name in kind), parameter.name.upper())
    if kind.startswith("Literal["):
        made["type"] = click.Choice(re.findall(r"['\"](\w+)['\"]", kind))
    elif kind.startswith(("int", "float")):
        made |= {"type": click.INT if kind.startswith("int") else Number(), "metavar": metavar}
    else:
        made |= {"type": click.Path() if metavar in FILES else click.STRING, "metavar": metavar}
    option = Option([f"-{flag}", parameter.name], multiple=any(name in kind for name in (*BY_NAME, *LISTED)), **made)
    option.by_name = any(name in kind for name in BY_NAME)
    return option


def value_of(parameter: click.Parameter, given: Any) -> Any:
    """What is passed on of a parameter's value: values by name as one text, several as a list."""
    if isinstance(parameter, Option) and parameter.multiple:
        return ",".join(given) if parameter.by_name else list(given)
    return given
