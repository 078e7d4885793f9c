"""Run logs on the command line: their names, and the options that say how they are written."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import click

from shapleymix.errors import UsageError
from shapleymix_cli.forms import Sectioned

if TYPE_CHECKING:
    from shapleymix.tables.importing.reading import ReadingKeywords

P = ParamSpec("P")

LOSS_UNITS = ("nats", "bits", "bpb", "perplexity", "percent")
RATIO_UNITS = ("fraction", "percent", "weights")
"""Those of `shapleymix.tables.importing.units`, which needs NumPy and is not loaded for help."""


@dataclass(frozen=True)
class Logs:
    """Run logs as they are named on the command line.

    Attributes
    ----------
    paths : tuple of str
        Their files; none where logs are optional.
    how : ReadingKeywords
        How they are written, all in one way.
    """

    paths: tuple[str, ...]
    how: ReadingKeywords


class LogOption(Sectioned):
    """A switch that says how a log is written."""

    section = "How LOG is written"


_SWITCHES = (
    click.option(
        "--map",
        "map",
        cls=LogOption,
        multiple=True,
        metavar="FILE.toml|KEY=VALUE",
        help="Which column is what: run=Name, 'loss=eval/loss/{lang}', p.en=w_en; N=97.6k for all rows; repeatable.",
    ),
    click.option("--long", is_flag=True, default=None, cls=LogOption, help="A row is of one run and language."),
    click.option(
        "--join",
        multiple=True,
        metavar="TABLE",
        cls=LogOption,
        help="A table with a row a run (N, ratios), joined by the ids of runs; repeatable.",
    ),
    click.option("--unit", type=click.Choice(LOSS_UNITS), cls=LogOption, help="Unit of losses.  [default: nats]"),
    click.option(
        "--bytes-per-token",
        metavar="4.2|en=4.2,zh=3",
        cls=LogOption,
        help="Mean bytes of a token of the validation text, for bits per byte (bpb).",
    ),
    click.option(
        "--ratio-unit",
        type=click.Choice(RATIO_UNITS),
        cls=LogOption,
        help="Unit of ratios; weights sum to anything.  [default: fraction]",
    ),
    click.option("--sep", metavar="MARK", cls=LogOption, help="What separates columns.  [default: as seen]"),
    click.option("--decimal", metavar="MARK", cls=LogOption, help="A point or a comma.  [default: as seen]"),
)
_NAMES = ("map", "long", "join", "unit", "bytes_per_token", "ratio_unit", "sep", "decimal")


def reading(function: Callable[P, None]) -> Callable[..., None]:
    """The switches that say how a log is written, which the function gets together as `how`."""

    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> None:
        options["how"] = _keywords({name: options.pop(name) for name in _NAMES})
        function(*arguments, **options)

    made: Callable[..., None] = call
    for switch in reversed(_SWITCHES):
        made = switch(made)
    return made


def _keywords(given: Mapping[str, object]) -> ReadingKeywords:
    """The switches that were given, as the core takes them."""
    known = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    return {name: value for name, value in known.items() if value not in (None, [])}  # type: ignore[return-value]


def refuse_idle(how: ReadingKeywords, what: str) -> None:
    """Switches that say how a log is written do nothing where none is read."""
    for name in how:
        raise UsageError(f"--{name.replace('_', '-')} does nothing without {what}", hint="leave it out")


def logs(function: Callable[P, None]) -> Callable[..., None]:
    """`LOG...` and its switches, which the function gets together as `logs`."""
    return click.argument("logs", metavar="LOG...", nargs=-1, required=True)(_with_logs(function))


def some_logs(function: Callable[P, None]) -> Callable[..., None]:
    """The same where there may be none."""
    return click.argument("logs", metavar="[LOG]...", nargs=-1)(_with_logs(function))


def _with_logs(function: Callable[P, None]) -> Callable[..., None]:
    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> None:
        options["logs"] = Logs(options["logs"], options.pop("how"))  # type: ignore[arg-type]
        function(*arguments, **options)

    return reading(call)


def import_command(logs: Sequence[str], keywords: Mapping[str, object], goal: str = "runs.csv", to: str = "-o") -> str:
    """The command that reads tables with keywords of the core, as it is typed.

    What a terminal cannot show cannot be copied from it either: then the command is the one that writes a map.
    """
    command = _joined(logs, _switches(keywords), to, goal)
    if command.isprintable():
        return command
    return _joined(logs[:1], [], "--write-map", f"{Path(logs[0]).stem}-map.toml")


def _joined(logs: Sequence[str], switches: Sequence[str], to: str, goal: str) -> str:
    return " ".join(["shapleymix import", *map(_file, logs), *switches, to, shlex.quote(goal)])


def _file(name: str) -> str:
    """The name of a file in quotes, so that it is no option."""
    return shlex.quote(f"./{name}" if name.startswith("-") and name != "-" else name)


def _switches(keywords: Mapping[str, object]) -> list[str]:
    """Keywords of the core as they are typed, each pair of a map in quotes."""
    words = []
    for name, value in keywords.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            words += [f"{flag} {_quoted(pair)}" for pair in _pairs(value)]
        elif isinstance(value, list):
            words += [f"{flag} {_quoted(str(one))}" for one in value]
        else:
            words.append(flag if value is True else f"{flag} {shlex.quote(str(value))}")
    return words


def _pairs(given: Mapping[str, object], before: str = "") -> list[str]:
    """`KEY=VALUE` of each entry, `KEY.NAME=VALUE` of those within one."""
    found: list[str] = []
    for key, value in given.items():
        if isinstance(value, Mapping):
            found += _pairs(value, f"{before}{key}.")
        else:
            found.append(f"{before}{key}={value}")
    return found


def _quoted(text: str) -> str:
    """A text in quotes, which a shell takes off again."""
    return shlex.quote(text) if "'" in text else f"'{text}'"
