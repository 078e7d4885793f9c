"""Docstrings have one layout, NumPy's: `name : type` on a line of its own, then an indented description."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for folder in ("shapleymix", "cli", "adapters") for path in (ROOT / folder).rglob("*.py"))
LISTS = ("Parameters", "Attributes", "Returns", "Raises")
ENTRY = {
    "Parameters": r"\*{0,2}\w+(, \w+)* : \S.*",
    "Attributes": r"(\*_)?\w+(, \w+)* : \S.*",
    "Returns": r"\S.*[^.]",
    "Raises": r"[A-Z]\w+(, [A-Z]\w+)*",
}
OTHER_LAYOUT = re.compile(
    r"^\s*(:param |:returns?:|:raises |(Args|Arguments|Returns|Raises|Attributes|Yields):\s*$)", re.M
)


def faults(text: str) -> list[str]:
    """What breaks the layout in a docstring (as `ast.get_docstring` cleans it)."""
    lines = text.split("\n")
    found = [f"{match.group(0).strip()} is of another layout" for match in OTHER_LAYOUT.finditer(text)]
    heads = [place for place, line in enumerate(lines[1:]) if re.fullmatch(r"-{3,}", line)]
    for place, end in pairwise([*heads, len(lines) + 1]):
        name = lines[place]
        if name not in LISTS or len(lines[place + 1]) != len(name):
            found.append(f"{name!r} is no section, or its rule is of another length")
        else:
            found += _broken_entries(name, [line for line in lines[place + 2 : end - 1] if line.strip()])
    return found


def _broken_entries(section: str, lines: list[str]) -> list[str]:
    """Entries of a section that are not of its form, or that nothing describes."""
    starts = [place for place, line in enumerate(lines) if not line.startswith("    ")]
    found = [] if starts[:1] == [0] else [f"{section} begins without an entry"]
    for place, following in pairwise([*starts, len(lines)]):
        if not re.fullmatch(ENTRY[section], lines[place]):
            found.append(f"{section}: {lines[place]!r} is not of the form `name : type`")
        if following == place + 1:
            found.append(f"{section}: {lines[place]!r} has no description below it")
    return found


def documented(path: Path) -> list[tuple[str, str]]:
    """(name, docstring) of the module, and of each class and function in it."""
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    texts = [(getattr(node, "name", "the module"), ast.get_docstring(node)) for node in nodes]
    return [(name, text) for name, text in texts if text]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_have_one_layout(path):
    assert [f"{name}: {fault}" for name, text in documented(path) for fault in faults(text)] == []


HEAD = "Do it.\n\nParameters\n----------\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "p : the mixture.",
        HEAD + "p\n    The mixture.",
        HEAD + "p : array (M,)",
        HEAD + "p : array (M,)\nq : array (M,)\n    Mixtures.",
        HEAD.replace("----------", "----") + "p : array\n    The mixture.",
        HEAD.replace("Parameters", "Options---") + "p : array\n    The mixture.",
        "Do it.\n\nRaises\n------\nIf it cannot be done.\n    So it is.",
        "Do it.\n\nReturns\n-------\narray (M,)",
        "Do it.\n\nArgs:\n    p: the mixture.",
        "Do it.\n\n:param p: the mixture",
    ],
)
def test_other_layouts_are_noticed(text):
    assert faults(text)


def test_the_layout_itself_passes():
    assert not faults(
        HEAD + "p, q : array (M,)\n    Mixtures.\n\nReturns\n-------\nfloat\n    The distance.\n\nRaises\n------\n"
        "DataError\n    If they differ in length."
    )
