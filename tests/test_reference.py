"""The references are what the program says of itself."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest
import reference_names
from reference_commands import ENVIRONMENT, entries, reference
from shapleymix_cli.main import commands
from write_reference import PAGES

import shapleymix as sm

ROOT = Path(__file__).parents[1]
NOT_THE_USERS = {
    "BLACK_BOXES": "a name of Python",
    "COMP_LINE": "between bash and a completion script",
    "COMP_POINT": "between bash and a completion script",
}
READ_BY_OTHERS = {"COLUMNS": "Python's shutil.get_terminal_size"}


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_in_step(name: str) -> None:
    path = ROOT / name
    assert path.is_file(), f"{name} is not there: run `make reference`"
    shown, made = path.read_text(encoding="utf-8").splitlines(), PAGES[name]().splitlines()
    assert shown == made, f"{name} is out of step: run `make reference`"


@pytest.fixture(scope="module")
def page() -> str:
    return reference()


@pytest.fixture(scope="module")
def names() -> str:
    return reference_names.reference()


def leaves(parent: click.Context) -> dict[str, click.Context]:
    """Every command that runs, by its words."""
    assert isinstance(parent.command, click.Group)
    found: dict[str, click.Context] = {}
    for name in parent.command.list_commands(parent):
        one = parent.command.get_command(parent, name)
        assert one is not None
        context = one.make_context(name, [], parent, resilient_parsing=True)
        found |= leaves(context) if isinstance(one, click.Group) else {context.command_path: context}
    return found


TOP = commands.make_context("shapleymix", [], resilient_parsing=True)


@pytest.mark.parametrize(("words", "context"), leaves(TOP).items())
def test_every_option_of_every_command_is_there(page: str, words: str, context: click.Context) -> None:
    """In its own part, or in a part that all commands with such an option are sent to."""
    part = re.split(r"\n#+ ", page.partition(f"# {words}\n")[2])[0]
    sent = re.findall(r"\[([^]]+)\]\(#[^)]+\)", part.rpartition("Besides: ")[2])
    parts = [part, *(page.partition(f"## {title}\n")[2].partition("\n## ")[0] for title in sent)]
    written = [re.findall(r"^\| `(.*?)` \|", one, flags=re.M) for one in parts]
    flags = {flag.replace("\\|", "|") for one in written for flag in one}
    assert {entry.flags for listed in entries(context).values() for entry in listed} <= flags


@pytest.mark.parametrize("name", [name for name in sm.__all__ if name != "LAWS"])
def test_every_name_is_there_with_all_that_its_docstring_says(names: str, name: str) -> None:
    """All words, which the reference sets in tables."""
    (part,) = re.findall(rf"^### {name}\n(.*?)(?=^##|\Z)", names, flags=re.M | re.S)
    said = re.sub(r"^(Parameters|Attributes|Returns)$", "", inspect.getdoc(getattr(sm, name)) or "", flags=re.M)
    assert {*re.findall(r"\w+", said)} <= {*re.findall(r"\w+", part)}


def test_nobody_is_sent_to_a_name_that_is_not_there(names: str) -> None:
    """`fit` and `compare` sent readers to `Settings`, which is not public: what `folds` means stood nowhere."""
    sent = {*re.findall(r"\b[Ss]ee `([A-Z]\w*)", names)}
    headed = {*re.findall(r"^### (\w+)$", names, flags=re.M)}
    raised = {name for row in re.findall(r"^Raises (`.*?`):", names, flags=re.M) for name in re.findall(r"\w+", row)}
    assert "Law" in sent
    assert (sent | raised) - headed == set()


@pytest.mark.parametrize("name", [name for name in sm.__all__ if inspect.isfunction(getattr(sm, name))])
def test_every_keyword_is_told_or_is_that_of_another_function(names: str, name: str) -> None:
    """What `unit` of `read_runs` and `prior` of `fit` mean stood nowhere."""
    (part,) = re.findall(rf"^### {name}\n(.*?)(?=^##|\Z)", names, flags=re.M | re.S)
    told = {one for row in re.findall(r"^\| (`.*?`) \|", part, flags=re.M) for one in re.findall(r"\w+", row)}
    same = set(inspect.signature(sm.optimize).parameters) if "s for `optimize`" in part else set()
    taken = {
        one.name for one in inspect.signature(getattr(sm, name)).parameters.values() if one.kind != one.VAR_KEYWORD
    }
    if len(taken) > 1:  # one alone is what the first sentence is of
        assert taken - told - same == set()


def test_every_law_is_there(names: str) -> None:
    assert {*re.findall(r"`([\w-]+)`", names.partition("### LAWS")[2].partition("###")[0])} == set(sm.LAWS)


def test_the_environment_is_what_the_program_reads() -> None:
    """Words such as NO_COLOR in the code are names of variables, and each is on the page."""
    files = [path for folder in ("shapleymix", "cli") for path in (ROOT / folder).rglob("*.py")]
    word = re.compile(r"""["']([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)["']""")
    named = {name for path in files for name in word.findall(path.read_text(encoding="utf-8"))}
    assert named - set(NOT_THE_USERS) == set(ENVIRONMENT) - set(READ_BY_OTHERS)
