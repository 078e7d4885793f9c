"""The shape of the house: imports go one way, heavy ones are late, names are public once, pages lead somewhere."""

import ast
import inspect
import re
import shlex
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from cli_tools import every_command

import shapleymix as sm

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "shapleymix": ROOT, "shapleymix_io": ROOT / "adapters", "shapleymix_irds": ROOT / "adapters",
    "shapleymix_sweep": ROOT / "adapters", "shapleymix_view": ROOT / "cli", "shapleymix_cli": ROOT / "cli",
}  # fmt: skip
WINGS = [
    *("errors", "files", "display", "records", "statistics", "tables"),
    *("game", "laws", "fitting", "mixing", "scores", "planning", "__main__"),
]
"""In the order in which data flows, as `shapleymix/__init__.py` tells it."""
OURS = {name: {name, "shapleymix"} for name in PACKAGES} | {"shapleymix_cli": set(PACKAGES)}
OUTSIDE = {"ecosystem", ".venv", ".venv-ecosystem", ".pytest_cache"}
PAGES = [path for path in sorted(ROOT.rglob("*.md")) if not OUTSIDE & set(path.parts)]
GENERATED = {"cli/docs/reference.md", "shapleymix/docs/reference.md"}
MOST_WORDS = 15_000


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    found = {}
    for package, home in PACKAGES.items():
        for path in sorted((home / package).rglob("*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imported(name: str, *, late: bool) -> frozenset[str]:
    """What a module imports when it is loaded, and (`late`) what its functions and type checkers import."""
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    nodes = ast.walk(tree) if late else tree.body
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def test_the_core_imports_upwards_only_and_adapters_know_it_alone() -> None:
    heavy = {"torch", "click", "rich", "matplotlib", *PACKAGES} - {"shapleymix"}
    for name in modules():
        tops = {other.split(".")[0] for other in imported(name, late=True)}
        if not name.startswith("shapleymix."):
            assert tops & set(PACKAGES) <= OURS[name.split(".")[0]], name
            continue
        assert not tops & heavy, name
        for other in imported(name, late=False):
            if other.startswith("shapleymix.") and other in modules():
                assert WINGS.index(other.split(".")[1]) <= WINGS.index(name.split(".")[1]), f"{name} imports {other}"


def test_no_module_needs_itself() -> None:
    """Nor do its functions or its types."""
    graph = {
        name: {other for other in imported(name, late=True) if other in modules() and not name.startswith(other)}
        for name in modules()
    }
    list(TopologicalSorter(graph).static_order())


def test_what_is_large_is_imported_late() -> None:
    loaded = {name for name in modules() if any(one.split(".")[0] == "cvxpy" for one in imported(name, late=False))}
    assert not loaded
    code = (
        "import sys, shapleymix as sm; sm.fit; sm.optimize; "
        "sys.exit(any(one in sys.modules for one in ('cvxpy', 'torch')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
    code = (  # a task of an array starts in half a second
        "import sys, shapleymix_cli.sweeps, shapleymix_sweep.running; "
        "sys.exit(any(one in sys.modules for one in ('scipy', 'polars')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_public_names_are_documented() -> None:
    for name in sm.__all__:
        found = getattr(sm, name)
        assert name == "LAWS" or inspect.getdoc(found), name


def test_functions_that_people_call_tell_every_keyword() -> None:
    for name in sm.__all__:
        found = getattr(sm, name)
        if inspect.isfunction(found):
            text = inspect.getdoc(found) or ""
            taken = set(inspect.signature(found).parameters) - {"args", "kwargs", "keywords", "bounds"}
            lacking = [one for one in taken if not re.search(rf"\b{one}\b", text)]
            assert len(taken) < 2 or not lacking or "see `problem`" in text, f"{name}: {lacking}"


def test_pages_are_short() -> None:
    pages = [path for path in PAGES if str(path.relative_to(ROOT)) not in GENERATED]
    assert sum(len(re.findall(r"\S*\w\S*", path.read_text(encoding="utf-8"))) for path in pages) <= MOST_WORDS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", path.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), flags=re.M)
            known = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in known, target


def typed() -> list[tuple[str, list[str]]]:
    """Every `shapleymix` command of the pages, as words."""
    found = []
    for path in PAGES:
        for block in re.findall(r"^```(?:console|sh)\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                line = line.removeprefix("$ ").partition(" #")[0].strip()
                if re.match(r"shapleymix \w", line) and "$" not in line:
                    found.append((f"{path.relative_to(ROOT)}: {line[:60]}", shlex.split(line)[1:]))
    return found


@pytest.mark.parametrize("words", [words for _, words in typed()], ids=[place for place, _ in typed()])
def test_commands_of_the_pages_parse(words: list[str]) -> None:
    known = every_command()
    size = next((size for size in (2, 1) if " ".join(words[:size]) in known), None)
    assert size is not None, words
    made, rest = known[" ".join(words[:size])], words[size:]
    rest = rest[: rest.index(">")] if ">" in rest else rest
    made.make_context(words[0], [word for word in rest if word != "..."], resilient_parsing=False)
