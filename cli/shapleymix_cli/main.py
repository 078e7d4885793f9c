"""The `shapleymix` command: commands are imported when they run, and what all of them share is parsed here."""

from __future__ import annotations

import importlib
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from shapleymix.errors import ShapleyMixWarning
from shapleymix_cli.command_factory import SETTINGS, CommandGroup
from shapleymix_cli.console import Output, closed_pipe, exit_code_of

COMMANDS = {
    "example": ("tables", "Write small tables on which every example runs."),
    "import": ("exchange", "Read runs of W&B, MLflow, TensorBoard, trainers or tables as a run log."),
    "shapley": ("tables", "Compute Shapley values of the languages from coalition runs, or from text."),
    "transfer": ("tables", "Show a transfer matrix, compare two, or calibrate one."),
    "laws": ("tables", "List the laws and what each needs."),
    "fit": ("fits", "Fit a law to run logs."),
    "compare": ("fits", "Score several laws on the same held-out runs."),
    "learning-curve": ("fits", "Show how the held-out error falls with more runs."),
    "evaluate": ("fits", "Score a fit on runs that it has not seen."),
    "predict": ("fits", "Predict losses of mixtures, and tell which of several is better."),
    "downstream": ("fits", "Relate scores on tasks, such as lm-eval's, to losses."),
    "optimize": ("optimum", "Find the best mixture, with a proof."),
    "baselines": ("tables", "Show mixtures that need no law, with the epochs they make."),
    "export": ("exchange", "Write a mixture as a trainer's config."),
    "plan": ("sweeps", "Plan what to train next: informative mixtures, games, grids."),
    "launch": ("sweeps", "Train the runs of a plan; call it again to resume."),
    "run": ("sweeps", "Train one run of a plan, for any scheduler."),
    "collect": ("sweeps", "Collect the finished runs of a plan as one run log."),
    "plot": ("figures", "Draw a result as PNG, SVG or PDF."),
    "report": ("figures", "Write a page on which weights, caps, N and D can be moved."),
}
"""The module of each command and its help, which is here so that `shapleymix --help` imports none of them."""
FLAGS = ("--json", "-q", "--quiet", "-v", "--verbose")


class Commands(CommandGroup):
    """All commands, each imported when it is called for; every failure is reported in the same way."""

    examples = (
        "shapleymix example",
        "shapleymix fit example/runs.csv -o fit.json",
        "shapleymix optimize fit.json -N 97600 -D 2M --weights en=2,ja=1,zh=1 -o mixture.json",
    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"shapleymix_cli.{COMMANDS[cmd_name][0]}")
        return getattr(module, cmd_name.replace("-", "_") + "_" * iskeyword(cmd_name))()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run, and exit with 0, 1 (the data say no), 2 (usage) or 130 (interrupted)."""
        words = list(sys.argv[1:] if args is None else args)
        standalone = extra.pop("standalone_mode", True)
        code = exit_code_of(lambda: self._run(words, prog_name or "shapleymix", extra), words)
        if standalone:
            sys.exit(code)
        return code

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; click would make a failure of a closed pipe."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return closed_pipe()

    def _run(self, words: list[str], name: str, extra: dict[str, Any]) -> object:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShapleyMixWarning)  # commands show them once, from the record
            return super().main(list(_shared_first(words)), name, standalone_mode=False, obj=words, **extra)


def _shared_first(words: Sequence[str]) -> Iterator[str]:
    """The words with what every command takes in front, where it is parsed, wherever it was typed."""
    end = words.index("--") if "--" in words else len(words)
    rest: list[str] = []
    listed = iter(words[:end])
    for word in listed:
        if word in FLAGS or word.startswith("--project="):
            yield word
        elif word == "--project":
            yield from (word, *islice(listed, 1))
        else:
            rest.append(word)
    yield from (*rest, *words[end:])


@click.group(cls=Commands, context_settings=SETTINGS)
@click.version_option(package_name="shapleymix", message="shapleymix %(version)s")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="Print no notes, warnings or progress.")
@click.option("-v", "--verbose", is_flag=True, help="Print all rows and warnings.")
@click.option(
    "--project", metavar="FILE", help="Project file; none for none.  [default: shapleymix.toml if it is there]"
)
@click.pass_context
def commands(ctx: click.Context, as_json: bool, quiet: bool, verbose: bool, project: str | None) -> None:
    """Choose the language mixture of a multilingual pretraining run.

    From a log of small runs: fit a law of the loss, see how well it predicts runs that it has not seen, and find the
    best mixture, with a proof. `-` reads a table from standard input; sizes are written 243M, 100B, 1.5e9. The last
    five options may stand anywhere in a call.
    """
    words, ctx.meta["project"] = ctx.obj or [], project
    ctx.obj = Output(as_json=as_json, quiet=quiet, verbose=verbose)
    ctx.obj.command_line = _recorded(words)


def _recorded(words: Sequence[str]) -> str:
    """The call as provenance: without what changes nothing in a result, so that the same result has the same bytes."""
    kept: list[str] = []
    listed = iter(words)
    for word in listed:
        if word in ("-o", "--output"):
            next(listed, None)
        elif word not in (*FLAGS, "--force") and not word.startswith("--output="):
            kept.append(word)
    return shlex.join(["shapleymix", *kept])


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a label that the terminal cannot show is no failure
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of libraries
    commands.main(prog_name="shapleymix")


if __name__ == "__main__":
    main()
