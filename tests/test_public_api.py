"""The public surface: exactly these names, each with words, and nothing heavy before the first use."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import click
import pytest

import shapleymix as sm
from shapleymix.fitting.settings import CompareKeywords, FitKeywords, Settings
from shapleymix.mixing.demands import DemandKeywords, Demands
from shapleymix.planning.design import PlanKeywords

PUBLIC = {
    "Candidates",
    "Comparison",
    "DataError",
    "Design",
    "Downstream",
    "Evaluation",
    "Export",
    "Fit",
    "FitError",
    "Frontier",
    "Group",
    "InfeasibleError",
    "Inputs",
    "LAWS",
    "Languages",
    "Law",
    "LayoutError",
    "LearningCurve",
    "Mixture",
    "OutsideError",
    "Picture",
    "Prediction",
    "Report",
    "RunLog",
    "ShapleyMixError",
    "ShapleyMixWarning",
    "SolveError",
    "StoreError",
    "Terms",
    "TransferMatrix",
    "UsageError",
    "calibrate_scores",
    "compare",
    "compare_mixtures",
    "design",
    "evaluate",
    "exact_shapley",
    "export",
    "fit",
    "fitted",
    "frontier",
    "given",
    "learning_curve",
    "like",
    "optimize",
    "optimize_compute",
    "optimize_scales",
    "plot_agreement",
    "plot_fit",
    "plot_transfer",
    "plot_mixture",
    "plot_compare",
    "plot_downstream",
    "plot_learning_curve",
    "plot_frontier",
    "plot_design",
    "read_languages",
    "read_runs",
    "read_transfer",
    "report",
    "sampled_shapley",
    "scored_fit",
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

    for name in ("Comparison", "Design", "Evaluation", "Fit", "Mixture", "Prediction", "TransferMatrix"):
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


SOLVING = ("optimize", "optimize_scales", "optimize_compute", "frontier")
FIELDS = {
    **dict.fromkeys(SOLVING, (Demands, DemandKeywords)),
    "fit": (Settings, FitKeywords),
    "compare": (Settings, CompareKeywords),
    "design": (Demands, PlanKeywords),
    "learning_curve": (Settings, CompareKeywords),
}
"""Of each function with shared keywords: the dataclass that they become, and their names and types."""


@pytest.mark.parametrize("name", FIELDS)
def test_shared_keywords_are_shown_with_their_defaults(name):
    """optimize_scales and optimize_compute took one value, whose fields neither `help` nor an editor showed."""
    settings, keywords = FIELDS[name]
    parameters = inspect.signature(getattr(sm, name)).parameters
    assert not [known for known in parameters.values() if known.kind is inspect.Parameter.VAR_KEYWORD]
    defaults = {field.name: field.default for field in fields(settings) if field.name in keywords.__annotations__}
    assert {one: parameters[one].default for one in defaults} == defaults
    assert all(parameters[one].kind is inspect.Parameter.KEYWORD_ONLY for one in defaults)


@pytest.mark.parametrize("name", FIELDS)
def test_shared_keywords_are_named_and_typed_as_the_fields_that_they_become(name):
    """Type checkers read the one, editors and `help` the other."""
    settings, keywords = FIELDS[name]
    typed = get_type_hints(settings)
    assert {one: typed[one] for one in get_type_hints(keywords)} == get_type_hints(keywords)
    left_out = set(typed) - set(get_type_hints(keywords))
    of_other_questions = set(get_type_hints(DemandKeywords)) - set(get_type_hints(PlanKeywords))
    fitted_only = {"bootstrap", "purpose"}
    not_taken = {"design": of_other_questions, "compare": fitted_only, "learning_curve": fitted_only}
    assert left_out == not_taken.get(name, set())
    documented = " ".join(inspect.getdoc(one) or "" for one in (getattr(sm, name), sm.optimize))
    assert [one for one in keywords.__annotations__ if one not in documented] == []


@pytest.mark.parametrize("name", FIELDS)
def test_a_keyword_that_no_function_takes_is_refused_by_name(name):
    with pytest.raises(sm.UsageError, match=r"has no keyword 'capps'"):
        getattr(sm, name)(*["none.json", "1", "1", "en:rest"][: _needed(name)], capps=1)


COMMANDS = {
    "fit": (sm.fit, sm.read_transfer),
    "optimize": (sm.optimize, sm.optimize_compute, sm.frontier),
    "predict": (sm.Fit.predict, sm.compare_mixtures),
    "compare": (sm.compare, sm.read_transfer),
    "downstream": (sm.calibrate_scores,),
}
"""Commands, and the functions that do the same in Python."""

ON_THE_COMMAND_LINE_ONLY = {
    "output": "a result has `save`, and `to_polars` for a table",
    "force": "`save` has it",
    "json": "a result has `to_document`",
    "quiet": "Python's `warnings` are filtered by Python's own means",
    "verbose": "a result is there as a whole",
    "least_squares": "delta=inf",
    "project": "the files of a folder of commands",
    "frontier": "a function of its own, whose `between` it is",
    "learning_curve": "a function of its own",
    "like": "a function of its own",
    "downstream": "`scored_fit` makes the fit that is optimised",
    "task_weights": "the `weights` of a scored fit",
    "stages": "refused, with what can be asked instead",
    "reach": "`needed` of a learning curve",
    "law_file": "a law of one's own is imported before the fit is read",
}


def _flags(name: str) -> dict[str, bool]:
    """The words of a command's options as Python writes them, and whether each may be given several times."""
    command = importlib.import_module(f"shapleymix_cli.commands.{name}").command
    options = [known for known in command.params if isinstance(known, click.Option)]
    assert len(options) > 10
    return {max(one.opts, key=len).lstrip("-").replace("-", "_"): one.multiple for one in options}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_flag_is_a_keyword_of_the_same_word(name):
    """--fix was `fixed`, --compare-to `baselines`, --split `use_split`; a flag given many times is in the plural."""
    keywords = {one for function in (*COMMANDS[name], sm.read_runs) for one in inspect.signature(function).parameters}
    flags = _flags(name)
    alone = [flag for flag, many in flags.items() if flag not in keywords and not (many and f"{flag}s" in keywords)]
    assert sorted(set(alone) - set(ON_THE_COMMAND_LINE_ONLY)) == []
    assert not keywords & set(ON_THE_COMMAND_LINE_ONLY), "what has its keyword needs no reason"


def test_every_reason_for_a_flag_alone_is_still_needed():
    assert set(ON_THE_COMMAND_LINE_ONLY) <= {flag for name in COMMANDS for flag in _flags(name)}


def _needed(name: str) -> int:
    """How many arguments a function needs."""
    known = inspect.signature(getattr(sm, name)).parameters.values()
    return sum(one.default is inspect.Parameter.empty for one in known)


SNIPPET = Path(__file__).with_name("snippets") / "every_function.py"
WRONG = """
import shapleymix as sm
reveal_type(sm.optimize)
sm.optimize("fit.json", "1B", "100B", capps=1)
sm.optimize_scales("fit.json", "1B", ["1B", "100B"], kl="much")
sm.optimize_compute("fit.json", "1e22", level=[])
sm.frontier("fit.json", "1B", "100B", "en:rest", objektive="mean")
sm.fit("log.csv", "auto", bootstrapp=3)
sm.compare("log.csv", bootstrap=3)
sm.compare("log.csv", delta=[])
"""


def diagnostics(path: Path) -> list[dict[str, str]]:
    """What pyright says of a file, seen from a project that uses the package."""
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent)) or shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    root = str(Path(sm.__file__).parents[1])
    call = [pyright, "--pythonpath", sys.executable, "--outputjson", str(path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=300, cwd=root)
    return json.loads(done.stdout)["generalDiagnostics"]


def test_pyright_knows_the_type_of_every_public_function_and_of_what_it_returns():
    text = SNIPPET.read_text(encoding="utf-8")
    assert [name for name in sm.__all__ if f"sm.{name}" not in text] == [], "the snippet uses every name"
    assert diagnostics(SNIPPET) == []


def test_pyright_refuses_what_no_function_takes(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG, encoding="utf-8")
    found = [one for one in diagnostics(wrong) if one["severity"] == "error"]
    assert [one["range"]["start"]["line"] for one in found] == list(range(3, 10)), found


def test_editors_see_the_keywords():
    """jedi completes in IPython, notebooks and Vim; it is no dependency."""
    jedi = pytest.importorskip("jedi")
    for name, (_, keywords) in FIELDS.items():
        source = f"import shapleymix as sm\nsm.{name}("
        (found,) = jedi.Script(source).get_signatures(2, len(name) + 4)
        assert {known.name for known in found.params} >= set(keywords.__annotations__), found
