"""Fits and mixtures to be drawn and shown."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from page_tools import LANGUAGES
from simulated import jumping, log_of

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
def nested_fit() -> sm.Fit:
    """A law of 24 sources, eight of each of three parents, whose names have no slashes."""
    rng, names = np.random.default_rng(1), [f"{parent}-{kind}" for parent in ("en", "de", "fi") for kind in range(8)]
    p = rng.dirichlet(np.full(24, 0.25), 60)
    own = np.kron(np.eye(3), np.ones((8, 1))) + 0.25
    loss = 1.5 + 2 * (0.3 + p**0.6 @ (own * rng.uniform(0.5, 2.5, (24, 1)))) ** -0.25
    log = {"run": [f"run-{i}" for i in range(60)], "N": [3e7] * 60, "D": [3e9] * 60}
    log |= {f"p_{name}": p[:, i] for i, name in enumerate(names)} | {f"loss_{j}": loss[:, j] for j in range(3)}
    return sm.fit(log, "learned-base", bootstrap=0, folds=0)


@pytest.fixture(scope="session")
def nested(nested_fit: sm.Fit) -> sm.Mixture:
    names = nested_fit.sources
    table = {
        "language": names,
        "parent": [name[:2] for name in names],
        "available_tokens": [*range(10**9, 25 * 10**9, 10**9)],
    }
    return sm.optimize(nested_fit, "30M", "3B", languages=table, caps={"en-0": 0.05})


@pytest.fixture(scope="session")
def known_fit() -> Callable[[str], sm.Fit]:
    """A function that fits a law to a log that the same law made."""

    def fitted(law: str) -> sm.Fit:
        if law == "jumps":
            return sm.fit(jumping(60)[0], bootstrap=0, folds=0)
        _, given, log = log_of(law, rows=30, noise=1e-3)
        transfer = given.transfer if "transfer" in sm.LAWS[law].needs else None
        return sm.fit(log, law=law, transfer=transfer, bootstrap=0, folds=0)

    return fitted
