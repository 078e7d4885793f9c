"""Every public function, every argument, every wrong kind of value: our errors, and no one else's."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shapleymix as sm

ODD: dict[str, Any] = {
    "object": object(),
    "number": 3,
    "complex": 1j,
    "truth": True,
    "function": len,
    "text": "no such thing",
    "bytes": b"en",
    "list of numbers": [3],
    "list of objects": [object()],
    "set": {0.5, 0.25},
    "mapping": {"zz": object()},
    "matrix": np.zeros((2, 3, 4)),
    "huge": 10**400,
    "nan": float("nan"),
    "negative": -1,
    "class": int,
}
NEVER_RIGHT = {"object", "complex"}
"""What no argument can be; only a truth value may be asked of them."""

Call = tuple[Callable[..., Any], dict[str, Any]]


@pytest.fixture(scope="module")
def calls(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Call]:
    """Right calls of every public function, by name."""
    log = sm.read_runs(fixtures / "multilingual5_runs.csv")
    fitted = sm.fit(log, "additive", bootstrap=4, folds=0, starts=1, threads=1)
    quick: dict[str, Any] = {"folds": 2, "starts": 1, "threads": 1}
    budget = {"N": 1e5, "D": 2e6}
    mixture = sm.optimize(fitted, **budget)
    goal = tmp_path_factory.mktemp("out")
    return {
        "fit": (sm.fit, {"log": log, "law": "chinchilla", "bootstrap": 0, **quick, "folds": 0}),
        "compare": (sm.compare, {"log": log, "laws": ["chinchilla"], **quick}),
        "evaluate": (sm.evaluate, {"fit": fitted, "log": log}),
        "predict": (fitted.predict, {"p": "uniform", **budget}),
        "parameters": (fitted.parameters, {}),
        "load": (sm.Fit.load, {"path": "none.json"}),
        "save": (mixture.save, {"path": goal / "mix.json", "force": True}),
        "optimize": (sm.optimize, {"fit": fitted, **budget}),
        "optimize_scales": (sm.optimize_scales, {"fit": fitted, "N": 1e5, "D": 2e6}),
        "optimize_compute": (sm.optimize_compute, {"fit": fitted, "flops": "1e12"}),
        "compare_mixtures": (sm.compare_mixtures, {"fit": fitted, "mixtures": ["uniform"], **budget}),
        "read_runs": (sm.read_runs, {"tables": fixtures / "multilingual5_runs.csv"}),
        "write_runs": (sm.write_runs, {"log": log, "path": goal / "log.csv", "force": True}),
        "read_languages": (sm.read_languages, {"table": fixtures / "multilingual5_languages.csv"}),
        "read_transfer": (sm.read_transfer, {"table": "none.csv"}),
        "shapley_values": (sm.shapley_values, {"log": fixtures / "multilingual5_coalitions.csv"}),
        "Group": (sm.Group, {"sources": ("en", "de"), "upper": 0.5}),
    }


NAMES = [
    *("fit", "compare", "evaluate", "predict", "parameters", "load", "save", "optimize", "optimize_scales"),
    *("optimize_compute", "compare_mixtures", "read_runs", "write_runs", "read_languages", "read_transfer"),
    *("shapley_values", "Group"),
]
UNREAD = {"load", "read_transfer"}
"""Those of which the right call names a file that is not there."""


def outcome(call: Callable[..., Any], arguments: dict[str, Any]) -> str:
    """How a call ends: `ours`, `done`, or the error that a user should not see."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sm.ShapleyMixWarning)
            call(**arguments)
    except sm.ShapleyMixError:
        return "ours"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:150]
    return "done"


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_value_of_any_argument_raises_our_errors_only(calls, name, monkeypatch, tmp_path):
    """Some thirty of these were TypeError, AttributeError, OverflowError, or accepted in silence."""
    monkeypatch.chdir(tmp_path)
    call, right = calls[name]
    foreign: list[str] = []
    for argument, known in inspect.signature(call).parameters.items():
        truth = isinstance(known.default, bool)
        for kind, value in ODD.items():
            if truth or argument == "progress":
                continue
            found = outcome(call, right | {argument: value})
            silent = found == "done" and kind in NEVER_RIGHT
            if found not in ("ours", "done") or silent:
                foreign.append(f"{argument} = {kind}: {found}")
    assert not foreign, f"{len(foreign)} of {name}:\n" + "\n".join(foreign)


@pytest.mark.parametrize("made", [3, None, [3], True])
def test_a_function_of_constraints_that_returns_none_is_named(calls, made):
    """A function that returned a number was a TypeError of cvxpy."""
    call, right = calls["optimize"]
    with pytest.raises(sm.UsageError, match="a function of constraints returned"):
        call(**right, constraints=[lambda p: made])


def test_fits_and_logs_may_be_paths_everywhere(calls, tmp_path):
    """evaluate and compare_mixtures knew no paths: 'str' object has no attribute 'sources'."""
    fitted, log = calls["evaluate"][1]["fit"], calls["evaluate"][1]["log"]
    fitted.save(tmp_path / "fit.json")
    sm.write_runs(log, tmp_path / "log.csv")
    saved = str(tmp_path / "fit.json")
    again = sm.evaluate(saved, tmp_path / "log.csv").scores
    assert again.mean == pytest.approx(sm.evaluate(fitted, log).scores.mean)
    assert again.targets == fitted.targets
    assert sm.compare_mixtures(saved, ["uniform"], 1e5, "2M") == sm.compare_mixtures(fitted, ["uniform"], 1e5, 2e6)


def test_right_calls_are_right(calls):
    """Else the test above would prove nothing."""
    found = {name: outcome(*calls[name]) for name in NAMES if name not in UNREAD}
    assert found == dict.fromkeys(found, "done")
