"""Commands made from functions: options from the library's signatures, and values of options from a project file.

The project file `shapleymix.toml` says once what the commands of a folder share:

    log = "runs.csv"
    caps = {ja = 0.3}

    [fit]
    bootstrap = 50

An entry at the top counts for every command that has an option or argument of its name, one below a command's name for
that command alone. What is typed wins; values by name are merged, name by name.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from shapleymix.errors import DataError, Location, UsageError, did_you_mean
from shapleymix.files import TABLES, read_toml, require_free
from shapleymix_cli.console import Output
from shapleymix_cli.inputs import opened

BY_NAME = ("Ratios", "Amounts", "EpochsSpec", "TokensSpec", "WeightSpec", "Mapping")
"""Types of values by name, such as `en=0.5,de=0.2`: given several times, they are one list."""
LISTED = ("Sequence", "Rivals", "NamesSpec")
"""Types of which several may be given."""
METAVARS = {
    "Ratios": "en=0.5,...", "Amounts": "en=5T,...", "EpochsSpec": "4|en=2,...", "TokensSpec": "1B|en=1B,...",
    "WeightSpec": "en=1,de=2", "Rivals": "[NAME=]MIX", "GroupSpec": "en+de<=0.6", "MixturesSpec": "TABLE",
    "MixtureSpec": "MIX", "NamesSpec": "en", "LanguagesSpec": "TABLE", "Table": "TABLE", "Size": "SIZE",
    "Mapping": "en=2.1,...", "Score |": "FILE", "Sequence[str] | str": "de+50B", "int": "COUNT", "float": "NUMBER",
}  # fmt: skip
"""How a value of a type is written; the first that stands in the annotation counts."""
FILES = ("TABLE", "LOG", "FILE", "FIT")
_MARKS = re.compile(r'`"?|"`')
_ENTRY = re.compile(r"^(\w+(?:, \w+)*) : .+\n((?: {4,}.+\n?)+)", re.MULTILINE)


class Option(click.Option):
    """An option that knows whether its values are by name, so that a project file's are kept beside those typed."""

    by_name = False


class Number(click.ParamType):
    """A number, also as people type ratios and sizes: `0.5`, `50%`, `1e22`, `243M`."""

    name = "number"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        from shapleymix.tables.words import parse_size, ratio_number

        read = ratio_number if str(value).strip().endswith("%") else parse_size
        return read(str(value), "" if param is None else param.opts[0])


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


TYPES = {"COUNT": click.INT, "NUMBER": Number(), "SIZE,...": Sizes(), **dict.fromkeys(FILES, click.Path())}
"""What is made of a value, by how it is written; others are texts."""


def options_of(function: Callable[..., object]) -> list[click.Option]:
    """An option for each parameter of a function, with the text that its NumPy docstring has for it."""
    texts = texts_of(function)
    found = inspect.signature(function).parameters.values()
    usual = "As for `shapleymix optimize`."
    return [_option(one, texts.get(one.name, usual)) for one in found if one.kind != one.VAR_KEYWORD]


def texts_of(function: Callable[..., object]) -> dict[str, str]:
    """What a docstring says of each parameter, as one line without marks of code."""
    entries = _ENTRY.findall(f"{inspect.getdoc(function) or ''}\n")
    return {name: _MARKS.sub("", " ".join(text.split())) for names, text in entries for name in names.split(", ")}


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
    else:
        made |= {"type": TYPES.get(metavar, click.STRING), "metavar": metavar}
    option = Option([f"-{flag}", parameter.name], multiple=any(name in kind for name in (*BY_NAME, *LISTED)), **made)
    option.by_name = any(name in kind for name in BY_NAME)
    return option


def value_of(parameter: click.Parameter, given: Any) -> Any:
    """What is passed on of a parameter's value: values by name as one text, several as a list."""
    if isinstance(parameter, Option) and parameter.multiple:
        return ",".join(given) if parameter.by_name else list(given)
    return given


NAME, NONE = "shapleymix.toml", "none"
SHARED = ("log", "transfer", "languages", "weights", "caps", "floors", "max_epochs", "available", "groups")
"""Entries that may stand at the top; the others are a command's."""


def read_project(named: str | None, commands: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The name and the content of the project file: the one that is named, or the folder's own if there is one.

    Raises
    ------
    DataError
        If it cannot be read, is no TOML, or holds an entry that no command knows.
    """
    path = NAME if named is None else named
    if named == NONE or (named is None and not Path(NAME).is_file()):
        return "", {}
    found, _ = read_toml(path, hint="--project names another file, --project none asks for none")
    for name, value in found.items():
        if name not in SHARED and not (name in commands and isinstance(value, dict)):
            hint = did_you_mean(name, [*SHARED, *commands])
            raise DataError("is no entry of a project file", hint=hint, location=Location(path, column=name))
    return path, found


def with_project(command: click.Command, given: dict[str, Any], path: str, project: Mapping[str, Any]) -> list[str]:
    """Put a project's values where nothing was typed, and beside values by name; returns what was taken.

    Raises
    ------
    DataError
        If the project has an entry for this command that it does not know, or of another type.
    """
    known = {str(one.name): one for one in command.params}
    own = project.get(str(command.name), {})
    for name in {*own} - {*known}:
        place = Location(path, column=f"{command.name}.{name}")
        raise DataError("is no option of it", hint=did_you_mean(name, known), location=place)
    shared = {name: project[name] for name in SHARED if name in project and name in known}
    taken = []
    for name, value in {**shared, **own}.items():
        parameter, typed = known[name], given[name]
        by_name = isinstance(parameter, Option) and parameter.by_name
        if typed and not (by_name and isinstance(value, dict) and all("=" in one for one in typed)):
            continue
        values = _texts(value, os.path.dirname(path))
        if by_name and typed:
            later = {pair.partition("=")[0].strip() for one in typed for pair in one.split(",")}
            values = [one for one in values if one.partition("=")[0] not in later]
        several = parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)
        if isinstance(value, bool):
            given[name] = value
        elif several:
            given[name] = (*values, *typed)
        else:
            given[name] = parameter.type_cast_value(click.get_current_context(), values[0])
        taken.append(f"{name} = {','.join(values)}")
    return taken


def _texts(value: object, folder: str) -> list[str]:
    """A value as it would be typed: a pair for each name, the name of a file from where the project file lies."""
    if isinstance(value, dict):
        return [f"{name}={one}" for name, one in value.items()]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one, folder)]
    beside = os.path.join(folder, str(value))
    return [beside if isinstance(value, str) and os.path.exists(beside) else str(value)]


SETTINGS = {"help_option_names": ["-h", "--help"]}
EPILOG = "Every command also takes --json, -q, -v and --project FILE; see `shapleymix --help`."
Decorator = Callable[[Callable[..., None]], Callable[..., None]]


class Exemplified:
    """Help that begins with examples."""

    examples: tuple[str, ...] = ()

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Examples:\n" + "".join(f"  {line}\n" for line in self.examples) + "\n")
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Command(Exemplified, click.Command):
    """A command whose help begins with examples, and whose options stand under headings."""

    headings: Mapping[str, Collection[str]] = MappingProxyType({})

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = {title: [one for one in self.params if one.name in names] for title, names in self.headings.items()}
        rest = [one for one in self.get_params(ctx) if not any(one in known for known in named.values())]
        for title, options in {**named, "Output" if named else "Options": rest}.items():
            with formatter.section(title):
                formatter.write_dl(list(filter(None, (one.get_help_record(ctx) for one in options))))


class CommandGroup(Exemplified, click.Group):
    """A command with commands of its own, named in the error where there is none of that name."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        own = (line for one in self.commands.values() for line in getattr(one, "examples", ()))
        self.examples = tuple(own) or self.examples

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:  # click would make an error of the help
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise UsageError(f"there is no command {args[0]!r}", hint=did_you_mean(args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


def command(
    *examples: str,
    options_from: Callable[[], tuple[Callable[..., object], ...]] | None = None,
    without: Collection[str] = (),
    only: Collection[str] = (),
    headings: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[[], click.Command]]:
    """Make a function a command, built when it is called for.

    The function gets its `Output` first, its own parameters by name, and those of the library's function that were
    given: what was left out keeps the default that stands there.

    Parameters
    ----------
    examples : str
        Calls that run as they stand after `shapleymix example`.
    options_from : callable, optional
        Gives the functions of the library whose parameters are options as well.
    without, only : collection of str
        Parameters of them that are none; or those that are.
    headings : mapping of str to collection of str, optional
        Under which heading of the help which options stand; the others stand under "Output".
    """

    def make(function: Callable[..., None]) -> Callable[[], click.Command]:
        def build() -> click.Command:
            own: list[click.Parameter] = [*map(copy, reversed(getattr(function, "__click_params__", [])))]
            left = {*without, "progress", *(one.name for one in own)}
            found = {
                one.name: one for function in (options_from() if options_from else ()) for one in options_of(function)
            }
            further = [one for name, one in found.items() if name not in left and (not only or name in only)]
            at = next((place for place, one in enumerate(own) if one.name == "output"), len(own))
            params = [*own[:at], *further, *own[at:]]
            name = function.__name__.rstrip("_").replace("_", "-")
            needed = [one for one in params if one.required]
            for one in needed:
                one.required = False  # a project file may have it
            made = Command(name, SETTINGS, _call(function, {str(one.name) for one in further}, needed), list(params))
            made.help, made.epilog = function.__doc__, EPILOG
            made.examples, made.headings = examples, headings
            return made

        return build

    return make


def _call(
    function: Callable[..., None], further: Collection[str], needed: Sequence[click.Parameter]
) -> Callable[..., None]:
    """What click calls: the function, after the project file's values and with what the library's keywords are."""

    def call(**given: Any) -> None:
        context = click.get_current_context()
        out: Output = context.obj
        root = context.find_root()
        known = root.command.list_commands(root) if isinstance(root.command, click.Group) else []
        path, content = read_project(root.meta.get("project"), known)
        taken = with_project(context.command, given, path, content)
        out.note([f"{path}: {', '.join(taken)}"] if taken else [])
        for one in needed:
            if given[str(one.name)] in (None, ()):
                hint = f"see `{context.command_path} --help`"
                is_option = isinstance(one, click.Option)
                raise UsageError(f"missing {one.opts[0] if is_option else one.make_metavar(context)}", hint=hint)
        if hasattr(signal, "siginterrupt"):
            signal.siginterrupt(signal.SIGINT, True)  # polars' handler would let a blocked read go on
        out.path, out.force = given.pop("output", None), given.pop("force", False)
        _require_free(out)
        parameters = {str(one.name): one for one in context.command.params}
        values = {name: value_of(parameters[name], value) for name, value in given.items()}
        kept = {name: value for name, value in values.items() if name not in further or value not in (None, "", [])}
        function(out, **opened(out, kept))

    return call


def _require_free(out: Output) -> None:
    """Refuse a name of `-o` that could not be written after a long computation."""
    if out.path is None:
        return
    folder = os.path.dirname(out.path) or "."
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder", location=Location(folder), hint="make it, or name another")
    if os.path.isfile(out.path):
        require_free(out.path, force=out.force)


def argument(name: str, metavar: str, **extra: Any) -> Decorator:
    """An argument by how it is written: `LOG...` may be several, `[TABLE]` may be left out."""
    many, needed = "..." in metavar, not metavar.startswith("[")
    extra = {"type": click.Path(), **extra}
    return click.argument(name, metavar=metavar, nargs=-1 if many else 1, required=needed, **extra)


def option(written: str, help: str, name: str | None = None, **extra: Any) -> Decorator:
    """An option by how it is written: `--jobs COUNT` has a value of that kind, `--strict` has none."""
    flag, _, metavar = written.partition(" ")
    made = {"type": TYPES.get(metavar, click.STRING), "metavar": metavar} if metavar else {"is_flag": True}
    shown = {"help": help, "show_default": "default" in extra}
    return click.option(flag, name or flag.lstrip("-").replace("-", "_"), **{**made, **shown, **extra})


def output(what: str) -> Decorator:
    """The options `-o FILE`, whose ending must be one that `what` names or that of a table, and `--force`."""
    named = dict.fromkeys(re.findall(r"(?<!\w)\.\w+", what))
    named |= dict.fromkeys(TABLES if {".json", ".csv"} & named.keys() else ())

    def checked(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
        if path is not None and named and not path.lower().endswith((*named,)):
            raise UsageError("names no format to write", hint=f"end it in {', '.join(named)}", location=Location(path))
        return path

    def add(function: Callable[..., None]) -> Callable[..., None]:
        force = option("--force", "Overwrite the file of -o.")(function)
        made = {"metavar": "FILE", "type": click.Path(), "help": f"Write {what}.", "callback": checked}
        return click.option("-o", "--output", **made)(force)

    return add
