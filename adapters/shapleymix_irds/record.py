"""The record of a run: its accounts, what is shown of them, and what is saved."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from shapleymix.records import Json
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.accounts.ledger import Ledger, Losses
from shapleymix_irds.accounts.log import EvaluationLog
from shapleymix_irds.accounts.matrix import efficiency, transfer_matrix
from shapleymix_irds.accounts.step import Pending
from shapleymix_irds.checks import non_embedding
from shapleymix_irds.errors import LanguageError, TrackerError
from shapleymix_irds.evaluating import Evaluator
from shapleymix_irds.measuring import Stopwatch
from shapleymix_irds.options import Options, Setting
from shapleymix_irds.schedule import Schedule
from shapleymix_irds.state import State

Kind = Literal["raw", "calibrated"]


class Record:
    """What a tracker knows of its run.

    Attributes
    ----------
    ledger, losses : Ledger and Losses
        Values so far, and measured validation losses.
    pending : Pending, optional
        The step between its first call and `commit`.
    steps, tokens, next_step : int, float and int
        Steps and tokens so far, and the least number that the next step may have.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        evaluator: Evaluator,
        schedule: Schedule | None,
        options: Options,
        out: str | os.PathLike[str] | None,
    ) -> None:
        self.model, self.languages, self.options = model, tuple(languages), options
        self.evaluator, self.schedule = evaluator, schedule
        self.world, self.validation = evaluator.world, evaluator.validation
        self.ledger, self.losses = Ledger(len(self.languages)), Losses()
        self.log = EvaluationLog(out, self.languages) if out is not None and self.world.rank == 0 else None
        self.pending: Pending | None = None
        self.steps, self.tokens, self.next_step = 0, 0.0, 0
        self.clock = Stopwatch()

    def record_losses(self, losses: Mapping[str, float]) -> None:
        """Give measured validation losses instead of `measure`: the first call is the run's start."""
        for name in losses:
            if name not in self.languages:
                raise LanguageError(f"a measured loss of an unknown language {name!r}")
        self.losses.record(dict(losses))
        self.clock.restart()

    def matrix(self, kind: Kind = "calibrated") -> TransferMatrix:
        """The SV matrix so far, with standard errors and provenance.

        Calibrated: each column scaled so that it sums to the measured drop of that validation loss.

        Raises
        ------
        TrackerError
            If nothing was evaluated or a value could not be estimated; calibrated also where a loss drop was not
            measured or a loss did not fall, or a column does not sum to more than 0.
        """
        return transfer_matrix(self.ledger, self.losses, self.languages, kind, self.provenance())

    def save(self, path: str | os.PathLike[str], kind: Kind = "calibrated", *, force: bool = False) -> None:
        """Write the SV matrix (rank 0 only) as CSV or Parquet by the path's ending; errors are those of `matrix`."""
        if self.log is not None:
            self.log.flush()
        matrix = self.matrix(kind)
        if self.world.rank == 0:
            matrix.write(path, force=force)

    @property
    def efficiency(self) -> NDArray[np.float64]:
        """Sum of each column of raw phi over the measured drop of that validation loss (K,); NaN if unknown."""
        return efficiency(self.ledger.phi, self.losses.drop(self.languages))

    @property
    def overhead(self) -> float:
        """Measured share of time added so far, with measuring losses; NaN before a plain and an evaluated step."""
        return float("nan") if self.schedule is None else self.clock.overhead(self.schedule.every)

    def state_dict(self) -> dict[str, str]:
        """State for the model's checkpoint: one JSON string under "irds" (the Stateful protocol of DCP).

        Raises
        ------
        TrackerError
            Between `backward` and `commit`.
        """
        self._check_whole()
        if self.log is not None:
            self.log.flush()
        self.clock.restart()
        every = self.schedule and self.schedule.every
        now = (self.steps, self.tokens, self.next_step, sorted(self.evaluator.observer.coverage.passed))
        return {"irds": State(self._settings(), every, self.ledger, self.losses, *now).to_text()}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume; cuts log rows after the checkpoint.

        Raises
        ------
        ResumeError
            If it is no tracker's state, or its languages or settings differ from this tracker's.
        """
        saved = State.of_checkpoint(state, self._settings(), self.schedule and self.schedule.every)
        if saved.every is not None:
            self.schedule = Schedule(saved.every, self.options.seed)
        self.ledger, self.losses = saved.ledger, saved.losses
        self.steps, self.tokens, self.next_step = saved.steps, saved.tokens, saved.next_step
        self.evaluator.observer.coverage.passed |= set(saved.passed)
        if self.log is not None:
            self.log.cut(self.next_step)

    def provenance(self) -> dict[str, Json]:
        """How the values came about, as the SV matrix carries it."""
        found: dict[str, Json] = {
            "N": non_embedding(self.model),
            "D": self.tokens,
            "steps": self.steps,
            "every": self.schedule and self.schedule.every,
            "engine": self.evaluator.observer.name,
            "order": self.evaluator.order,
            "mode": "plain gradients",
            "seed": self.options.seed,
        }
        found |= {"validation": "fresh training gradients"} if self.validation is None else self.validation.facts()
        return found | ({"fallback": self.fallback} if self.fallback else {})

    @property
    def fallback(self) -> str | None:
        """Which parameters take a pass a language, since they are used in calls that are not covered."""
        return self.evaluator.passed

    def _check_whole(self) -> None:
        """Whether the accounts are those of whole steps."""
        if self.pending is not None:
            raise TrackerError(f"step {self.pending.step} is not committed, so that it cannot be checkpointed")

    def _settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        own = {"languages": list(self.languages), "validation": self.validation is not None}
        return {**own, **self.evaluator.settings(), **self.options.settings()}
