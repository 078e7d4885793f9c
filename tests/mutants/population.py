"""All mutants of the code under trial, and a seeded sample of them."""

from __future__ import annotations

import ast
import difflib
import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from operators import every_operator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CORE = ROOT / "shapleymix"
UNDER_TRIAL = (
    *sorted((CORE / "mixing").rglob("*.py")),
    *sorted((CORE / "game").glob("*.py")),
    *sorted((CORE / "laws").glob("*.py")),
    CORE / "fitting" / "scores.py",
    CORE / "fitting" / "comparison.py",
)


NUMBERS = 0.25
"""Part of the changed numbers that is drawn from: they are two of five mutants, and many only tune a search."""


@dataclass(frozen=True)
class Mutant:
    """One change to one file: the `occurrence`-th place where an operator applies, and the line that it begins in."""

    path: str
    operator: str
    occurrence: int
    line: int

    @cached_property
    def code(self) -> str:
        """The changed file."""
        made = mutate_code(self.original, every_operator()[self.operator], self.occurrence)
        assert made is not None, self
        return made

    @property
    def original(self) -> str:
        """The file as it was when it was first read: who edits it meanwhile disturbs nothing."""
        return text_of(self.path)

    @cached_property
    def change(self) -> tuple[str, str]:
        """The changed lines before and after, without their indentation."""
        marked = list(difflib.ndiff(self.original.splitlines(), self.code.splitlines()))
        gone, come = ([line[2:].strip() for line in marked if line[0] == sign] for sign in "-+")
        return " ".join(gone), " ".join(come)

    @property
    def label(self) -> str:
        """What a person reads of it."""
        before, after = self.change
        return f"{self.path}:{self.line} [{self.operator}]\n    - {before}\n    + {after}"


@cache
def text_of(path: str) -> str:
    """The text of a file, read once."""
    return (ROOT / path).read_text(encoding="utf-8")


def population() -> list[Mutant]:
    """Every mutant, in a fixed order."""
    found: list[Mutant] = []
    for path in UNDER_TRIAL:
        name = str(path.relative_to(ROOT))
        tree = list(ast_nodes(get_ast(text_of(name))))
        for label, operator in every_operator().items():
            places = [start for node in tree for start, _ in operator.mutation_positions(node)]
            found += [Mutant(name, label, index, line) for index, (line, _) in enumerate(places)]
    return found


def sampled(count: int, seed: int, only: str = "") -> list[Mutant]:
    """`count` mutants that differ from the original in more than words about types, drawn without replacement."""
    pool = [mutant for mutant in population() if only in mutant.path]
    draw = random.Random(seed)
    draw.shuffle(pool)
    pool = [mutant for mutant in pool if mutant.operator != "NumberReplacer" or draw.random() < NUMBERS]
    chosen: list[Mutant] = []
    for mutant in pool:
        if len(chosen) == count:
            break
        if changes_something(mutant):
            chosen.append(mutant)
    return chosen


def changes_something(mutant: Mutant) -> bool:
    """Whether the code that runs is different, and is code at all."""
    try:
        return _bare(mutant.code) != _bare(mutant.original)
    except SyntaxError:
        return False


def _bare(code: str) -> str:
    """The syntax tree without what decides no answer: annotations, imports for types, how arguments are passed, whether
    fields may be set later, and zip's check of lengths."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.arguments):
            node.args, node.posonlyargs, node.kwonlyargs = [*node.posonlyargs, *node.args, *node.kwonlyargs], [], []
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.test, node.body = ast.Constant(None), [ast.Pass()]
        elif isinstance(node, ast.Call):
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("strict", "frozen")]
    return ast.dump(tree)


@dataclass(frozen=True)
class Equivalent:
    """A known change that no test can tell from the original, and why; without `after`, any number of the line."""

    path: str
    before: str
    reason: str
    after: str = ""


Known = dict[tuple[str, str, str], str]


def known_equivalents() -> Known:
    """Reasons by file, line before and line after."""
    entries = tomllib.loads((HERE / "equivalent.toml").read_text(encoding="utf-8")).get("mutant", [])
    known = [Equivalent(**entry) for entry in entries]
    return {(each.path, each.before, each.after): each.reason for each in known}


def is_known(mutant: Mutant, known: Known) -> bool:
    """Whether there is a reason to pass over a mutant."""
    before, after = mutant.change
    any_number = mutant.operator == "NumberReplacer" and (mutant.path, before, "") in known
    return any_number or (mutant.path, before, after) in known


def stale(known: Known) -> Iterator[str]:
    """Entries whose line is no longer in the code."""
    for path, before, _ in known:
        if not (ROOT / path).is_file() or before not in text_of(path):
            yield f"{path}: {before}"
