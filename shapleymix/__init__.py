"""ShapleyMix: from proxy runs to a language mixture with a proof.

>>> import shapleymix as sm
>>> fit = sm.fit("runs.csv")
>>> mix = sm.optimize(fit, N="243M", D="100B", languages="languages.csv")

Names are loaded when they are first used: importing the package costs next to nothing.

The wings, in the order in which data flows; each imports only from those above it:

  errors      every error: its place, what was expected, the next step
  files       files read once, with their hash, and written whole
  display     results as people see them: a few lines, a table
  records     results as versioned JSON, read back bit for bit
  statistics  random streams, ranks, correlations, ends of intervals: what every wing counts with
  tables      what comes in: run logs, transfer matrices, languages tables
  game        coalitions, payoffs, exact and sampled Shapley values
  laws        the laws: each one's equation once, as convex pieces in the mixture
  fitting     from logs to a Fit, and at a budget to a Surface: means, joint samples, pieces
  mixing      a question (Problem) within bounds (Polytope), its solution and its proof
  scores      scores on tasks as functions of losses
  planning    which runs to train next, and how far they would bring the error
"""

from __future__ import annotations

import importlib
import os.path

with open(f"{os.path.splitext(__file__)[0]}.pyi", encoding="utf-8") as _stub:
    _MODULE = {line.split()[-1]: line.split()[1] for line in _stub if line.startswith("from")}
"""The modules of the public names: those of the stub, which says them to type checkers and editors as well."""

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("shapleymix")
    if name not in _MODULE:
        raise AttributeError(f"module 'shapleymix' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
