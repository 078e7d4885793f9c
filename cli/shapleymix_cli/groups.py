"""Commands with commands of their own, such as `shapleymix plan game`: their help begins with all their examples."""

from __future__ import annotations

from collections.abc import Callable

import click

from shapleymix.errors import UsageError, did_you_mean
from shapleymix_cli.forms import Command


class Grouped(click.Group):
    """A command whose commands are kinds of one thing, named by `noun`, each with examples of its own."""

    noun = "command"

    @property
    def examples(self) -> tuple[str, ...]:
        """Those of all its commands."""
        made = (one for one in self.commands.values() if isinstance(one, Command))
        return tuple(example for one in made for example in one.examples)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = "".join(f"  {example}\n" for example in self.examples)
        formatter.write(f"Examples:\n{lines}\n")
        super().format_help(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"there is no {self.noun} {args[0]!r}", hint=did_you_mean(args[0], self.commands))
        return super().resolve_command(ctx, args)


def grouped(noun: str) -> Callable[[Callable[[], None]], Grouped]:
    """Make a function, whose text is the help, a command that has commands of its own."""

    def make(function: Callable[[], None]) -> Grouped:
        @click.group(
            cls=Grouped,
            invoke_without_command=True,
            context_settings={"help_option_names": ["-h", "--help"]},
            help=function.__doc__,
        )
        @click.pass_context
        def group(ctx: click.Context) -> None:
            if ctx.invoked_subcommand is None:
                click.echo(ctx.get_help())

        group.noun = noun
        return group

    return make
