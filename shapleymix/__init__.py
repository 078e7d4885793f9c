"""ShapleyMix: from proxy runs to a certified language mixture.

>>> import shapleymix as sm
>>> log = sm.read_runs("runs.csv")
>>> fit = sm.fit(log, law="shapley-tempered", transfer=sm.read_transfer("sv.csv"))
>>> mix = sm.optimize(fit, N="243M", D="100B")

Names are loaded when they are first used: importing the package costs next to nothing.
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
