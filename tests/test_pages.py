"""Every page of the repository: links lead somewhere, code parses, commands parse, outputs say where they are from."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import write_reference
from shapleymix_cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
FOLDERS = ("shapleymix", "cli", "adapters", "fixtures", "tests")
PAGES = sorted(chain(ROOT.glob("*.md"), *((ROOT / folder).rglob("*.md") for folder in FOLDERS)))
ADAPTERS = [page for page in PAGES if page.is_relative_to(ROOT / "adapters")]

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^]\[]*(?:\[[^]]*\][^]\[]*)*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.MULTILINE)
PRINTED = re.compile(r"<!-- printed by: (?P<by>.+?)(?:, (?P<day>\d{4}-\d{2}-\d{2}))? -->\s*\Z")
PLAIN = ("console", "sh", "")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its blocks of code, and without code within its lines."""
    return re.sub(r"(`+).+?\1", "code", BLOCK.sub("", text_of(page)))


def blocks(page: Path, *kinds: str) -> list[str]:
    return [code for _, kind, code in BLOCK.findall(text_of(page)) if kind in kinds]


def anchors(page: Path) -> set[str]:
    """What headings are called in addresses, as GitHub does it; a heading that comes again has a number behind it."""
    found: dict[str, int] = {}
    for title in HEADING.findall(BLOCK.sub("", text_of(page))):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", shown).strip().lower().replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    own = re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text_of(page))
    return {f"{slug}-{place}" if place else slug for slug, last in found.items() for place in range(last + 1)} | {*own}


def test_pages_are_found() -> None:
    assert {"README.md", "adapters/README.md", "adapters/docs/megatron.md"} <= set(map(name_of, PAGES))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or not goal.is_relative_to(ROOT) or (anchor and anchor not in anchors(goal)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    """Of code, data and tests; a name without a folder may be the reader's own."""
    named = re.findall(r"`(?:python3? )?((?:tests|fixtures|adapters|cli|shapleymix)/[\w./-]+\.\w+)", text_of(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_parses(page: Path) -> None:
    for code in blocks(page, "python"):
        ast.parse(code)
    for code in blocks(page, "toml"):
        tomllib.loads(code)


def commands(*pages: Path) -> Iterator[list[str]]:
    """The words of each command that pages show in a terminal or a script, without comments."""
    for code in chain.from_iterable(blocks(page, *PLAIN) for page in pages):
        for line in code.replace("\\\n", " ").splitlines():
            start = line.strip().removeprefix("$ ")
            if re.match(r"(shapleymix|shapleymix-irds|python|torchrun|srun|adapters/irds_train\.py)\s", start):
                yield filled(shlex.split(start, comments=True))


def filled(words: list[str]) -> list[str]:
    """A number for each of the shell's variables; what a function is given may be options, and is left out."""
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before.startswith("-") or not re.fullmatch(r"\$\d", word)
    ]
    return [re.sub(r"\$\{?\w+\}?", "1", word) for word in kept]


def calls(program: str, *pages: Path) -> dict[str, list[str]]:
    """What a program is given, wherever it stands in a command; each once."""
    found = [words[words.index(program) + 1 :] for words in commands(*pages) if program in words]
    return {" ".join(words): words for words in found}


WRITTEN = [page for page in PAGES if name_of(page) not in write_reference.PAGES]  # examples of help have their own test


@pytest.mark.parametrize("words", calls("shapleymix", *WRITTEN).values(), ids=" ".join)
def test_commands_parse(words: list[str]) -> None:
    name, *rest = itertools.takewhile(lambda word: word not in ("|", ">"), words)
    assert name in COMMANDS
    command = importlib.import_module(f"shapleymix_cli.commands.{name}").command
    context = command.make_context(name, list(rest))
    if inner := getattr(command, "commands", None):
        inner[rest[0]].make_context(rest[0], rest[1:], context)


@pytest.mark.parametrize("words", calls("shapleymix-irds", *PAGES).values(), ids=" ".join)
def test_commands_of_the_adapter_parse(words: list[str]) -> None:
    pytest.importorskip("torch")
    from shapleymix_irds.commands import group

    name, *rest = words
    group().commands[name].make_context(name, rest)


@pytest.mark.parametrize("page", ADAPTERS, ids=name_of)
def test_outputs_say_where_they_are_from(page: Path) -> None:
    """A test that runs, or a command and the day on which it printed them."""
    text = text_of(page)
    shown = [found for found in BLOCK.finditer(text) if found[2] == "console"]
    for found in shown:
        told = PRINTED.search(text[: found.start()])
        assert told, f"say what printed: {found[3][:60]}"
        assert told["day"] or (ROOT / told["by"]).is_file()
