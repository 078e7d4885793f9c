"""What a run leaves behind: rows of the run log, and a summary of what was trained on what."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shapleymix.files import atomic_write
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog, write_runs
from shapleymix_irds.accounts.log import segments
from shapleymix_irds.train.data.corpus import Corpus
from shapleymix_irds.train.data.sampler import Sampler
from shapleymix_irds.train.disk import disk_errors

MATRICES = ("sv.csv", "sv_raw.csv")


def files_of(irds: bool) -> tuple[str, ...]:
    """Names of the files that a run writes once it is done, with the matrices if it measures."""
    return ("runs.csv", *(MATRICES if irds else ()), "summary.json", "metrics.jsonl")


def in_the_way(out: Path, irds: bool) -> list[str]:
    """Names of files that a new run would overwrite or add to; one that is empty has nothing to lose."""
    names = [*files_of(irds), *(f"{name}.json" for name in MATRICES if irds)]
    found = [name for name in names if _holds_something(out / name)]
    return [*found, *(path.name for path in segments(out) if irds)]


def _holds_something(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and path.stat().st_size > 0)


def clear_results(out: Path) -> None:
    """Remove what a run may have written into its folder beside checkpoints, and nothing else."""
    beside = [f"{name}.json" for name in MATRICES]
    for path in (*(out / name for name in (*files_of(irds=True), *beside)), *segments(out)):
        with disk_errors(path):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Row:
    """Test losses (K,) in nats after D tokens."""

    D: int
    loss: tuple[float, ...]


def write_run_log(
    path: Path,
    rows: list[Row],
    *,
    run: str,
    N: int,
    ratios: FloatArray,
    languages: tuple[str, ...],
    seed: int,
) -> None:
    """Write rows of one run as a run log that `shapleymix fit` reads; without a row there is none."""
    if not rows:
        with disk_errors(path):
            path.unlink(missing_ok=True)
        return
    D = np.array([row.D for row in rows], dtype=np.float64)
    log = RunLog(
        runs=tuple(run if row.D else f"{run}-untrained" for row in rows),
        N=np.full(len(rows), float(N)),
        D=D,
        p=np.where(D[:, None] > 0, ratios, 0.0),
        loss=np.array([row.loss for row in rows]),
        sources=languages,
        targets=languages,
        seed=(str(seed),) * len(rows),
    )
    write_runs(log, path, force=True)


def summary(corpus: Corpus, sampler: Sampler, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a run, with tokens and epochs of each language as they were in the end."""
    seq = corpus.train[0].seq
    trained = {
        language: {
            "tokens_trained": int(count) * seq,
            "share": float(count / max(sampler.counts.sum(), 1)),
            "epochs": float(epochs),
            "tokens_train": stream.tokens,
        }
        for language, count, epochs, stream in zip(
            corpus.languages, sampler.counts, sampler.epochs, corpus.train, strict=True
        )
    }
    return {**facts, "languages": trained}


def write_summary(path: Path, document: dict[str, Any]) -> None:
    """Write the summary as JSON, whole or not at all."""
    atomic_write(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n", force=True)
