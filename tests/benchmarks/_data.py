"""The published logs, read as the benchmarks use them; absent ones, and all of them in a small run, are left out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import polars as pl
from _report import SMALL

import shapleymix as sm

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SHAPLEYMIX_SHARED", ROOT.parent / "shared")) / "data"
FIXTURES = ROOT / "fixtures"
PATTERNS = {
    "chinchilla": "chinchilla_245.csv",
    "regmix": "regmix_1m_train.csv",
    "olmix": "olmix_dclm_30m.csv",
    "wiki40b": "wiki40b_1m_train.csv",
    "5mix": "mixlaws_5mix_*.csv",
    "redpajama": "mixlaws_redpajama_*.csv",
    "slimpajama": "dmsl_slimpajama_*.csv",
    "ladder": "olmo_ladder.csv",
}
"""All logs of a family are read together."""


def logs(*names: str) -> dict[str, sm.RunLog]:
    """The logs at hand of those that are named; `multilingual5` is the repository's own."""
    found = {}
    for name in names:
        paths = [] if SMALL or name not in PATTERNS else sorted(SHARED.glob(PATTERNS[name]))
        if name == "multilingual5":
            found[name] = five_languages()
        elif paths:
            found[name] = _prepared(name, sm.read_runs(paths))
        elif not SMALL:
            print(f"skipped: no {PATTERNS[name]} in the shared data")
    return found


def five_languages() -> sm.RunLog:
    """28 random mixtures at N = 97,600."""
    log = sm.read_runs(FIXTURES / "multilingual5_runs.csv")
    return log.select(np.array([run.startswith("rand") for run in log.runs]))


def _prepared(name: str, log: sm.RunLog) -> sm.RunLog:
    """Chinchilla's points less the five highest losses, as in its replications."""
    return log.select(np.argsort(log.loss[:, 0])[:-5]) if name == "chinchilla" else log


def suites() -> dict[str, sm.RunLog]:
    """Public grids and isoFLOPs of one mixture: the suites of Epoch's table, each by itself, and OLMo's ladder.

    Runs of the former are named by their number and compute.
    """
    found, table = dict(logs("ladder")), SHARED / "extra" / "isoflops_public.csv"
    if SMALL or not table.exists():
        return found
    rows = pl.read_csv(table).filter(~pl.col("outlier")).with_row_index("run")
    for (name,), part in rows.group_by("experiment", maintain_order=True):
        columns = part.select(
            pl.format("{} {}", "run", "budget").alias("run"), "N", "D", pl.col("loss").alias("loss_all")
        )
        found[str(name).replace("__", " ").strip()] = sm.read_runs(columns)
    return found
