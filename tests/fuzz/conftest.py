"""`--share 0.1` tries a tenth of every campaign; a failing trial is printed with its case, and the others go on."""

import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

PATIENCE = 120
"""Seconds of one trial."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.addoption("--share", type=float, default=1.0, help="part of each campaign's trials to do")


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Callable[[int, SearchStrategy[Any], Callable[[Any], object]], None]:
    """A function that tries so many cases (of `--hypothesis-seed`), and fails at the end if one of them did."""

    def run(count: int, cases: SearchStrategy[Any], trial: Callable[[Any], object]) -> None:
        failures: list[str] = []

        @settings(
            max_examples=max(1, round(count * request.config.getoption("--share"))),
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def tried(case: Any) -> None:
            signal.alarm(PATIENCE)
            try:
                trial(case)
            except Exception as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                failures.append(f"{last.filename}:{last.lineno}: {error!r:.600}\n    {case!r}")
            finally:
                signal.alarm(0)

        signal.signal(signal.SIGALRM, _too_long)
        tried()
        assert not failures, "\n".join([f"{len(failures)} trials failed:", *failures])

    return run


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"no answer after {PATIENCE} s")
