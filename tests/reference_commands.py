"""The reference of the command line, made from the commands themselves."""

import inspect
import re
import textwrap
from collections.abc import Sequence

import click
from cli_tools import every_command
from shapleymix_cli import console
from shapleymix_cli.main import COMMANDS, commands
from shapleymix_sweep.running import HeldError

EXITS = {
    console.OK: "All is done as asked.",
    console.DATA_SAY_NO: "The data say no: a file that is missing or has faults, bounds that no mixture meets, a "
    "run that failed, a result that cannot be written.",
    console.USAGE: "The call is wrong: an option, a value or a name that does not exist, or two that contradict.",
    HeldError.exit_code: "`run`: another process trains the run; call again later.",
    console.INTERRUPTED: "Interrupted, by Ctrl-C.",
}
ENVIRONMENT = {
    "NO_COLOR": "No colours on a terminal, where it is set to anything.",
    "COLUMNS": "The width of tables and messages, instead of the terminal's.",
    "OMP_NUM_THREADS": "Threads of NumPy's products; `--threads` is how many cores a fit uses.",
    "CUDA_VISIBLE_DEVICES": "The GPUs of a run, which `launch` gives out: those of `--gpus`, or that are named here.",
    "SUBMITIT_PREEMPT_SIGNAL": "`launch --slurm`: the signal by which SLURM announces that it ends a run.",
    "MLFLOW_ALLOW_FILE_STORE": "Set to `true` for MLflow, where a store is a folder and it is not set yet.",
}
"""What the program reads, or sets for others."""


def reference() -> str:
    """The page."""
    lines = ["# Every command", "", "Made from the commands themselves by `make reference`.", ""]
    lines += [*paragraphs(commands.help), *_options(commands), "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#shapleymix-{name}) | {cell(text)} |" for name, (_, text) in COMMANDS.items()]
    for words, made in every_command().items():
        usage = " ".join(made.collect_usage_pieces(click.Context(made)))
        lines += ["", f"## shapleymix {words}", "", "```text", f"shapleymix {words} {usage}", "```", ""]
        lines += [*paragraphs(made.help), *_options(made)]
    for title, rows in {"Exit codes": EXITS, "Environment": ENVIRONMENT}.items():
        lines += ["", f"## {title}", "", *_table(("", ""), [(f"`{key}`", cell(text)) for key, text in rows.items()])]
    return "\n".join([*lines, ""])


def _options(made: click.Command) -> list[str]:
    """A table of options; none where there are none."""
    context = click.Context(made)
    records = [one.get_help_record(context) for one in made.params if isinstance(one, click.Option)]
    rows = [(f"`{record[0]}`".replace("|", "\\|"), cell(record[1])) for record in records if record]
    return [*_table(("option", ""), rows), ""] if rows else []


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ("---", "---"), *rows)]


def paragraphs(text: str | None) -> list[str]:
    """A docstring as Markdown."""
    blocks = inspect.cleandoc(text or "").split("\n\n")
    return [line for block in blocks for line in (*_wrapped(_escaped(block)), "")]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def cell(text: str) -> str:
    """A text within a table."""
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """A text without what Markdown takes for marks; what stands between backticks is left alone."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*\\])", r"\\\1", part) for part in parts)
