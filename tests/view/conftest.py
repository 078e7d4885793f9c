"""Fits and mixtures to be drawn and shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from page_tools import LANGUAGES
from simulated import log_of

import shapleymix as sm


@pytest.fixture(scope="session")
def real_fit(fixtures: Path) -> sm.Fit:
    """A law of runs with and without the target's language, which are two regimes."""
    logs = [fixtures / "multilingual5_runs.csv", fixtures / "multilingual5_coalitions.csv"]
    return sm.fit(logs, law="effective-data", bootstrap=30)


@pytest.fixture(scope="session")
def mixture(real_fit: sm.Fit) -> sm.Mixture:
    weights = "en=5,ja=3,de=.5,fr=1,zh=1"
    return sm.optimize(real_fit, 97_600, "2M", languages=LANGUAGES, caps={"ja": 0.2}, weights=weights, what_if="ja+1M")


@pytest.fixture(scope="session")
def known_fit() -> Callable[[str], sm.Fit]:
    """A function that fits a law to a log that the same law made."""

    def fitted(law: str) -> sm.Fit:
        _, given, log = log_of(law, rows=30, noise=1e-3)
        transfer = given.transfer if "transfer" in sm.LAWS[law].needs else None
        return sm.fit(log, law=law, transfer=transfer, bootstrap=0, folds=0)

    return fitted
