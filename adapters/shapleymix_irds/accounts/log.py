"""The log of evaluations: Parquet files from which the matrix can be made again.

One row per (step, source, target). A folder holds segments `evaluations-STEP.parquet`, each written whole.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from shapleymix.errors import Location
from shapleymix.files import atomic_write
from shapleymix_irds.accounts.ledger import Evaluation, Ledger
from shapleymix_irds.errors import ResumeError, TrackerError

SEGMENT = 100  # evaluations a file, or fewer
NAME = re.compile(r"evaluations-\d{9,}\.parquet")
ROWS = 2**20  # of which a file has not more, since one that is not full is written again at each checkpoint


class EvaluationLog:
    """Writes the log of one run (on rank 0).

    Raises
    ------
    TrackerError
        If the folder cannot be made or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], languages: Sequence[str]) -> None:
        self.folder, self.languages = Path(folder), tuple(languages)
        self.segment = min(SEGMENT, max(1, ROWS // len(self.languages) ** 2))
        self.waiting: list[Evaluation] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass  # it can be written to
        except OSError as error:
            place = Location(file=str(folder))
            raise TrackerError(f"the log cannot be written: {error.strerror}", location=place) from error

    def add(self, evaluation: Evaluation) -> None:
        """Log an evaluation; a full segment is written."""
        self.waiting.append(evaluation)
        if len(self.waiting) >= self.segment:
            self.flush()
            self.waiting = []

    def flush(self) -> None:
        """Write the segment that is not full yet, in place of what was written of it before."""
        if self.waiting:
            self._write(_frame(self.waiting, self.languages))

    def cut(self, step: int) -> None:
        """Forget evaluations from `step` on: they are made again after a resume, into the same segments.

        Raises
        ------
        ResumeError
            If the folder holds the log of a run with other languages, or a file of it cannot be read.
        """
        self.flush()
        for path in segments(self.folder):
            frame = _read(path)
            if set(frame["source"].unique()) != set(self.languages):
                hint = "give each run its own folder"
                place = Location(file=str(path))
                raise ResumeError("is the log of a run with other languages", location=place, hint=hint)
            kept = frame.filter(pl.col("step") < step)
            if kept.height == frame.height:
                continue
            if kept.height:
                self._write(kept)
            else:
                path.unlink()
        last = [evaluation for _, evaluation in read_log(self.folder, only_last=True)]
        self.waiting = last if len(last) < self.segment else []

    def _write(self, frame: pl.DataFrame) -> None:
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        path = self.folder / f"evaluations-{frame['step'][0]:09d}.parquet"
        atomic_write(path, buffer.getvalue(), force=True)


def segments(folder: str | os.PathLike[str]) -> list[Path]:
    """The log's files, in order."""
    return sorted(path for path in Path(folder).glob("evaluations-*.parquet") if NAME.fullmatch(path.name))


def _frame(evaluations: Sequence[Evaluation], languages: Sequence[str]) -> pl.DataFrame:
    n, count = len(languages), len(evaluations)
    pairs = n * n

    def each(values: list[float] | list[int]) -> np.ndarray:
        return np.repeat(np.array(values), pairs)

    return pl.DataFrame(
        {
            "step": each([e.step for e in evaluations]).astype(np.int64),
            "weight": each([e.weight for e in evaluations]),
            "lr": each([e.lr for e in evaluations]),
            "clip": each([e.clip for e in evaluations]),
            "source": np.tile(np.repeat(np.array(languages, dtype=object), n), count),
            "target": np.tile(np.array(languages, dtype=object), n * count),
            "gram": np.concatenate([e.gram.ravel() for e in evaluations]),
            "cover": np.concatenate([e.cover.ravel() for e in evaluations]),
            "tokens": np.concatenate([np.repeat(e.tokens, n) for e in evaluations]),
            "val_loss": np.concatenate([np.tile(e.val_losses, n) for e in evaluations]),
        },
        schema_overrides={"source": pl.String, "target": pl.String},
    )


def _read(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResumeError("cannot be read", location=Location(file=str(path)), hint=_HINT) from error
    missing = sorted(set(COLUMNS) - set(frame.columns))
    if missing:
        told = f"has no column {missing[0]!r}"
        raise ResumeError(told, location=Location(file=str(path)), hint=_HINT)
    return frame


COLUMNS = ("step", "weight", "lr", "clip", "source", "target", "gram", "cover", "tokens", "val_loss")
_HINT = "put back the file as the run wrote it, or start a new run in another folder"


def read_log(folder: str | os.PathLike[str], only_last: bool = False) -> Iterator[tuple[tuple[str, ...], Evaluation]]:
    """(languages, evaluation) of each logged step, in order; if so wished of the last segment alone."""
    for path in segments(folder)[-1 if only_last else 0 :]:
        frame = _read(path)
        languages = tuple(frame["source"].unique(maintain_order=True))
        n = len(languages)
        for block in frame.iter_slices(n * n):  # not by steps: half a step that several optimisers took may come again
            column = {name: block[name].to_numpy() for name in ("gram", "cover", "tokens", "val_loss")}
            first = block.row(0, named=True)
            yield (
                languages,
                Evaluation(
                    step=first["step"],
                    weight=first["weight"],
                    lr=first["lr"],
                    clip=first["clip"],
                    gram=column["gram"].reshape(n, n),
                    cover=column["cover"].reshape(n, n),
                    tokens=column["tokens"].reshape(n, n)[:, 0].copy(),
                    val_losses=column["val_loss"].reshape(n, n)[0].copy(),
                ),
            )


def replay(folder: str | os.PathLike[str]) -> tuple[tuple[str, ...], Ledger]:
    """Make the accounts again from a log.

    Raises
    ------
    TrackerError
        If there is no log in the folder.
    """
    ledger, languages = None, ()
    for languages, evaluation in read_log(folder):
        ledger = ledger or Ledger(len(languages))
        ledger.add(evaluation)
    if ledger is None:
        raise TrackerError("holds no log of evaluations", location=Location(file=str(folder)))
    return languages, ledger
