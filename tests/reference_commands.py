"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import click
from shapleymix_cli import failures
from shapleymix_cli.forms import Command, Sectioned
from shapleymix_cli.main import COMMANDS, commands

EXITS = {
    failures.OK: "All is done as asked.",
    failures.DATA_SAY_NO: "The data say no: a file that is missing or has faults, bounds that no mixture meets, a "
    "check or a run that failed, a result that cannot be written.",
    failures.USAGE: "The call is wrong: an option, a value or a name that there is not, or two that exclude each "
    "other.",
    failures.INTERRUPTED: "Interrupted, by Ctrl-C.",
}
ENVIRONMENT = {
    "NO_COLOR": "No colours on a terminal, where it is set to anything.",
    "COLUMNS": "The width of tables and messages, instead of the terminal's.",
    "OMP_NUM_THREADS": "Threads of NumPy's products; `shapleymix doctor` says how many they are. `--threads` is how "
    "many cores a fit uses.",
    "OPENBLAS_NUM_THREADS": "The same, for OpenBLAS.",
    "MKL_NUM_THREADS": "The same, for MKL.",
    "CUDA_VISIBLE_DEVICES": "The GPUs that `launch` shares out, without `--gpus`; each run is told its own by it.",
    "SHAPLEYMIX_RUN_FOLDER": "Set for the program of a planned run and all that it starts: the folder of the run.",
    "SUBMITIT_PREEMPT_SIGNAL": "`launch --backend slurm`: the signal by which SLURM announces that it ends a run.",
    "MLFLOW_ALLOW_FILE_STORE": "Set to `true` for MLflow, where a store is a folder and it is not set yet.",
}
"""What the program reads, or sets for others, in the order of the reference."""


OPTIONS, EVERY = "Options", "Options of every command"


class Entry(NamedTuple):
    """An option as the reference shows it: how it is written, what it does, what holds without it."""

    flags: str
    text: str
    without: str


Found = tuple[tuple[str, ...], click.Context]


def reference() -> str:
    """The page."""
    top = commands.make_context("shapleymix", [], resilient_parsing=True)
    found = list(_all(top))
    shared = _shared([entries(context) for _, context in found if isinstance(context.command, Command)])
    parts = [_head(top), *(_command(names, context, shared) for names, context in found)]
    parts += [_section(title, listed) for title, listed in shared.items()]
    return "\n".join([*parts, _table("Exit codes", EXITS), _table("Environment", ENVIRONMENT)])


def _all(parent: click.Context, above: tuple[str, ...] = ()) -> Iterator[Found]:
    """The commands below one, in the order of its help, each before its own."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = command.make_context(name, [], parent, resilient_parsing=True)
        yield (*above, name), context
        if isinstance(command, click.Group):
            yield from _all(context, (*above, name))


def entries(context: click.Context) -> dict[str, list[Entry]]:
    """The options of a command by the section of its help that they stand in."""
    found: dict[str, list[Entry]] = {}
    for param in context.command.get_params(context):
        record = param.get_help_record(context)
        if record is not None and not isinstance(param, click.Argument):
            section = param.section if isinstance(param, Sectioned) else OPTIONS
            found.setdefault(section, []).append(_entry(*record))
    return found


def _entry(flags: str, help_text: str) -> Entry:
    """Of a line of help: what stands in brackets at its end is what holds without the option."""
    match = re.fullmatch(r"(.*?)(?:\s*\[((?:[^][]|\[[^]]*\])*)\])?", help_text.strip(), re.DOTALL)
    assert match is not None
    without = (match[2] or "").removeprefix("default: ")
    return Entry(flags, match[1], without)


def _shared(leaves: list[dict[str, list[Entry]]]) -> dict[str, list[Entry]]:
    """What is shown once for many commands: sections of their helps that are alike, and the options that all have."""
    shared: dict[str, list[Entry]] = {}
    for section, listed in ((name, listed) for found in leaves for name, listed in found.items() if name != OPTIONS):
        assert shared.setdefault(section, listed) == listed, f"the section {section!r} differs between commands"
    first = leaves[0][OPTIONS]
    return shared | {EVERY: [entry for entry in first if all(entry in found[OPTIONS] for found in leaves)]}


def _head(context: click.Context) -> str:
    """The title, and the commands with what each is for."""
    lines = ["# Every command", ""]
    lines += ["Made from the commands themselves by `make reference`; a test holds the two together.", ""]
    lines += [*paragraphs(commands.help), "| command | |", "|---|---|"]
    lines += [
        f"| [`shapleymix {name}`](#{_anchor('shapleymix', name)}) | {cell(text)} |" for name, text in COMMANDS.items()
    ]
    ends = [f"[{title}](#{_anchor(title)})" for title in (EVERY, "Exit codes", "Environment")]
    return "\n".join([*lines, "", f"At the end: {', '.join(ends)}.", ""])


def _anchor(*words: str) -> str:
    """The place of a heading on the page, as GitHub names it."""
    return "-".join(" ".join(words).lower().split())


def _command(names: tuple[str, ...], context: click.Context, shared: dict[str, list[Entry]]) -> str:
    """A command: how it is called, what it does, its options, its examples."""
    command = context.command
    words = ("shapleymix", *names)
    pieces = ["COMMAND", "..."] if isinstance(command, click.Group) else command.collect_usage_pieces(context)
    call = (*words, *pieces)
    lines = [
        f"{'#' * len(words)} {' '.join(words)}",
        "",
        "```text",
        " ".join(call),
        "```",
        "",
        *paragraphs(command.help),
    ]
    if isinstance(command, click.Group):
        kinds = [f"[`{name}`](#{_anchor(*words, name)})" for name in command.list_commands(context)]
        return "\n".join([*lines, f"Its commands: {', '.join(kinds)}.", ""])
    found = entries(context)
    lines += _options([entry for entry in found[OPTIONS] if entry not in shared[EVERY]])
    elsewhere = [f"[{title}](#{_anchor(title)})" for title in (*(name for name in found if name != OPTIONS), EVERY)]
    lines += [f"Besides: {', '.join(elsewhere)}.", ""]
    if isinstance(command, Command):
        lines += ["```console", *command.examples, "```", ""]
    return "\n".join(lines)


def paragraphs(text: str | None) -> list[str]:
    """A docstring as Markdown."""
    blocks = inspect.cleandoc(text or "").split("\n\n")
    return [line for block in blocks for line in (*_wrapped(_escaped(block)), "")]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def _options(listed: list[Entry]) -> list[str]:
    """A table of options; none where there are none."""
    rows = [f"| {_code(one.flags)} | {cell(one.text)} | {cell(one.without)} |" for one in listed]
    return ["| option | | default |", "|---|---|---|", *rows, ""] if rows else []


def _section(title: str, listed: list[Entry]) -> str:
    """Options that many commands have, under a heading of their own."""
    return "\n".join([f"## {title}", "", *_options(listed)])


def _table(title: str, rows: dict[str, str] | dict[int, str]) -> str:
    lines = [f"| `{key}` | {cell(text)} |" for key, text in rows.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines, ""])


def _code(text: str) -> str:
    """A text of the keyboard within a cell."""
    return f"`{text}`".replace("|", "\\|")


def cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """A text without what Markdown takes for marks; what stands between backticks is left alone."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*\\])", r"\\\1", part) for part in parts)
