"""The shape of the house: who may import whom, and how long a module or a function may be."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "shapleymix"
ORDER = ("errors", "files", "records", "tables", "game", "laws", "fitting", "mixing", "planning", "output")
FORBIDDEN = {"torch", "click", "rich", "shapleymix_cli", "shapleymix_irds", "shapleymix_sweep"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


CORE_MODULES = {module_name(path): path for path in sorted(CORE.rglob("*.py"))}
OTHERS = sorted(chain((ROOT / "cli").rglob("*.py"), (ROOT / "adapters").rglob("*.py")))
EVERY = [*CORE_MODULES.values(), *OTHERS]


def imports(path: Path, *, top_only: bool = False) -> set[str]:
    """Dotted names of everything that a file imports; `from a import b` gives both `a` and `a.b`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in tree.body if top_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_modules(path: Path) -> set[str]:
    """The core's modules that a file imports; a name from a package is the module if there is one."""
    return {name for name in imports(path) if name in CORE_MODULES} - {module_name(path)}


def layer(module: str) -> int:
    return ORDER.index(module.split(".")[1])


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_the_core_is_found():
    assert {"shapleymix", "shapleymix.errors", "shapleymix.laws.terms"} <= set(CORE_MODULES)
    assert imported_modules(CORE / "records.py") == {"shapleymix.errors", "shapleymix.files"}
    assert len(functions(CORE / "records.py")) > 10


@pytest.mark.parametrize("module", [name for name in CORE_MODULES if name != "shapleymix"])
def test_imports_go_upward_only(module):
    assert module.split(".")[1] in ORDER
    for name in imported_modules(CORE_MODULES[module]):
        if name != "shapleymix":
            assert layer(name) <= layer(module), f"{module} imports {name}"


def test_no_import_cycle():
    """Importing the root is importing every module's parent, which loads nothing: it is left out."""
    graph = {name: imported_modules(path) - {"shapleymix"} for name, path in CORE_MODULES.items()}
    for name, path in CORE_MODULES.items():
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
            if any(found.split(".")[0] == "cvxpy" for found in imports(path, top_only=top_only))
        }

    assert uses(top_only=False) <= {"shapleymix.mixing.engine.cone"}
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
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no docstring"
    assert "from __future__ import annotations" in text or not functions(path)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_is_long(path):
    long = {function.name: code_lines(function) for function in functions(path) if code_lines(function) > 60}
    assert not long


def test_at_least_half_of_the_functions_are_under_eight_lines():
    lengths = [code_lines(function) for path in CORE_MODULES.values() for function in functions(path)]
    assert sum(length < 8 for length in lengths) >= len(lengths) / 2
