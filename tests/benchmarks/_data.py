"""The published logs, read as the benchmarks use them; None where they are absent."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import shapleymix as sm

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SHAPLEYMIX_SHARED", ROOT.parent / "shared")) / "data"
FIXTURES = ROOT / "fixtures"


def shared_logs(pattern: str) -> sm.RunLog | None:
    """All logs of a family, together."""
    paths = sorted(SHARED.glob(pattern)) if SHARED.is_dir() else []
    if not paths:
        print(f"skipped: no {pattern} in the shared data")
        return None
    return sm.read_runs(paths)


def chinchilla() -> sm.RunLog | None:
    """Chinchilla's 245 points less the five highest losses, as in its replications."""
    log = shared_logs("chinchilla_245.csv")
    return None if log is None else log.select(np.argsort(log.loss[:, 0])[:-5])


def regmix() -> sm.RunLog | None:
    """RegMix's 512 models of one million parameters."""
    return shared_logs("regmix_1m_train.csv")


def slimpajama() -> sm.RunLog | None:
    """SlimPajama runs without the first quarter of each, which is warm-up."""
    log = shared_logs("dmsl_slimpajama_*.csv")
    return None if log is None else log.select(after_warm_up(log))


def after_warm_up(log: sm.RunLog) -> np.ndarray:
    """Rows past the first quarter of their own run."""
    runs = np.array(log.runs)
    keep = np.ones(len(log), dtype=bool)
    for run in sorted(set(log.runs)):
        rows = np.flatnonzero(runs == run)
        keep[rows[np.argsort(log.D[rows])][: len(rows) // 4]] = False
    return keep


def five_languages() -> sm.RunLog:
    """The repository's own 28 random mixtures at N = 97,600."""
    log = sm.read_runs(FIXTURES / "multilingual5_runs.csv")
    return log.select(np.array([run.startswith("rand") for run in log.runs]))
