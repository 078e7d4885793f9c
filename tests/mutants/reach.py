"""Which tests run a function, and what each test costs: measured once, on the unchanged code.

A function is known by its file and its first line, as code objects say it. What runs while a file is collected, or in
a fixture that several tests share, counts for each of these tests.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from forks import allow

Function = tuple[str, int]

GRACE, SLOWER = 10.0, 5.0
"""Seconds of CPU that any test may take, and how many times its own on the unchanged code on top."""


@dataclass(frozen=True)
class Test:
    """A test, the CPU seconds that it takes, and the functions that it runs; or may run, at import."""

    __test__ = False

    name: str
    seconds: float
    functions: frozenset[Function]
    imported: frozenset[Function]

    @property
    def file(self) -> str:
        """The file that it is in."""
        return self.name.partition("::")[0]


class Watch:
    """A plugin of pytest that writes down what every test of a file runs, and for how long."""

    def __init__(self, copy: Path, under_trial: tuple[str, ...], report: Path) -> None:
        self.files = {str(copy / path): path for path in under_trial}
        self.report = report
        self.seen: set[tuple[str, int]] = set()
        self.imported: list[Function] = []
        self.fixtures: dict[str, list[Function]] = defaultdict(list)
        self.tests: list[dict[str, Any]] = []
        sys.settrace(self._called)
        threading.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        code: CodeType = frame.f_code
        if code.co_filename in self.files:
            self.seen.add((code.co_filename, code.co_firstlineno))

    def _taken(self) -> list[Function]:
        """What was seen since this was last asked."""
        found = sorted((self.files[path], line) for path, line in self.seen)
        self.seen.clear()
        return found

    def pytest_collection_finish(self) -> None:
        """What ran at import."""
        self.imported = self._taken()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        """A fixture for several tests is made for the first of them; all get what it ran."""
        before = set(self.seen)
        self.seen.clear()
        made = yield
        if fixturedef.scope != "function":
            self.fixtures[fixturedef.argname] = sorted((self.files[path], line) for path, line in self.seen)
        self.seen |= before
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """One test, set up and torn down."""
        began = time.process_time()
        done = yield
        names = getattr(item, "fixturenames", ())
        ran = {*self._taken(), *(each for name in names for each in self.fixtures.get(name, ()))}
        seconds = time.process_time() - began
        self.tests.append({"name": item.nodeid, "seconds": seconds, "functions": sorted(ran)})
        return done

    def pytest_sessionfinish(self) -> None:
        """Leave the report."""
        sys.settrace(None)
        self.report.write_text(json.dumps({"imported": self.imported, "tests": self.tests}), encoding="utf-8")


def tests_in(report: Path) -> list[Test]:
    """What `Watch` wrote."""
    document = json.loads(report.read_text(encoding="utf-8"))
    imported = frozenset((path, line) for path, line in document["imported"])
    return [
        Test(each["name"], each["seconds"], frozenset((path, line) for path, line in each["functions"]), imported)
        for each in document["tests"]
    ]


def function_at(code: str, line: int) -> int | None:
    """The first line of the innermost function around a line, decorators included; None outside of functions."""
    found: int | None = None
    narrowest = len(code)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            last = node.end_lineno or first
            if first <= line <= last and last - first < narrowest and not isinstance(node, ast.Lambda):
                found, narrowest = first, last - first
    return found


def chosen_for(path: str, function: int | None, tests: list[Test], budget: float) -> tuple[list[Test], float]:
    """The tests that run a function (any of its file's where there is none), cheap ones first, and what was left out.

    Tests that call it come before tests that only import what it made. Files stay together, so that a fixture for a
    file is made once.
    """
    if function is None:
        direct = [test for test in tests if any(where == path for where, _ in test.functions)]
        loose = [test for test in tests if any(where == path for where, _ in test.imported)]
    else:
        direct = [test for test in tests if (path, function) in test.functions]
        loose = [test for test in tests if (path, function) in test.imported]
    direct = direct or (tests if function is None else [])
    kept, spent, left = [], 0.0, 0.0
    for test in dict.fromkeys([*_by_cost(direct), *_by_cost(loose)]):
        if spent + test.seconds > budget and kept:
            left += test.seconds
        else:
            kept.append(test)
            spent += test.seconds
    return kept, left


def _by_cost(tests: list[Test]) -> list[Test]:
    """Files by what one of their tests costs on average, and in each the cheapest first."""
    costs: dict[str, list[float]] = defaultdict(list)
    for test in tests:
        costs[test.file].append(test.seconds)
    means = {file: sum(each) / len(each) for file, each in costs.items()}
    return sorted(tests, key=lambda test: (means[test.file], test.file, test.seconds, test.name))


class Chosen:
    """A plugin of pytest that keeps some of the collected tests, in a given order, each within its time."""

    def __init__(self, tests: list[Test]) -> None:
        self.order = {test.name: rank for rank, test in enumerate(tests)}
        self.seconds = {test.name: test.seconds for test in tests}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The chosen tests in their order."""
        chosen = [item for item in items if item.nodeid in self.order]
        items[:] = sorted(chosen, key=lambda item: self.order[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A change that makes a test much slower is noticed by that."""
        allow(GRACE + SLOWER * self.seconds[item.nodeid])
