"""Running the command line inside the test process."""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import click
import pytest
from shapleymix_cli.main import commands


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error of one call."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as the one JSON document that it must be, without NaN or Infinity."""
        return json.loads(self.out, parse_constant=_refuse)


Run = Callable[..., Outcome]


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `shapleymix WORDS...` (one text is split as a shell would)."""

    def run(*words: Any) -> Outcome:
        arguments = shlex.split(words[0]) if len(words) == 1 else [str(word) for word in words]
        capsys.readouterr()
        code = commands.main(arguments, standalone_mode=False)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(code, captured.out, captured.err)

    return run


@cache
def every_command() -> dict[str, click.Command]:
    """All commands by their words, those of a group after it."""
    return dict(_below(commands, ()))


def _below(group: click.Group, above: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        made = group.get_command(context, name)
        yield " ".join((*above, name)), made
        if isinstance(made, click.Group):
            yield from _below(made, (*above, name))
