"""One mixture, and the shares of tokens that a trainer made of it, for the tests of every export."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
from shapleymix_io import Export, export

RATIOS = {"en": 0.4587, "de": 0.3, "no": 0.2, "zh": 0.04, "fi": 0.0013, "ja": 0.0}
"""`no` is a truth value of YAML, `ja` is not trained on."""
LANGUAGES = tuple(name for name, ratio in RATIOS.items() if ratio > 0)
LENGTHS = {"en": 40, "de": 25, "no": 60, "zh": 12, "fi": 90}
"""Mean tokens of their documents, where documents are drawn."""


def written(form: str, folder: Path, name: str, paths: Any = None, **keywords: Any) -> Export:
    """The mixture exported into a file, with a table of paths as columns or rows."""
    found = export(RATIOS, form, paths=None if paths is None else pl.DataFrame(paths), **keywords)
    found.write(folder / name)
    return found


def loaded(path: Path) -> ModuleType:
    """A module that was written."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_shares(
    tokens: Mapping[str, float], draws: int | None = None, lengths: Mapping[str, float] | None = None
) -> None:
    """Shares of tokens are the ratios: to five standard errors of independent draws, or to rounding (1e-3)."""
    assert set(tokens) <= set(LANGUAGES), "nothing is drawn of a language of ratio 0"
    total = sum(tokens.values())
    weights = {name: RATIOS[name] / (lengths or {}).get(name, 1) for name in LANGUAGES}
    whole = sum(weights.values())
    for name in LANGUAGES:
        share, length = tokens.get(name, 0) / total, (lengths or {}).get(name, 1)
        often = weights[name] / whole
        mean = total / draws if draws else 1.0
        error = 5 * np.sqrt(often * (1 - often) / draws) * length / mean if draws else 1e-3
        assert abs(share - RATIOS[name]) <= error, f"{name}: {share:.4f}, expected {RATIOS[name]:.4f} +- {error:.4f}"
