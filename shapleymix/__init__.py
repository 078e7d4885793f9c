"""ShapleyMix: from proxy runs to a certified language mixture.

>>> import shapleymix as sm
>>> log = sm.read_runs("runs.csv")
>>> fit = sm.fit(log, law="shapley-tempered", transfer=sm.read_transfer("sv.csv"))
>>> mix = sm.optimize(fit, N="243M", D="100B")

Names are loaded when they are first used: importing the package costs next to nothing.

The wings, in the order in which data flows; each imports only from those above it:

  errors   every error: its place, what was expected, the next step
  files    files read once, with their hash, and written whole
  records  results as versioned JSON, read back bit for bit
  tables   what comes in: run logs, transfer matrices, languages tables
  game     coalitions, payoffs, exact and sampled Shapley values
  laws     the laws: one equation with named symbols each
  fitting  from logs to fitted laws, predictions and comparisons
  mixing   from a fitted law and a budget to a certified mixture
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "Candidates": "mixing.candidates",
    "Comparison": "fitting.comparison",
    "DataError": "errors",
    "Evaluation": "fitting.evaluation",
    "Fit": "fitting.fits",
    "FitError": "errors",
    "InfeasibleError": "errors",
    "LAWS": "laws",
    "Languages": "tables.languages",
    "Law": "laws",
    "Mixture": "mixing.mixtures",
    "Prediction": "fitting.prediction",
    "RunLog": "tables.runs",
    "ShapleyMixError": "errors",
    "SolveError": "errors",
    "StoreError": "errors",
    "TransferMatrix": "tables.transfer",
    "UsageError": "errors",
    "compare": "fitting.comparison",
    "compare_mixtures": "mixing.candidates",
    "evaluate": "fitting.evaluation",
    "exact_shapley": "game",
    "fit": "fitting.fits",
    "optimize": "mixing.optimization",
    "optimize_compute": "mixing.optimization",
    "optimize_scales": "mixing.optimization",
    "read_languages": "tables.languages",
    "read_runs": "tables.run_reading",
    "read_transfer": "tables.transfer_reading",
    "sampled_shapley": "game",
    "shapley_values": "game",
    "write_runs": "tables.runs",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("shapleymix")
    if name not in _HOME:
        raise AttributeError(f"module 'shapleymix' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"shapleymix.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
