"""The public surface: exactly these names, each with words, and nothing heavy before the first use."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import shapleymix as sm

PUBLIC = {
    "Comparison",
    "DataError",
    "Evaluation",
    "Fit",
    "FitError",
    "InfeasibleError",
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
    "TransferMatrix",
    "UsageError",
    "compare",
    "evaluate",
    "exact_shapley",
    "fit",
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
    assert set(sm.__all__) == PUBLIC


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
