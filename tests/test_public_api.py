"""The public surface: exactly these names, each with words, and nothing heavy before the first use."""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import shapleymix as sm

PUBLIC = {
    "Candidates",
    "Comparison",
    "DataError",
    "Demands",
    "Evaluation",
    "Fit",
    "FitError",
    "Frontier",
    "Group",
    "InfeasibleError",
    "Inputs",
    "LAWS",
    "Languages",
    "Law",
    "Mixture",
    "OutsideError",
    "Prediction",
    "RunLog",
    "ShapleyMixError",
    "ShapleyMixWarning",
    "SolveError",
    "StoreError",
    "Terms",
    "TransferMatrix",
    "UsageError",
    "compare",
    "compare_mixtures",
    "evaluate",
    "exact_shapley",
    "fit",
    "fitted",
    "frontier",
    "given",
    "optimize",
    "optimize_compute",
    "optimize_scales",
    "read_languages",
    "read_runs",
    "read_transfer",
    "sampled_shapley",
    "shapley_values",
    "write_runs",
}


def test_the_names_are_these_and_no_others():
    assert set(dir(sm)) == PUBLIC | {"__version__"}
    assert set(sm.__all__) == PUBLIC == set(sm._HOME), "a star import and tab completion find every name"


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_name_is_there_and_explained(name):
    value = getattr(sm, name)
    if name == "LAWS":
        assert all(inspect.getdoc(law) for law in value.values())
        return
    assert callable(value)
    assert value.__doc__
    assert value.__module__.startswith("shapleymix.")
    assert getattr(sm, name) is value


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert sm.__version__ == version("shapleymix")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'optimise'"):
        sm.optimise  # noqa: B018


def loaded_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(' '.join(sorted(name for name in sys.modules if '.' not in name)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_after("import shapleymix")
    assert "shapleymix" in loaded
    assert not loaded & {"numpy", "scipy", "polars", "cvxpy", "torch", "click", "rich", "lightgbm"}


def test_fitting_loads_no_solver_and_no_trees():
    loaded = loaded_after("from shapleymix import fit, compare, evaluate, read_runs")
    assert {"numpy", "polars"} <= loaded
    assert not loaded & {"cvxpy", "torch", "click", "rich", "lightgbm"}


def test_results_are_frozen_and_can_be_saved():
    from dataclasses import FrozenInstanceError

    from shapleymix.records import Record

    for name in ("Comparison", "Evaluation", "Fit", "Mixture", "Prediction", "TransferMatrix"):
        kind = getattr(sm, name)
        assert issubclass(kind, Record)
        assert kind.__dataclass_params__.frozen
    status = sm.Evaluation(None, 0.9, 1, ())  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        status.rows = 2  # type: ignore[misc]


def test_type_checkers_read_what_the_interpreter_loads():
    """The imports for type checkers, and the homes for the interpreter, are one list."""
    tree = ast.parse(Path(sm.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (alias.asname, f"{node.module}.{alias.name}")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {(name, f"shapleymix.{home}.{name}") for name, home in sm._HOME.items()}


def test_every_keyword_of_optimize_is_written_out_and_its_default_is_that_of_the_demands():
    parameters = inspect.signature(sm.optimize).parameters
    keywords = {name: known for name, known in parameters.items() if known.kind is inspect.Parameter.KEYWORD_ONLY}
    assert list(parameters)[:3] == ["fit", "N", "D"]
    assert len(parameters) == 3 + len(keywords), "no **options"
    defaults = {field.name: field.default for field in fields(sm.Demands)}
    assert {name: known.default for name, known in keywords.items()} == defaults
    documented = inspect.getdoc(sm.optimize) or ""
    assert all(name in documented for name in keywords)


SNIPPET = """
import shapleymix as sm
reveal_type(sm.optimize)
reveal_type(sm.optimize("fit.json", "1B", "100B", caps={"en": 0.5}, groups=["en+de<=30%"]).objective)
sm.optimize("fit.json", "1B", "100B", capps=1)
"""


def test_pyright_sees_real_signatures_through_the_lazy_package(tmp_path):
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET, encoding="utf-8")
    root = str(Path(sm.__file__).parents[1])
    call = [pyright, "--pythonpath", sys.executable, "--outputjson", str(snippet)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=300, cwd=root)
    told = [found["message"] for found in json.loads(done.stdout)["generalDiagnostics"]]
    assert any('"sm.optimize" is "(fit: FitLike' in message and "weights: str" in message for message in told), told
    assert any('is "float"' in message for message in told), told
    assert any("capps" in message for message in told), told
