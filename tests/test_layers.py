"""The shape of the house: the maps in the texts are those of the code, and an import goes upward."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "shapleymix"
FORBIDDEN = {"torch", "click", "rich", "shapleymix_cli", "shapleymix_irds", "shapleymix_sweep"}


NOT_YET = {
    "shapleymix.mixing.engine.search imports shapleymix.mixing.mixtures",
}
PACKAGES = {
    "shapleymix": CORE,
    "shapleymix_cli": ROOT / "cli/shapleymix_cli",
    "shapleymix_irds": ROOT / "adapters/shapleymix_irds",
}

BY_NAME = {"shapleymix.display": "shapleymix.plotting.pictures"}
"""What a module knows of one below it: that a result's `plot` returns a picture, for type checkers alone."""


def module_name(path: Path) -> str:
    """The dotted name under which a file of the three packages is imported."""
    root = next((folder.parent for folder in PACKAGES.values() if path.is_relative_to(folder)), ROOT / "adapters")
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree, made once: hundreds of tests look at the same files."""
    return ast.parse(path.read_text(encoding="utf-8"))


def listed(path: Path) -> list[str]:
    """The names in a package's map: lines of its text such as `  names       ordered labels`, in their order."""
    text = ast.get_docstring(parsed(path)) or ""
    return re.findall(r"^ {2}(\w+) {2,}\S", text, flags=re.MULTILINE)


CORE_MODULES = {module_name(path): path for path in sorted(CORE.rglob("*.py"))}
OTHERS = sorted(chain((ROOT / "cli").rglob("*.py"), (ROOT / "adapters").rglob("*.py")))
EVERY = [*CORE_MODULES.values(), *OTHERS]
MODULES = {module_name(path): path for path in EVERY}
INITS = {name: path for name, path in MODULES.items() if path.name == "__init__.py"}
ORDER = listed(CORE / "__init__.py")


@cache
def imports(path: Path, *, top_only: bool = False, types: bool = True) -> frozenset[str]:
    """Dotted names of everything that a file imports; `from a import b` gives both `a` and `a.b`.

    Without `types`, what is imported for type checkers alone does not count.
    """
    tree = parsed(path)
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in tree.body if top_only else ast.walk(tree):
        if node in for_types and not types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def imported_modules(path: Path, *, loading: bool = False) -> frozenset[str]:
    """The modules of the three packages that a file imports (only those that it needs to be loaded, on demand)."""
    own = module_name(path)
    found = {name for name in imports(path, top_only=loading, types=not loading) if name in MODULES}
    return frozenset(name for name in found if name not in (own, BY_NAME.get(own)))


def children(package: str) -> set[str]:
    """The modules and packages directly inside of a package."""
    return {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == package} - {"__main__"}


def laws_listed() -> set[str]:
    """Modules of the laws: `LAWS` is their list, so that a law is one file and one line."""
    tree = parsed(CORE / "laws/__init__.py")
    froms = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.rpartition(".")[2] for name in froms if name.startswith("shapleymix.laws.")}


def lower_siblings(package: str) -> list[str]:
    """`a imports b` for each import inside of a package that goes against the order of its map.

    What a function imports when it runs is left to `test_no_import_cycle`.
    """
    place = {name: index for index, name in enumerate(listed(INITS[package]))}
    depth = package.count(".") + 1
    found = set()
    for name, path in MODULES.items():
        inside = [other for other in imported_modules(path, loading=True) if other.startswith(f"{package}.")]
        own = place.get(name.split(".")[depth], -1) if name.startswith(f"{package}.") else -1
        lower = [other for other in inside if own >= 0 and place.get(other.split(".")[depth], -1) > own]
        found |= {f"{name} imports {other}" for other in lower}
    return sorted(found)


def layer(module: str) -> int:
    return ORDER.index(module.split(".")[1])


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = parsed(path)
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_the_core_is_found():
    assert {"shapleymix", "shapleymix.errors", "shapleymix.laws.terms"} <= set(CORE_MODULES)
    assert imported_modules(CORE / "records.py") == {
        f"shapleymix.{name}" for name in ("errors", "fields", "files", "display")
    }
    assert len(functions(CORE / "records.py")) > 10


@pytest.mark.parametrize("package", INITS)
def test_a_package_lists_its_modules_in_reading_order(package):
    """Every module is in the map of its package, nothing else is, and each imports from those above it only."""
    names = listed(INITS[package])
    assert len(names) == len(set(names))
    optional = laws_listed() if package == "shapleymix.laws" else set()
    assert set(names) | optional == children(package)
    assert set(lower_siblings(package)) <= NOT_YET


def test_contributing_draws_the_same_map():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^\| `([\w/]+)` \|", text, flags=re.MULTILINE)
    assert drawn == [*(f"shapleymix/{wing}" for wing in ORDER), "cli/shapleymix_cli", "adapters/shapleymix_irds"]
    mentioned = re.findall(r"`((?:shapleymix|cli|adapters|tests)/[\w/.]+)`", text)
    assert [name for name in mentioned if not (ROOT / name).exists() and not (ROOT / f"{name}.py").is_file()] == []


@pytest.mark.parametrize("module", [name for name in CORE_MODULES if name != "shapleymix"])
def test_imports_go_upward_only(module):
    assert module.split(".")[1] in ORDER
    for name in imported_modules(CORE_MODULES[module]):
        if name != "shapleymix":
            assert layer(name) <= layer(module), f"{module} imports {name}"


def test_the_command_line_and_the_adapters_know_the_core_and_not_each_other():
    for path in OTHERS:
        own = "shapleymix_cli" if path.is_relative_to(ROOT / "cli") else "shapleymix_irds"
        roots = {name.split(".")[0] for name in imported_modules(path)}
        assert roots <= {own, "shapleymix"}, path


def test_no_command_imports_another():
    folder = PACKAGES["shapleymix_cli"] / "commands"
    for path in folder.glob("*.py"):
        assert not {name for name in imported_modules(path) if name.startswith("shapleymix_cli.commands")}, path


MOST_ANY = {"shapleymix": 7, "shapleymix_cli": 5}
"""Lines of code that use `Any`, imports too: what they stand for has no type, or one that click or cvxpy hides."""


@pytest.mark.parametrize("package", MOST_ANY)
def test_hardly_anything_is_any(package):
    """290 lines used `Any`, behind which a wrong keyword or a missing field could hide."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(PACKAGES[package].rglob("*.py"))
        for line in lines_with_any(path)
    ]
    assert len(found) <= MOST_ANY[package], found


def lines_with_any(path: Path) -> list[int]:
    """Lines on which the code, not its words, says `Any`."""
    nodes = ast.walk(parsed(path))
    named = (node for node in nodes if isinstance(node, (ast.Name, ast.Attribute, ast.alias)))
    return sorted(
        {one.lineno for one in named if "Any" in (getattr(one, field, None) for field in ("id", "attr", "name"))}
    )


def test_no_import_cycle():
    """Importing a package is importing every module's parent, which loads nothing: it is left out."""
    graph = {name: imported_modules(path) - set(PACKAGES) for name, path in MODULES.items()}
    for name, path in MODULES.items():
        if path.name != "__init__.py":
            graph[name] -= {name.rpartition(".")[0]}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", CORE_MODULES)
def test_the_core_knows_no_screen_no_torch_and_nobody_below(module):
    roots = {name.split(".")[0] for name in imports(CORE_MODULES[module])}
    assert not roots & FORBIDDEN


def test_one_file_imports_cvxpy_and_only_when_asked():
    def uses(top_only: bool) -> set[str]:
        return {
            name
            for name, path in CORE_MODULES.items()
            if any(found.split(".")[0] == "cvxpy" for found in imports(path, top_only=top_only, types=False))
        }

    assert uses(top_only=False) <= {"shapleymix.mixing.engine.cone"}
    assert uses(top_only=True) == set()


def test_matplotlib_is_for_figures_alone_and_only_when_one_is_drawn():
    def uses(top_only: bool) -> set[str]:
        found = {name: imports(path, top_only=top_only, types=False) for name, path in MODULES.items()}
        return {name for name, used in found.items() if "matplotlib" in {one.split(".")[0] for one in used}}

    assert uses(top_only=False)
    assert all(name.startswith("shapleymix.plotting.") for name in uses(top_only=False))
    assert uses(top_only=True) == set()


def test_polars_is_for_tables_alone():
    found = {name for name, path in CORE_MODULES.items() if "polars" in imports(path)}
    assert found
    assert all(name.startswith("shapleymix.tables") for name in found)


def test_a_package_reaches_for_public_names_of_others():
    private = [
        f"{module}: {name}"
        for module, path in CORE_MODULES.items()
        for name in imports(path)
        if name.startswith("shapleymix.") and name.rpartition(".")[2].startswith("_")
    ]
    assert not private


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_say_what_they_are(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") < 350
    tree = parsed(path)
    assert ast.get_docstring(tree), "no docstring"
    assert "from __future__ import annotations" in text or not functions(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_long(path):
    long = {function.name: code_lines(function) for function in functions(path) if code_lines(function) > 60}
    assert not long


def test_at_least_half_of_the_functions_are_under_eight_lines():
    lengths = [code_lines(function) for path in CORE_MODULES.values() for function in functions(path)]
    assert sum(length < 8 for length in lengths) >= len(lengths) / 2
