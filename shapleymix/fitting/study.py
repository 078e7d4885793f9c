"""What fitting and comparing both run on: the evidence, the inputs, how to fit, and the seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version

import numpy as np

from shapleymix.errors import UsageError
from shapleymix.files import Json
from shapleymix.fitting.beliefs import Tuned, tuned
from shapleymix.fitting.estimation import Problem
from shapleymix.fitting.evidence import (
    Evidence,
    Logs,
    Table,
    chosen,
    fold_masks,
    gather,
    inputs_of,
    largest_mask,
    limits_of,
    one_log,
)
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.status import untrained_losses
from shapleymix.laws import LAWS, Inputs, Law
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.words import parse_number, parse_whole

Progress = Callable[[str, int, int], None]
INNER_FOLDS, LEAST_FOLDS = 10, 2
MIXTURES_NEEDED = 3  # fewer cannot be split into a part to fit and a part to hold out


@dataclass(frozen=True)
class Memory:
    """Problems whose law has chosen what it believes, with the folds on which it did."""

    found: list[tuple[Problem, FloatArray, BoolArray, Tuned]]

    def tuned(
        self, problem: Problem, share: FloatArray, masks: BoolArray, progress: Callable[[int, int], None] | None = None
    ) -> Tuned:
        """What `tuning.tuned` gives, from memory where it was asked before."""
        for known, weights, folds, answer in self.found:
            same = known.packing == problem.packing and known.evidence is problem.evidence
            if same and np.array_equal(weights, share) and np.array_equal(folds, masks):
                return answer
        answer = tuned(problem, share, masks, progress)
        self.found.append((problem, share, masks, answer))
        return answer


@dataclass(frozen=True)
class Study:
    """One body of evidence and one way to fit it.

    Attributes
    ----------
    evidence : Evidence
        The rows, and which losses count.
    inputs : Inputs
        Labels, transfer matrix and languages table.
    settings : Settings
        Settings of the fit.
    seed : int
        Seed of every random draw.
    untrained : array (K,)
        Loss of an untrained model, nats; NaN where it is not known.
    memory : Memory
        What a law was found to believe, so that comparing and then fitting asks once.
    """

    evidence: Evidence
    inputs: Inputs
    settings: Settings
    seed: int
    untrained: FloatArray
    memory: Memory = field(default_factory=lambda: Memory([]), compare=False, repr=False)

    @property
    def log(self) -> RunLog:
        """The rows that may be fitted."""
        return self.evidence.log

    def only(self, rows: BoolArray) -> Study:
        """The study of some of its rows (R,) alone."""
        return replace(self, evidence=chosen(self.evidence, rows))

    @property
    def mixtures(self) -> int:
        """Number of different mixtures; of runs where all have one."""
        return len(np.unique(self.log.groups))

    def allowed(self) -> list[str]:
        """The laws that the inputs can feed, simplest first."""
        inputs = self.inputs
        there = {
            "mixture": len(inputs.sources) > 1,
            "transfer": inputs.transfer is not None,
            "families": inputs.languages is not None and any(inputs.languages.family),
        }
        return [name for name, law in LAWS.items() if all(there[need] for need in law.needs)]

    def cross_validation(self, folds: int) -> tuple[BoolArray, str]:
        """Held-out rows (V, R) of each of at most `folds` folds, and the design in words."""
        return fold_masks(self.log, folds), f"{folds}-fold cross-validation grouped by mixture"

    def inner_folds(self, rows: BoolArray) -> BoolArray:
        """Folds (V, R) of some rows (R,) alone, for choosing what a law believes."""
        log = self.log.select(rows)
        count = min(
            max(self.settings.folds, LEAST_FOLDS) if self.settings.folds else INNER_FOLDS, len(np.unique(log.groups))
        )
        masks = np.zeros((count, len(rows)), dtype=bool)
        masks[:, rows] = fold_masks(log, count)
        return masks

    def hold_out(self, *, leave_largest_N: bool = False, split: bool = False) -> tuple[BoolArray, str]:
        """Held-out rows of every fit (V, R) of a comparison, and the design in words.

        Raises
        ------
        UsageError
            If both designs are asked for, or the log does not allow the one that is.
        """
        log = self.log
        if leave_largest_N and split:
            raise UsageError("leaving out the largest size and using the split column exclude each other")
        if split:
            if log.split is None:
                raise UsageError("the log has no split column", hint="add one with the values fit and held-out")
            aside = np.array([label != "fit" for label in log.split])[None, :]
            return _some_of_both(aside, "split"), "rows held out by the split column"
        if leave_largest_N:
            return _some_of_both(largest_mask(log), "size"), f"largest size left out (N = {log.N.max():g})"
        return self.cross_validation(self.settings.folds)

    def provenance(self, law: type[Law]) -> dict[str, Json]:
        """What a reader needs to make the fit again: inputs by their hash, settings, seed, version."""
        transfer = self.inputs.transfer
        return {
            "shapleymix": version("shapleymix"),
            "log": self.log.origin,
            "log_sha256": self.log.digest,
            "transfer": None if transfer is None else dict(transfer.provenance),
            "law": law.name,
            "seed": self.seed,
            **asdict(self.settings),
        }


def study_of(
    logs: Logs,
    transfer: TransferMatrix | Table | None,
    languages: Languages | Table | None,
    settings: Settings,
    seed: int,
    *,
    vocabulary: float | None = None,
    with_held_out: bool = False,
) -> Study:
    """Read what a study needs; rows that a split column sets aside only `with_held_out`.

    Parameters
    ----------
    vocabulary : float, optional
        Size of the vocabulary, whose logarithm is the loss of an untrained model; a measured untrained loss (D = 0) is
        preferred.

    Raises
    ------
    DataError, UsageError
        If a table is wrong, or no row is left.
    """
    parse_whole(seed, "seed")
    log = one_log(logs)
    evidence = gather(log, settings, with_held_out=with_held_out)
    inputs = inputs_of(evidence.log, transfer, languages)
    evidence = replace(evidence, unique=limits_of(evidence.log, inputs.languages))
    if vocabulary is not None and not parse_number(vocabulary, "vocabulary") > 1:
        raise UsageError(f"a vocabulary of {vocabulary:g} entries", hint="give the number of tokens, such as 32000")
    return Study(evidence, inputs, settings, seed, _untrained(log, inputs, vocabulary))


def _untrained(log: RunLog, inputs: Inputs, vocabulary: float | None) -> FloatArray:
    """Loss of an untrained model (K,): measured in the log, or in the game that gave the matrix, or ln V."""
    known = untrained_losses(log)
    measured = {} if inputs.transfer is None else inputs.transfer.provenance.get("untrained")
    if isinstance(measured, dict):
        game = np.array([float(measured.get(name, np.nan)) for name in inputs.targets])
        known = np.where(np.isnan(known), game, known)
    if vocabulary is None:
        return known
    return np.where(np.isnan(known), np.log(vocabulary), known)


def _some_of_both(mask: BoolArray, what: str) -> BoolArray:
    if mask.all() or not mask.any():
        hint = "use folds, or give a log with " + ("several sizes" if what == "size" else "both kinds of rows")
        raise UsageError(f"the log has only one {what}: nothing to fit or nothing to hold out", hint=hint)
    return mask
