"""The `shapleymix` command: a group whose commands are imported only when they run."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import click

from shapleymix.errors import ShapleyMixWarning, UsageError, did_you_mean
from shapleymix_cli.completing import prepare_completion
from shapleymix_cli.failures import OK, close_stdout, exit_code_of
from shapleymix_cli.streams import prepare

COMMANDS = {
    "import": "Runs that W&B, MLflow, TensorBoard, trainers or tables keep, as a run log.",
    "shapley": "Shapley values of the languages, from coalition runs.",
    "transfer": "Show a transfer matrix, compare two, or calibrate one.",
    "fit": "Fit a law to run logs.",
    "predict": "Losses of mixtures at a size and a budget.",
    "evaluate": "Score a fit on runs that it has not seen.",
    "compare": "Score several laws on the same held-out runs.",
    "downstream": "What losses say of scores on tasks, such as lm-eval's.",
    "optimize": "The best mixture, with its certificate.",
    "export": "A mixture as a trainer's config, exact, in its unit.",
    "plan": "What to train next: the mixtures that tell most, games, grids.",
    "launch": "Train the runs of a plan, so many at a time; again, to resume.",
    "run": "Train one run of a plan, for any scheduler.",
    "collect": "The finished runs of a plan as one run log.",
    "plot": "Figures of results: transfer, fits, and how well two matrices agree.",
    "report": "One page about a fit, on which weights, caps, N and D can be moved.",
    "baselines": "Mixtures that need no law, with the epochs they make.",
    "laws": "The laws there are, and what each needs.",
    "example": "Write the small tables on which the examples run.",
    "doctor": "Whether all is there that a run needs: versions, solvers, extras, cores.",
    "completion": "Completion of commands and values in bash, zsh and fish.",
}
"""Each name is a module of this package with a `command`; the text is here so that help imports none of them."""

EXAMPLES = """Examples:
  shapleymix example
  shapleymix shapley example/coalitions.csv -o sv.csv
  shapleymix fit example/runs.csv --transfer sv.csv --min-own-tokens 20k -o fit.json
  shapleymix optimize fit.json -N 97600 -D 2M
"""


class Commands(click.Group):
    """A group that imports a command when it is called for, and reports every failure the same way."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"shapleymix_cli.commands.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"there is no command {args[0]!r}", hint=did_you_mean(args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"{EXAMPLES}\n")
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and exit with 0, 1 (the data say no), 2 (usage) or 130 (interrupted)."""
        arguments = list(sys.argv[1:] if args is None else args)
        standalone = extra.pop("standalone_mode", True)
        extra["obj"] = arguments
        code = exit_code_of(lambda: self._run(arguments, prog_name or "shapleymix", extra), arguments)
        if standalone:
            sys.exit(code)
        return code

    def _run(self, arguments: list[str], prog_name: str, extra: dict[str, Any]) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShapleyMixWarning)  # the commands say them, once
            return super().main(arguments, prog_name, standalone_mode=False, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Turn a closed pipe into an ordinary end, before click makes a failure of it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            close_stdout()
            return OK


def _show_version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"shapleymix {version('shapleymix')}")
        ctx.exit()


@click.group(cls=Commands, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="The version.")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Choose the language mixture of a multilingual pretraining run.

    From a log of small runs: fit a law of the loss, see how well it predicts runs it has not seen, and find the
    mixture that it says is best, with a proof that it is. `-` reads a table from standard input; sizes are written
    243M, 100B, 1.5e9; `--json` gives one JSON document on every command. What the commands of a folder share (log,
    transfer, languages, weights, caps) may stand in its `shapleymix.toml`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Entry point of the console script."""
    prepare()
    prepare_completion()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of libraries; what users should know is said by the commands
    commands.main(prog_name="shapleymix")


if __name__ == "__main__":
    main()
