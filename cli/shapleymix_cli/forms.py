"""The form that all commands have: help that begins with examples, what a project file adds, the call as provenance."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import ClassVar

import click

from shapleymix.errors import printable
from shapleymix_cli.project import TAKEN, Takes, find

_OF_THE_CALL = {"-o": 1, "--output": 1, "--project": 1, "--threads": 1, "--force": 0, "--json": 0}
_OF_THE_CALL |= {"-q": 0, "--quiet": 0, "-v": 0, "--verbose": 0}
"""Options (and how many words follow) that change nothing in a result, and so are not part of its provenance."""


class Command(click.Command):
    """A command whose help begins with examples, and that takes `--json`, `-q`, `-v` and what a project file says."""

    examples: tuple[str, ...] = ()
    project: Takes | None = None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what was typed, after what the project file adds to it; a question for help does not read that file."""
        if ctx.resilient_parsing:  # completion: an option whose value is asked for would hide what stands before it
            return super().parse_args(ctx, args[:-1] if args and args[-1].startswith("-") else args)
        if self.project:
            given = self._typed(ctx, args)
            project, asks = given.get("project"), self.get_help_option(ctx)
            found = None if asks is not None and asks.name in given else find(None if project is None else str(project))
            if found is not None:
                ctx.meta[TAKEN] = found.taken(self.params, self.project, given)
                args = ctx.meta[TAKEN].around(args)
        return super().parse_args(ctx, args)

    def _typed(self, ctx: click.Context, args: list[str]) -> dict[str, object]:
        """What was typed, by the names of the parameters; arguments that were not are left out."""
        found = self.make_parser(ctx).parse_args(args=list(args))[0]
        arguments = {one.name for one in self.params if isinstance(one, click.Argument)}
        return {
            name: value
            for name, value in found.items()
            if name not in arguments or (isinstance(value, (str, tuple, list)) and value)
        }

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = "".join(f"  {example}\n" for example in self.examples)
        formatter.write(f"Examples:\n{lines}\n")
        super().format_help(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, and below them those that have a section of their own."""
        found: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                found.setdefault(param.section if isinstance(param, Sectioned) else "Options", []).append(record)
        for section, records in sorted(found.items(), key=lambda item: item[0] != "Options"):
            with formatter.section(section):
                formatter.write_dl(records)


class Sectioned(click.Option):
    """An option that stands in a section of its own in a command's help."""

    section: ClassVar[str]


def recorded_command(arguments: Sequence[str]) -> str:
    """The call as provenance: without what cannot change the result, so that the same result has the same bytes."""
    kept: list[str] = []
    skip = 0
    for word in arguments:
        if skip:
            skip -= 1
            continue
        name = word.partition("=")[0] if word.startswith("--") else word
        if name in _OF_THE_CALL:
            skip = 0 if "=" in word else _OF_THE_CALL[name]
        elif not (word.startswith("-o") and not word.startswith("--")):
            kept.append(word)
    return printable(shlex.join(["shapleymix", *kept]))
