"""`IRDS`: measure who teaches whom while a model trains (ShapleyLaw paper, appendix on IRDS, first-order eq.).

Four lines in a training loop::

    tracker = IRDS(model, languages, val=validation)
    loss = tracker.backward(loss_fn, x, y, lang, step=step)             # replaces loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    tracker.commit(lr=lr, grad_norm=norm, max_norm=1.0); optimizer.step()

Notation: K languages; g_i is the gradient of the training loss summed over language i's part of the batch, so
that sum_i g_i is what the optimiser gets; h_j is the gradient of the mean validation loss of language j; a
*Gram* is the (K, K) matrix <h_j, g_i>, row i the source; phi += weight * lr * clip * Gram.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.batch import Batch, ValidationSet, arrange, labelled, language_indices
from shapleymix_irds.checks import check_modules, check_settings
from shapleymix_irds.distributed import World, local, named_parameters
from shapleymix_irds.engine import Engine, LossFn, Task, plain, trained
from shapleymix_irds.errors import CoverageError, LanguageError, TrackerError
from shapleymix_irds.joint import GroupedEngine, check_coverage
from shapleymix_irds.ledger import Ledger, Losses
from shapleymix_irds.log import EvaluationLog
from shapleymix_irds.measuring import Stopwatch, measure_losses
from shapleymix_irds.micro import MicroEngine
from shapleymix_irds.options import Options
from shapleymix_irds.pending import Pending, clip_coefficient, close
from shapleymix_irds.report import efficiency, transfer_matrix
from shapleymix_irds.schedule import Schedule, choose_every, extra_cost
from shapleymix_irds.state import document_of, provenance, restore

Sequences = tuple[Tensor, Tensor]
Kind = Literal["raw", "calibrated"]


class IRDS:
    """The tracker of one training run.

    Parameters
    ----------
    model
        The module as it is called in `loss_fn`: plain, compiled, DDP or FSDP2 (`fully_shard`). Wrap it first.
    languages
        Names of the K languages.
    val
        Validation sequences of each language, `{name: (x, y)}` with x and y of shape (n, S), S as in training;
        the same on every rank. None: validation-free, where fresh training sequences stand in (single-epoch
        data from the validation distribution only).
    every
        m: one step of each block of m is evaluated; "auto" takes the m that holds `options.overhead`.
    engine
        "grouped" (one concatenated pass), "micro" (language-pure micro-batches: any layer, any option), or
        "auto": grouped where every parameter is covered.
    order
        1, or 2: validation gradients at the middle of the step (needs K gradients of memory; engine micro).
    precondition
        The AdamW optimiser, if the products are to be weighted by 1 / (sqrt(v) + eps) (engine micro).
    process_group
        The data-parallel group; the default group if torch.distributed is initialised.
    out
        Folder for the log of evaluations (Parquet); None: no log.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        *,
        val: Mapping[str, Sequences] | None,
        every: int | Literal["auto"] = "auto",
        engine: Literal["auto", "grouped", "micro"] = "auto",
        order: Literal[1, 2] = 1,
        precondition: torch.optim.Optimizer | None = None,
        process_group: Any = None,
        out: str | os.PathLike[str] | None = None,
        options: Options | None = None,
    ) -> None:
        self.model, self.languages, self.order = model, tuple(languages), order
        self.options = options or Options()
        self.world = World.of(process_group)
        check_settings(self.languages, every, engine, order, val is None, precondition is not None)
        check_modules(model)
        self.parameters = named_parameters(model)
        self.device = local(next(iter(self.parameters.values()))).device
        self.validation = None if val is None else self._validation_set(val)
        self.schedule = None if every == "auto" else Schedule(every, self.options.seed)
        self.wanted, self.optimizer = engine, precondition
        self.engine: Engine | None = None
        self.fallback: str | None = None  # why engine="auto" did not take "grouped"
        self.ledger, self.losses = Ledger(len(self.languages)), Losses()
        self.log = EvaluationLog(out, self.languages) if out is not None and self.world.rank == 0 else None
        self.pending: Pending | None = None
        self.steps, self.tokens, self.next_step = 0, 0.0, -1
        self.watch = Stopwatch()

    def backward(
        self,
        loss_fn: LossFn,
        x: Tensor,
        y: Tensor,
        lang: Tensor | Sequence[str],
        *,
        step: int,
        tokens: int | None = None,
    ) -> Tensor:
        """Replace `loss.backward()`: gradients as ever, and on an evaluated step the Gram, too.

        Parameters
        ----------
        loss_fn
            `loss_fn(x, y)` returns the token loss summed over each sequence, shape (B,): it calls the model
            that was given to the tracker. It may return a pair: (what is trained on, for example with z-loss;
            the plain loss to measure on validation sequences).
        x, y
            This rank's sequences and labels, shape (B, S).
        lang
            Language of each sequence, shape (B,): indices into `languages`, or names.
        step
            Counted from 0. Several calls with one step accumulate; then give `tokens` and `micro_batches`.
        tokens
            Tokens of the whole step over all ranks and micro-batches, by which the summed loss is divided.
            None: those of this call over all ranks (one all-reduce).

        Returns
        -------
        Tensor
            This rank's part of the step's mean loss (detached): its sum over ranks and micro-batches is
            the mean loss a token.
        """
        indices = language_indices(lang, self.languages, step, self.world.rank)
        if not len(x) == len(y) == len(indices):
            sizes = f"{len(x)}, {len(y)} and {len(indices)}"
            raise TrackerError(f"step {step}, rank {self.world.rank}: x, y and lang have {sizes} rows")
        total = self._total(y, tokens, step)
        self._prepare(loss_fn, x, total)
        self.watch.begin()
        pending = self._open(step, total)
        scale = self.world.size / total
        if not pending.evaluated:
            both = loss_fn(x, y)
            (trained(both).sum() * scale).backward()
            return plain(both).detach().sum() / total
        batch = arrange(x, y, indices, len(self.languages), self.options.ignore_index, self.validation is None)
        task = Task(
            loss_fn, batch, self._val(pending, self.options.micro_batches, x.device), scale, len(self.languages)
        )
        engine = self._choose(task)
        if isinstance(engine, MicroEngine):  # which passes validation sequences once a step
            task = replace(task, val=self._val(pending, 1, x.device))
        outcome = engine.run(task)
        pending.add(outcome, batch, len(self.languages))
        return outcome.losses.sum() / total

    def commit(self, *, lr: float, grad_norm: float | Tensor | None = None, max_norm: float | None = None) -> None:
        """Add the step to phi, after clipping and before `optimizer.step()`; cheap on steps not evaluated.

        Parameters
        ----------
        lr
            The scheduled learning rate of this step.
        grad_norm, max_norm
            What `clip_grad_norm_` returned and its limit, if the gradients were clipped.
        """
        pending, self.pending = self.pending, None
        if pending is None:
            after = f"after step {self.next_step - 1}" if self.steps else "before the first step"
            raise TrackerError(f"commit without backward {after}", hint="call `backward` once or more a step")
        if pending.evaluated:
            self._book(pending, float(lr), clip_coefficient(grad_norm, max_norm, pending.step))
        self.steps, self.tokens, self.next_step = (
            self.steps + 1,
            self.tokens + pending.total,
            pending.step + 1,
        )
        self.watch.lap(pending.evaluated)

    def evaluates(self, step: int) -> bool:
        """Whether `step` is evaluated; with `every="auto"` this is known from the first `backward` on."""
        return self.schedule is not None and self.schedule.evaluates(step)

    def measure(self, loss_fn: LossFn) -> NDArray[np.float64]:
        """Mean validation loss of each language (K,) now, on a fixed part of the validation set.

        The first `backward` calls it (the start of the run); call it at the end, and at checkpoints for which
        a calibrated matrix is wanted. Every rank must call it. Validation-free trackers have no validation
        set: give the losses to `record_losses` instead.
        """
        if self.validation is None:
            hint = "give measured losses to `record_losses`"
            raise TrackerError("a validation-free tracker has no validation set to measure on", hint=hint)
        with self.watch.measurement():
            part = self.validation.fixed(self.options.measure_sequences, self.device)
            losses = measure_losses(loss_fn, part).numpy()
        self.record_losses(dict(zip(self.languages, losses.tolist(), strict=True)))
        return losses

    def record_losses(self, losses: Mapping[str, float]) -> None:
        """Give measured validation losses instead of `measure`: the first call is the run's start."""
        for name in losses:
            if name not in self.languages:
                raise LanguageError(f"a measured loss of an unknown language {name!r}")
        self.losses.record(dict(losses))
        self.watch.restart()

    def matrix(self, kind: Kind = "calibrated") -> TransferMatrix:
        """The SV matrix so far as the core's TransferMatrix, with standard errors and provenance.

        Calibrated: each column scaled so that it sums to the measured drop of that validation loss.

        Raises
        ------
        TrackerError
            If nothing was evaluated or a value could not be estimated; calibrated also where a loss drop was not
            measured or a loss did not fall, or a column does not sum to more than 0.
        """
        return transfer_matrix(self.ledger, self.losses, self.languages, kind, provenance(self))

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
        """Measured share of time added so far: evaluated steps against plain ones, and measuring losses.

        NaN before both kinds of step were seen: where every step is evaluated there is nothing to compare with.
        """
        return float("nan") if self.schedule is None else self.watch.overhead(self.schedule.every)

    def state_dict(self) -> dict[str, Any]:
        """State for the model's checkpoint: one JSON string under "irds" (the Stateful protocol of DCP).

        Raises
        ------
        TrackerError
            Between `backward` and `commit`.
        """
        if self.pending is not None:
            raise TrackerError(f"step {self.pending.step} is not committed, so that it cannot be checkpointed")
        if self.log is not None:
            self.log.flush()
        self.watch.restart()
        return {"irds": json.dumps(document_of(self))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; cuts log rows after the checkpoint.

        Raises
        ------
        ResumeError
            If the checkpoint's languages or settings differ from this tracker's.
        """
        restore(self, json.loads(state["irds"]))

    def _validation_set(self, val: Mapping[str, Sequences]) -> ValidationSet:
        options = self.options
        return ValidationSet(val, self.languages, options.val_sequences, options.seed, options.ignore_index)

    def _total(self, y: Tensor, tokens: int | None, step: int) -> float:
        """N, the tokens of the step over ranks and micro-batches."""
        if tokens is None:
            counted = labelled(y, self.options.ignore_index).sum().double()
            tokens = float(self.world.sum(counted))  # type: ignore[assignment]
        if not tokens > 0:  # type: ignore[operator]
            raise TrackerError(f"step {step}, rank {self.world.rank}: no token of the step has a label")
        return float(tokens)  # type: ignore[arg-type]

    def _prepare(self, loss_fn: LossFn, x: Tensor, total: float) -> None:
        """Before the first step: the schedule, the losses at the start, a clean log."""
        if self.schedule is None:
            val_tokens = 0 if self.validation is None else self.validation.tokens
            extra = extra_cost(total / self.world.size, val_tokens, len(self.languages), self.validation is None)
            every = choose_every(extra, self.options.overhead, self.options.total_steps)
            self.schedule = Schedule(every, self.options.seed)
        if self.steps == 0 and self.pending is None:
            if self.log is not None:
                self.log.cut(0)
            if self.validation is not None and not self.losses.start:
                self.measure(loss_fn)

    def _open(self, step: int, total: float) -> Pending:
        if self.pending is None:
            assert self.schedule is not None
            self.pending = Pending(step, self.schedule.evaluates(step))
        if self.pending.step != step:
            hint = "call `commit` after each step's last `backward`"
            raise TrackerError(f"backward of step {step}, but step {self.pending.step} is not committed", hint=hint)
        self.pending.calls += 1
        self.pending.total = total if self.pending.calls == 1 else max(total, self.pending.total)
        return self.pending

    def _val(self, pending: Pending, pieces: int, device: torch.device) -> Batch | None:
        """The validation sequences of a call, if an evaluation's are divided among so many."""
        if self.validation is None:
            return None
        return self.validation.take(self.ledger.count, device, min(pending.calls, pieces) - 1, pieces)

    def _choose(self, task: Task) -> Engine:
        """The engine; with "auto", grouped where every parameter is covered."""
        if self.engine is None:
            whole = self.order == 2 or self.optimizer is not None
            many = self.wanted == "auto" and len(self.languages) <= self.options.micro_batches
            grouped = self.wanted != "micro" and not whole and not many
            if grouped:
                grouped = self._covered(task)
            micro = MicroEngine(self.model, self.parameters.values(), self.world, self.order, self.optimizer)
            self.engine = GroupedEngine(self.parameters.values(), self.options.chunk_mib) if grouped else micro
        return self.engine

    def _covered(self, task: Task) -> bool:
        try:
            check_coverage(self.model, self.parameters, task)
        except CoverageError as error:
            if self.wanted == "grouped":
                raise
            self.fallback = error.message
            return False
        return True

    def _book(self, pending: Pending, lr: float, clip: float) -> None:
        assert self.engine is not None
        assert self.schedule is not None
        second = self.engine.finish(lr)
        weight = float(self.schedule.every)
        evaluation = close(pending, second, self.world, self.device, self.languages, weight, lr, clip)
        self.ledger.add(evaluation)
        if self.log is not None:
            self.log.add(evaluation)
        for name, count in zip(self.languages, self.ledger.unseen, strict=True):
            if count >= self.options.unseen_limit:
                hint = "leave it out of the tracker's languages, or raise Options(unseen_limit=...)"
                raise LanguageError(f"step {pending.step}: no token of {name!r} in {count} evaluations", hint=hint)
