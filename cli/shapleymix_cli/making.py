"""Commands made from functions: help that begins with examples, the project file, and a checked name of `-o`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Sequence
from copy import copy
from typing import Any

import click

from shapleymix.errors import Location, UsageError, did_you_mean
from shapleymix_cli import project
from shapleymix_cli.console import Output
from shapleymix_cli.inputs import opened
from shapleymix_cli.signatures import FILES, Number, Sizes, options_of, value_of

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
    """A command whose help begins with examples."""


class Group(Exemplified, click.Group):
    """A command with commands of its own, named in the error where there is none of that name."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        own = (line for one in self.commands.values() for line in getattr(one, "examples", ()))
        self.examples = tuple(own) or self.examples

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise UsageError(f"there is no command {args[0]!r}", hint=did_you_mean(args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


def command(
    *examples: str,
    core: Callable[[], tuple[Callable[..., object], ...]] | None = None,
    without: Collection[str] = (),
    only: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[[], click.Command]]:
    """Make a function a command, built when it is called for.

    The function gets its `Output` first, its own parameters by name, and those of the library's function that were
    given: what was left out keeps the default that stands there.

    Parameters
    ----------
    examples : str
        Calls that run as they stand after `shapleymix example`.
    core : callable, optional
        Gives the functions of the library whose parameters are options as well.
    without, only : collection of str
        Parameters of them that are none; or those that are.
    """

    def make(function: Callable[..., None]) -> Callable[[], click.Command]:
        def build() -> click.Command:
            own: list[click.Parameter] = [*map(copy, reversed(getattr(function, "__click_params__", [])))]
            left = {*without, "progress", *(one.name for one in own)}
            found = {one.name: one for function in (core() if core else ()) for one in options_of(function)}
            further = [one for name, one in found.items() if name not in left and (not only or name in only)]
            at = next((place for place, one in enumerate(own) if one.name == "output"), len(own))
            params = [*own[:at], *further, *own[at:]]
            name = function.__name__.rstrip("_").replace("_", "-")
            needed = [one for one in params if one.required]
            for one in needed:
                one.required = False  # a project file may have it
            made = Command(name, SETTINGS, _call(function, {str(one.name) for one in further}, needed), list(params))
            made.help, made.epilog, made.examples = function.__doc__, EPILOG, examples
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
        path, content = project.read(root.meta.get("project"), known)
        taken = project.merged(context.command, given, path, content)
        out.note([f"{path}: {', '.join(taken)}"] if taken else [])
        for one in needed:
            if given[str(one.name)] in (None, ()):
                hint = f"see `{context.command_path} --help`"
                raise UsageError(f"missing {one.make_metavar(context) or one.opts[-1]}", hint=hint)
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
    place, folder = Location(out.path), os.path.dirname(out.path) or "."
    if not os.path.isdir(folder):
        raise UsageError("there is no such folder", location=Location(folder), hint="make it, or name another")
    if os.path.isfile(out.path) and not out.force:
        raise UsageError("exists already", location=place, hint="choose another name, or overwrite it with --force")


def argument(name: str, metavar: str, **extra: Any) -> Decorator:
    """An argument by how it is written: `LOG...` may be several, `[TABLE]` may be left out."""
    many, needed = "..." in metavar, not metavar.startswith("[")
    extra = {"type": click.Path(), **extra}
    return click.argument(name, metavar=metavar, nargs=-1 if many else 1, required=needed, **extra)


def option(written: str, help: str, name: str | None = None, **extra: Any) -> Decorator:
    """An option by how it is written: `--jobs COUNT` has a value of that kind, `--strict` has none."""
    flag, _, metavar = written.partition(" ")
    kinds = {"COUNT": click.INT, "NUMBER": Number(), "SIZE,...": Sizes(), **dict.fromkeys(FILES, click.Path())}
    made = {"type": kinds.get(metavar, click.STRING), "metavar": metavar} if metavar else {"is_flag": True}
    shown = {"help": help, "show_default": "default" in extra}
    return click.option(flag, name or flag.lstrip("-").replace("-", "_"), **{**made, **shown, **extra})


def output(what: str) -> Decorator:
    """The options `-o FILE` and `--force`."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        force = option("--force", "Overwrite the file of -o.")(function)
        return click.option("-o", "--output", metavar="FILE", type=click.Path(), help=f"Write {what}.")(force)

    return add
