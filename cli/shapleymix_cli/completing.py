"""Completion in bash, zsh and fish: commands and options are click's, values are laws, languages and files.

What a value is stands in its metavar, as people read it in the help: `LAW`, `en=50%,...`, `MIX`, `LOG...`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)  # fmt: skip

from shapleymix.errors import ShapleyMixError
from shapleymix_cli.project import find

VARIABLE = "_SHAPLEYMIX_COMPLETE"
"""What a completion script sets when it asks the program."""

Offer = Callable[[click.Context, str], list[str]]
"""The values that may stand for an incomplete one, each whole."""


class Value(click.types.StringParamType):
    """A text whose completions somebody knows; without any offer, the name of a file."""

    def __init__(self, offer: Offer | None) -> None:
        self._offer = offer

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if self._offer is None:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(text) for text in self._offer(ctx, incomplete) if text.startswith(incomplete)]


def with_completion(parameters: Sequence[click.Parameter]) -> None:
    """Let the texts among the parameters be completed by what their metavars say."""
    for one in parameters:
        if isinstance(one.type, click.types.StringParamType) and one.metavar:
            offers = [offer for pattern, offer in OFFERS if re.search(pattern, one.metavar)]
            if offers:
                one.type = Value(offers[0])


def _law(ctx: click.Context, incomplete: str) -> list[str]:
    from shapleymix.laws import BLACK_BOXES, LAWS

    return [*(["auto"] if "law" in ctx.params else []), *LAWS, *BLACK_BOXES]


def _laws(ctx: click.Context, incomplete: str) -> list[str]:
    return _appended(incomplete, _law(ctx, incomplete), ",")


def _names(ctx: click.Context, incomplete: str) -> list[str]:
    return _appended(incomplete, _labels(ctx), ",+:")


def _pairs(ctx: click.Context, incomplete: str) -> list[str]:
    return _appended(incomplete, [f"{name}=" for name in _labels(ctx)], ",|")


def _mixtures(ctx: click.Context, incomplete: str) -> list[str]:
    usual = [] if "=" in incomplete else ["uniform", "natural", "temperature:", "unimax:"]
    return [*usual, *_pairs(ctx, incomplete)]


OFFERS: tuple[tuple[str, Offer | None], ...] = (
    (r"^\[?LAW\]?(\.\.\.)?$", _law),
    (r"^LAW,", _laws),
    (r"(^|\|)en=", _pairs),
    (r"^en[,+:]", _names),
    (r"MIX\]?$", _mixtures),
    (r"^\[?[A-Z]+\]?(\.\.\.)?$", None),
)
"""By the metavar: what is offered, None being files."""


def _appended(incomplete: str, words: Sequence[str], separators: str) -> list[str]:
    """What was typed before the last separator, with each word that it does not hold yet."""
    head = re.match(rf".*[{re.escape(separators)}]|", incomplete, re.DOTALL)
    before = head[0] if head else ""
    taken = {part.partition("=")[0] for part in re.split(rf"[{re.escape(separators)}]", before)}
    return [before + word for word in words if word.partition("=")[0] not in taken]


def _labels(ctx: click.Context) -> list[str]:
    """The languages of the fit, log or table that is typed already, or of the project."""
    try:
        project = find(None)
        typed = [ctx.params.get(name) for name in ("fit_path", "logs", "table", "languages")]
        known = [] if project is None else [project.entries.get(name) for name in ("log", "languages")]
        for given in (*typed, *known):
            path = given[0] if isinstance(given, (list, tuple)) and given else given
            if isinstance(path, str) and path != "-" and (found := _labels_of(path)):
                return found
    except (ShapleyMixError, OSError):
        pass  # a shell that completes is no place for errors
    return []


def _labels_of(path: str) -> list[str]:
    """The sources that a fit, a run log or a languages table names."""
    from shapleymix.files import is_table_name, read_json
    from shapleymix.tables.sheets import read_sheet

    if not is_table_name(path):
        document = read_json(path)
        found = document.get("sources") if isinstance(document, dict) else None
        return [str(name) for name in found] if isinstance(found, list) else []
    columns = read_sheet(path).columns
    listed = columns.get("language")
    return [name[2:] for name in columns if name[:2] == "p_"] if listed is None else [str(name) for name in listed]


class Bash(BashComplete):
    """As click's, for values with `=` and `:`: bash breaks words at them, and is told the piece behind the last one."""

    source_template = """\
%(complete_func)s() {
    local IFS=$'\\n' line
    COMPREPLY=()
    for line in $(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" %(complete_var)s=bash_complete "$1"); do
        case "$line" in
            file,*) compopt -o default 2>/dev/null ;;
            dir,*) compopt -o dirnames 2>/dev/null ;;
            plain,*[=:]) compopt -o nospace 2>/dev/null; COMPREPLY+=("${line#plain,}") ;;
            plain,*) COMPREPLY+=("${line#plain,}") ;;
        esac
    done
}

complete -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
        words = split_arg_string(line)
        return (words[1:], "") if line[-1:].isspace() or len(words) < 2 else (words[1:-1], words[-1])

    def format_completion(self, item: CompletionItem) -> str:
        incomplete = self.get_completion_args()[1]
        behind = max(incomplete.rfind("="), incomplete.rfind(":")) + 1
        return f"{item.type},{item.value[behind:]}"


class Fish(FishComplete):
    """As click's, for values with commas: an answer is split at its first one alone."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": Fish}


def script(shell: str, program: click.Command) -> str:
    """What a shell reads to complete the program."""
    made = SHELLS[shell](program, {}, "shapleymix", VARIABLE)
    return made.source_template % made.source_vars()


def prepare_completion() -> None:
    """Where a script asks for completions, let it have ours."""
    add_completion_class(Bash)
