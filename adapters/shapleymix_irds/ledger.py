"""Accounts of a run: phi, its standard errors, losses and tokens; the SV matrix, and the log of evaluations.

Every number is float64 and every update depends on the evaluations' order only, so that a resumed run has the
same matrix bit for bit, and the log of evaluations gives it again.

The log has one row per (step, source, target), in segments `evaluations-STEP.parquet` that are each written whole.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from shapleymix.errors import DataError, Location
from shapleymix.files import atomic_write
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.errors import ResumeError, TrackerError

Array = NDArray[np.float64]
Kind = Literal["raw", "calibrated"]
MANY = 16  # stretches that are kept
USED = 8  # stretches that a standard error is made of
HEAVY = 0.9  # the weight of a stretch that is reckoned with at most


@dataclass(frozen=True)
class Evaluation:
    """One evaluated step; K languages.

    Attributes
    ----------
    step, weight, lr, clip : int or float
        The step's number, the number of steps that it stands for, the learning rate, and the coefficient of clipping.
    gram : Array (K, K)
        Products <h_j, g_i>, row i the source; NaN where not known.
    tokens : Array (K,)
        Training tokens by language.
    val_losses : Array (K,)
        Mean validation losses; NaN in validation-free mode.
    """

    step: int
    weight: float
    lr: float
    clip: float
    gram: Array
    tokens: Array
    val_losses: Array

    @property
    def contribution(self) -> Array:
        """What is added to phi: weight * lr * clip * Gram."""
        return self.weight * self.lr * self.clip * np.nan_to_num(self.gram)


@dataclass
class Blocks:
    """Sums of contributions (K, K) over stretches of the run, by which its calibrated values spread.

    A calibrated column is made of shares in what all sources gave to a target. Shares drift along a run, and another
    seed weighs its stretches otherwise, which differences of one evaluation to the next do not show: across seeds
    values spread several times as far. Between a few stretches of one run shares differ about as much as between runs,
    so that they stand for both: for stretches b of weight w_b in a column (sum 1), whose shares are s_b and s in the
    mean, the variance of s is `sum_b (w_b (s_b - s) / (1 - w_b))^2` (the jackknife's, HC3 of MacKinnon and White 1985:
    a heavy stretch makes the mean its own), times Student's factor squared for so few of them. Stretches are of equal
    weight, not of equal length: most of a column comes from a few early evaluations, which would else be one stretch
    that outweighs all others. The lightest neighbours are joined as they grow.

    Attributes
    ----------
    sums : list of array (K, K)
        In the order of the run.
    """

    sums: list[Array] = field(default_factory=list)

    def add(self, contribution: Array) -> None:
        """Book an evaluation."""
        self.sums.append(contribution.copy())
        if len(self.sums) > MANY:
            weights = weights_of(np.array(self.sums)).mean(1)
            at = int(np.argmin(weights[1:] + weights[:-1]))
            self.sums[at : at + 2] = [self.sums[at] + self.sums[at + 1]]

    def stderr(self, correction: Array) -> Array | None:
        """Standard errors (K, K) of values whose columns are scaled to known sums; None before two evaluations.

        Parameters
        ----------
        correction : array (K, K)
            What contributions are multiplied with.
        """
        if len(self.sums) < 2:
            return None
        parts = joined(np.array(self.sums) * correction)
        columns = parts.sum(1, keepdims=True)
        total = columns.sum(0, keepdims=True)
        shares = np.divide(parts.sum(0), total, out=np.zeros_like(parts[:1]), where=total != 0)
        weights = np.minimum(weights_of(parts), HEAVY)[:, None]
        squares = ((parts - shares * columns) / (1 - weights)) ** 2
        student = float(stdtrit(len(parts) - 1, 0.95) / ndtri(0.95))  # at 95%, with one degree of freedom less
        return student * np.sqrt(squares.sum(0))


def weights_of(parts: Array) -> Array:
    """What each part (n, K, K) is of each column, (n, K)."""
    sizes = np.abs(parts.sum(1))
    return np.divide(sizes, sizes.sum(0), out=np.zeros_like(sizes), where=sizes.sum(0) != 0)


def joined(parts: Array) -> Array:
    """At most `USED` stretches of about equal weight."""
    weights = weights_of(parts).mean(1)
    middle = np.cumsum(weights) - weights / 2
    number = np.minimum((middle * USED).astype(np.intp), USED - 1)
    return np.array([parts[number == each].sum(0) for each in np.unique(number)])


SUMS = ("total", "last", "squares", "exposure", "known")


@dataclass
class Ledger:
    """Running sums over evaluations, (K, K) each.

    Attributes
    ----------
    total, last : Array
        All contributions, and that of the last evaluation.
    squares : Array
        Squared differences of one contribution to the next.
    exposure, known : Array
        Weighted tokens of each source, and those for which a column is known.
    tokens : Array (K,)
        Tokens of each source in all evaluations.
    """

    languages: int
    count: int = 0
    blocks: Blocks = field(default_factory=Blocks)

    def __post_init__(self) -> None:
        shape = (self.languages, self.languages)
        self.total, self.last, self.squares, self.exposure, self.known = (np.zeros(shape) for _ in SUMS)
        self.tokens = np.zeros(self.languages)

    def add(self, evaluation: Evaluation) -> None:
        """Book an evaluation."""
        contribution = evaluation.contribution
        if self.count:
            self.squares += (contribution - self.last) ** 2
        self.last = contribution
        self.blocks.add(contribution)
        self.total = self.total + contribution
        exposure = evaluation.weight * evaluation.lr * evaluation.tokens[:, None] * np.ones_like(contribution)
        self.exposure = self.exposure + exposure
        self.known = self.known + np.where(np.isnan(evaluation.gram), 0.0, exposure)
        self.tokens = self.tokens + evaluation.tokens
        self.count += 1

    @property
    def correction(self) -> Array:
        """(K, K) factor for steps without an estimate: exposure over exposure with one; 1 where all have one."""
        return np.divide(self.exposure, self.known, out=np.ones_like(self.known), where=self.known > 0)

    @property
    def phi(self) -> Array:
        """Raw values (K, K)."""
        return self.total * self.correction

    @property
    def stderr(self) -> Array:
        """Standard errors (K, K) of phi by successive differences; NaN before two evaluations.

        They are those of sampling steps and sequences in this run, as it drifts: another seed's phi differs by more.
        """
        if self.count < 2:
            return np.full_like(self.total, np.nan)
        return np.sqrt(self.count * self.squares / (2 * (self.count - 1))) * self.correction

    def to_document(self) -> dict[str, Any]:
        """JSON-ready; floats read back exactly."""
        tables = {name: getattr(self, name).tolist() for name in SUMS}
        blocks = {"sums": [each.tolist() for each in self.blocks.sums]}
        return {"count": self.count, "tokens": self.tokens.tolist(), "blocks": blocks, **tables}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Ledger:
        """What `to_document` gave.

        Raises
        ------
        ValueError
            If tables are of another shape.
        """
        K = len(document["tokens"])
        blocks = Blocks([np.array(each, dtype=np.float64) for each in document["blocks"]["sums"]])
        found = cls(K, int(document["count"]), blocks)
        for name in ("tokens", *SUMS):
            setattr(found, name, np.array(document[name], dtype=np.float64))
        if any(table.shape != (K, K) for table in (*blocks.sums, *(getattr(found, name) for name in SUMS))):
            raise ValueError(f"expected tables of {K} by {K} languages")
        return found


@dataclass
class MeasuredLosses:
    """Measured validation losses: at the start of the run, and the latest."""

    start: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)

    def record(self, losses: Mapping[str, float]) -> None:
        """The first record is the start."""
        if not self.start:
            self.start = dict(losses)
        else:
            self.latest = dict(losses)

    def drop(self, languages: tuple[str, ...]) -> Array:
        """Start less latest (K,), NaN where unknown."""
        return np.array([self.start.get(name, np.nan) - self.latest.get(name, np.nan) for name in languages])


VERSION = 3  # of the state in a checkpoint


def read_state(state: Mapping[str, object], mine: Mapping[str, Any]) -> dict[str, Any]:
    """What `IRDS.state_dict` wrote, for a tracker with these settings, with its accounts made again.

    Raises
    ------
    ResumeError
        If it is no state of a tracker, or of one with other settings.
    """
    try:
        saved = json.loads(str(state["irds"]))
        saved["ledger"], saved["losses"] = Ledger.from_document(saved["ledger"]), MeasuredLosses(*saved["losses"])
        saved["passed"], (_, _, _) = set(saved["passed"]), saved["run"]
        theirs = {**saved["settings"], "version": saved["version"], "every": saved["every"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        hint = "give what `state_dict` returned, or start anew"
        raise ResumeError(f"this is no state of a tracker: {type(error).__name__}: {error}", hint=hint) from error
    for name, value in {"version": VERSION, **mine}.items():
        if theirs.get(name) != value and not (name == "every" and saved["every"] is None):
            hint = "resume with the settings of the checkpoint, or start a new run in another folder"
            raise ResumeError(f"the checkpoint has {name} {theirs.get(name)}, this tracker has {value}", hint=hint)
    return saved


# -- the SV matrix -------------------------------------------------------------------------------------------------

RAW = "the sampling of steps and sequences in this run, but not the larger differences between seeds"
CALIBRATED = (
    "the sampling of steps and sequences, and differences between seeds as estimated from stretches of this run; not "
    "the error of the measured loss drops, nor other settings"
)


def transfer_matrix(
    ledger: Ledger, losses: MeasuredLosses, languages: tuple[str, ...], kind: Kind, about: dict[str, Any]
) -> TransferMatrix:
    """The SV matrix of a run.

    Parameters
    ----------
    kind : {"raw", "calibrated"}
        Raw is phi as summed; calibrated is column j scaled so that it sums to the measured drop of loss j.
    about : dict
        Provenance to add (N, D, engine, ...).

    Raises
    ------
    TrackerError
        If nothing was evaluated or a value could not be estimated; calibrated also where a loss drop was not
        measured or a loss did not fall, or a column does not sum to more than 0.
    """
    if kind not in ("raw", "calibrated"):
        raise TrackerError(f"kind is {kind!r}: it must be 'raw' or 'calibrated'")
    _check_estimated(ledger, languages)
    phi, drop = ledger.phi, losses.drop(languages)
    ratios = zip(languages, efficiency(phi, drop).tolist(), strict=True)
    about |= {"method": "irds", "evaluations": ledger.count}
    about["efficiency"] = {name: ratio if np.isfinite(ratio) else None for name, ratio in ratios}
    if np.isfinite(drop).all():
        about["loss_drop"] = dict(zip(languages, drop.tolist(), strict=True))
    if kind == "raw":
        stderr = ledger.stderr if ledger.count > 1 else None
        about |= {"scale": "raw", "stderr_covers": RAW}
        return TransferMatrix.from_sv(phi, languages, languages, stderr, about)
    if not (drop > 0).all():
        hint = "measure the losses at the end (`measure`, `record_losses`), take the raw values, or train for longer"
        told = ", ".join(f"{name!r} {each:.4f}" for name, each in zip(languages, -drop, strict=True) if not each < 0)
        raise TrackerError(f"losses that did not fall, or were not measured, cannot calibrate: {told}", hint=hint)
    stderr = ledger.blocks.stderr(ledger.correction)
    try:
        matrix = TransferMatrix.from_sv(phi, languages, languages, stderr, about).calibrate(drop)
    except DataError as error:
        raise TrackerError(error.message, hint='take the raw values (kind="raw"), or train for longer') from error
    matrix.provenance.update({"scale": "calibrated by efficiency", "stderr_covers": CALIBRATED})
    return matrix


def efficiency(phi: Array, drop: Array) -> Array:
    """Sum of each column over the measured drop (K,); NaN where the drop is unknown or 0."""
    return np.divide(phi.sum(0), drop, out=np.full(len(drop), np.nan), where=np.isfinite(drop) & (drop != 0))


def _check_estimated(ledger: Ledger, languages: tuple[str, ...]) -> None:
    if ledger.count == 0:
        hint = "lower `every`, or train for longer"
        raise TrackerError("no step has been evaluated yet, so there is no SV matrix", hint=hint)
    absent = [name for name, tokens in zip(languages, ledger.tokens, strict=True) if tokens == 0]
    if absent:
        hint = "train for longer, evaluate more steps, or leave it out of the tracker's languages"
        raise TrackerError(f"no token of {', '.join(absent)} in any of {ledger.count} evaluations", hint=hint)
    for i, j in np.argwhere((ledger.exposure > 0) & (ledger.known == 0)):
        hint = "give validation sequences, or more sequences of each language in a rank's batch"
        raise TrackerError(f"no evaluation could estimate {languages[i]!r} on {languages[j]!r}", hint=hint)


ROWS = 2**18  # that wait at most: what is not in a file when a run is killed is made again from its checkpoint


class EvaluationLog:
    """Writes the log of one run (on rank 0).

    Raises
    ------
    TrackerError
        If the folder cannot be made or written to.
    """

    def __init__(self, folder: str | os.PathLike[str], languages: Sequence[str]) -> None:
        self.folder, self.languages = Path(folder), tuple(languages)
        self.waiting: list[pl.DataFrame] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            place = Location(file=str(folder))
            raise TrackerError(f"the log cannot be written: {error.strerror}", location=place) from error

    def add(self, evaluation: Evaluation) -> None:
        """Log an evaluation."""
        self.waiting.append(_frame(evaluation, self.languages))
        if sum(frame.height for frame in self.waiting) >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits, into a segment of its own."""
        if self.waiting:
            frame, buffer = pl.concat(self.waiting), io.BytesIO()
            frame.write_parquet(buffer)
            atomic_write(self.folder / f"evaluations-{frame['step'][0]:09d}.parquet", buffer.getvalue(), force=True)
            self.waiting = []

    def cut(self, step: int) -> None:
        """Forget evaluations from `step` on, which a resume makes again; no segment goes beyond a checkpoint."""
        self.waiting = []
        for path in segments(self.folder):
            if int(path.stem.rpartition("-")[2]) >= step:
                path.unlink()


def segments(folder: str | os.PathLike[str]) -> list[Path]:
    """The log's files, in order."""
    return sorted(Path(folder).glob("evaluations-" + 9 * "[0-9]" + "*.parquet"))


def _frame(evaluation: Evaluation, languages: Sequence[str]) -> pl.DataFrame:
    n, names = len(languages), np.array(languages, dtype=object)
    columns = {name: np.repeat(getattr(evaluation, name), n * n) for name in ("step", "weight", "lr", "clip")}
    columns |= {"source": np.repeat(names, n), "target": np.tile(names, n)}
    columns |= {"gram": evaluation.gram.ravel()}
    columns |= {"tokens": np.repeat(evaluation.tokens, n), "val_loss": np.tile(evaluation.val_losses, n)}
    return pl.DataFrame(columns, schema_overrides={"step": pl.Int64, "source": pl.String, "target": pl.String})
