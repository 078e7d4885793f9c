"""The log of evaluations: Parquet files from which the matrix can be made again.

One row per (step, source, target). A folder holds segments `evaluations-STEP.parquet`, each written whole.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from shapleymix.errors import Location
from shapleymix.files import atomic_write
from shapleymix_irds.accounts.ledger import Evaluation, Ledger
from shapleymix_irds.errors import ResumeError, TrackerError

SEGMENT = 100  # evaluations a file, or fewer
ROWS = 2**20  # of which a file has not more, since one that is not full is written again at each checkpoint
COLUMNS = ("step", "weight", "lr", "clip", "source", "target", "gram", "cover", "tokens", "val_loss")


class EvaluationLog:
    """Writes the log of one run (on rank 0).

    Raises
    ------
    TrackerError
        If the folder cannot be made or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], languages: Sequence[str]) -> None:
        self.folder, self.languages = Path(folder), tuple(languages)
        self.pairs = len(self.languages) ** 2
        self.full = min(SEGMENT, max(1, ROWS // self.pairs)) * self.pairs
        self.waiting: pl.DataFrame | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            place = Location(file=str(folder))
            raise TrackerError(f"the log cannot be written: {error.strerror}", location=place) from error

    def add(self, evaluation: Evaluation) -> None:
        """Log an evaluation; a full segment is written."""
        frame = _frame(evaluation, self.languages)
        self.waiting = frame if self.waiting is None else pl.concat([self.waiting, frame])
        if self.waiting.height >= self.full:
            self.flush()
            self.waiting = None

    def flush(self) -> None:
        """Write the segment that is not full yet, in place of what was written of it before."""
        if self.waiting is not None:
            buffer = io.BytesIO()
            self.waiting.write_parquet(buffer)
            path = self.folder / f"evaluations-{self.waiting['step'][0]:09d}.parquet"
            atomic_write(path, buffer.getvalue(), force=True)

    def cut(self, step: int) -> None:
        """Forget evaluations from `step` on: they are made again after a resume, into the same segments.

        Raises
        ------
        ResumeError
            If the folder holds the log of a run with other languages, or a file of it cannot be read.
        """
        self.flush()
        self.waiting = None
        for path in segments(self.folder):
            frame = _read(path)
            if set(frame["source"].unique()) != set(self.languages):
                hint = "give each run its own folder"
                place = Location(file=str(path))
                raise ResumeError("is the log of a run with other languages", location=place, hint=hint)
            kept = frame.filter(pl.col("step") < step)
            if kept.height == 0:
                path.unlink()
                continue
            self.waiting = kept
            if kept.height < frame.height:
                self.flush()
        if self.waiting is not None and self.waiting.height >= self.full:
            self.waiting = None


def segments(folder: str | os.PathLike[str]) -> list[Path]:
    """The log's files, in order."""
    return sorted(Path(folder).glob("evaluations-" + 9 * "[0-9]" + "*.parquet"))


def read_log(folder: str | os.PathLike[str]) -> tuple[tuple[str, ...], list[Evaluation]]:
    """Languages, and the logged evaluations in their order.

    Raises
    ------
    TrackerError
        If there is no log in the folder.
    """
    frames = [_read(path) for path in segments(folder)]
    if not frames:
        raise TrackerError("holds no log of evaluations", location=Location(file=str(folder)))
    languages, found = tuple(frames[0]["source"].unique(maintain_order=True)), []
    n = len(languages)
    for block in pl.concat(frames).iter_slices(n * n):  # not by steps: half a step may come again
        step, weight, lr, clip = block.select("step", "weight", "lr", "clip").row(0)
        wide = (block[name].to_numpy().reshape(n, n) for name in ("gram", "cover", "tokens", "val_loss"))
        gram, cover, tokens, val_losses = wide
        found.append(Evaluation(step, weight, lr, clip, gram, cover, tokens[:, 0], val_losses[0]))
    return languages, found


def replay(folder: str | os.PathLike[str]) -> tuple[tuple[str, ...], Ledger]:
    """Make the accounts again from a log; errors are those of `read_log`."""
    languages, evaluations = read_log(folder)
    ledger = Ledger(len(languages))
    for evaluation in evaluations:
        ledger.add(evaluation)
    return languages, ledger


def _frame(evaluation: Evaluation, languages: Sequence[str]) -> pl.DataFrame:
    n, names = len(languages), np.array(languages, dtype=object)
    columns = {name: np.repeat(getattr(evaluation, name), n * n) for name in ("step", "weight", "lr", "clip")}
    columns |= {"source": np.repeat(names, n), "target": np.tile(names, n)}
    columns |= {"gram": evaluation.gram.ravel(), "cover": evaluation.cover.ravel()}
    columns |= {"tokens": np.repeat(evaluation.tokens, n), "val_loss": np.tile(evaluation.val_losses, n)}
    return pl.DataFrame(columns, schema_overrides={"step": pl.Int64, "source": pl.String, "target": pl.String})


def _read(path: Path) -> pl.DataFrame:
    hint = "put back the file as the run wrote it, or start a new run in another folder"
    try:
        return pl.read_parquet(path, columns=list(COLUMNS))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ResumeError("cannot be read", location=Location(file=str(path)), hint=hint) from error
