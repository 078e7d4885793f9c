"""The scripts of a report, run by node on their own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from simulated import true_law

import shapleymix as sm
from shapleymix.fitting.coverage import Coverage
from shapleymix.fitting.standing import TargetStatus
from shapleymix.laws import Inputs, Law
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
ARITHMETIC = ("law", "solver", "question")
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RUNS, LANGUAGES = FIXTURES / "multilingual5_runs.csv", FIXTURES / "multilingual5_languages.csv"
HOSTILE = "</script><img src=x onerror=alert(1)>"
QUICK = {"bootstrap": 4, "folds": 2, "starts": 2, "threads": 1, "min_own_tokens": 20_000}


def small_fit() -> sm.Fit:
    """Five languages, in a second."""
    return sm.fit(RUNS, "shapley-tempered", sm.shapley_values(FIXTURES / "multilingual5_coalitions.csv"), **QUICK)


def law_of(name: str, M: int, K: int, seed: int) -> Law:
    """A law with typical symbols, of any number of languages."""
    rng = np.random.default_rng(seed)
    names = tuple(f"s{i}" for i in range(M))
    unknown = np.full(M, np.nan)
    families = Languages(names, tuple(f"f{i // 2}" for i in range(M)), unknown, None, unknown)
    values = rng.uniform(0.2, 1.2, (M, K)) + 0.8 * np.eye(M, K)
    matrix = TransferMatrix.from_sv(values, names, names[:K])
    return true_law(name, Inputs(names, names[:K], matrix, families), seed)


def known_fit(fit: sm.Fit, law: Law, M: int, K: int) -> sm.Fit:
    """A fit with another law, of M sources s0, s1, ... and the first K of them as targets; its runs are forgotten."""
    names = tuple(f"s{i}" for i in range(M))
    spans = np.broadcast_to([0.0, 1.0], (K, M, 2))
    covered = Coverage(
        p_range=spans, N_range=np.tile([1e7, 1e9], (K, 1)), D_range=np.tile([1e9, 1e11], (K, 1)),
        mixtures=np.full((K, M), 50), untrained=np.full(K, np.nan), alike={},
    )  # fmt: skip
    scores = replace(
        fit.fitted_scores, targets=names[:K],
        **{name: np.full(K, 0.5) for name in ("PE", "R2", "spearman", "coverage")}, rows=np.full(K, 50),
    )  # fmt: skip
    repetition = None if fit.repetition is None else replace(fit.repetition, rates=None, epochs=np.full((M, 2), np.nan))
    return replace(
        fit, law=law, replicates=None, sources=names, targets=names[:K], coverage=covered, held={}, knobs={},
        status=tuple(TargetStatus(name, "converged", "") for name in names[:K]), fitted_scores=scores, held_out=None,
        residuals=None, misfit=None, cells=None, selection=None, absent=None, notices=(),
        repetition=repetition if type(law).takes_repetition else None,
    )  # fmt: skip


def data_of(page: str) -> dict:
    """What the scripts of a page are given."""
    found = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, flags=re.S)
    assert found
    return json.loads(found.group(1))


def in_node(body: str, content: object):
    """What a function of this body, which sees `content`, returns where the page's scripts are loaded."""
    folder = files("shapleymix.reports") / "web"
    scripts = "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in ARITHMETIC)
    read = "const content = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
    program = f"{scripts}\n{read}\nconsole.log(JSON.stringify((() => {{ {body} }})()));"
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(content), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
