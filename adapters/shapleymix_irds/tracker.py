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

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.accounts.ledger import Evaluation, Ledger, Losses
from shapleymix_irds.accounts.log import EvaluationLog
from shapleymix_irds.accounts.matrix import efficiency, transfer_matrix
from shapleymix_irds.accounts.step import Pending, clip_coefficient, learning_rate
from shapleymix_irds.batch import Batch, ValidationSet, arrange, language_indices, total_tokens
from shapleymix_irds.checks import check_modules, check_seen, check_settings, check_step, checked, non_embedding
from shapleymix_irds.distributed import World, local
from shapleymix_irds.engines.base import LossFn, Task, plain, trained
from shapleymix_irds.engines.choice import Choice
from shapleymix_irds.errors import LanguageError, TrackerError
from shapleymix_irds.measuring import Stopwatch, aside, check_sums, measure_losses
from shapleymix_irds.options import Options, Setting, automatic
from shapleymix_irds.schedule import Schedule
from shapleymix_irds.state import State
from shapleymix_irds.wrappers import named_parameters

Sequences = tuple[Tensor, Tensor]
Kind = Literal["raw", "calibrated"]


class IRDS:
    """The tracker of one training run.

    Parameters
    ----------
    model : nn.Module
        The module as it is called in `loss_fn`: plain, compiled, DDP or FSDP2 (`fully_shard`). Wrap it first.
    languages : sequence of str
        Names of the K languages.
    val : mapping of str to Sequences, optional
        Validation sequences of each language, `{name: (x, y)}` with x and y of shape (n, S), S as in training; the same
        on every rank. None: validation-free, where fresh training sequences stand in (single-epoch data from the
        validation distribution only).
    every : int or "auto"
        Block length m: one step of each block of m is evaluated; "auto" takes the m that holds `options.overhead`.
    engine : {"auto", "grouped", "micro"}
        "grouped" (one concatenated pass), "micro" (language-pure micro-batches: any layer, any option), or "auto":
        grouped where every parameter is covered.
    order : {1, 2}
        With 2, validation gradients are taken at the middle of the step (needs K gradients of memory; engine micro).
    process_group : ProcessGroup, optional
        The data-parallel group; the default group if torch.distributed is initialised.
    out : str or os.PathLike[str], optional
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
        process_group: ProcessGroup | None = None,
        out: str | os.PathLike[str] | None = None,
        options: Options | None = None,
    ) -> None:
        self.model, self.languages, self.order = model, tuple(languages), order
        self.options = options or Options()
        check_settings(self.languages, every, engine, order, val is None)
        check_modules(model)
        self.parameters = named_parameters(model)
        self.device = local(next(iter(self.parameters.values()))).device
        self.world = World.of(process_group, self.device)
        count, seed, ignore = self.options.val_sequences, self.options.seed, self.options.ignore_index
        self.validation = None if val is None else ValidationSet(val, self.languages, count, seed, ignore)
        self.schedule = None if every == "auto" else Schedule(every, self.options.seed)
        parts = (model, self.parameters, self.world, engine, order, len(self.languages), self.options)
        self.choice = Choice(*parts)
        self.ledger, self.losses = Ledger(len(self.languages)), Losses()
        self.log = EvaluationLog(out, self.languages) if out is not None and self.world.rank == 0 else None
        self.pending: Pending | None = None
        self.sequence_losses = torch.zeros(0)  # of the last `backward`
        self.steps, self.tokens, self.next_step = 0, 0.0, 0
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
        loss_fn : callable
            `loss_fn(x, y)` returns the token loss summed over each sequence, shape (B,), by a call of the model that
            was given to the tracker. It may return a pair: the loss to train on (for example with z-loss), and the
            plain loss to measure on validation sequences.
        x, y : tensor
            This rank's sequences and labels, shape (B, S).
        lang : tensor or sequence of str
            Language of each sequence, shape (B,): indices into `languages`, or names.
        step : int
            Number of the step, counted from 0. Several calls with one step accumulate; then give `tokens` and
            `micro_batches`.
        tokens : int, optional
            Tokens of the whole step over all ranks and micro-batches, by which the summed loss is divided; the same in
            each of its calls. None, where there is one call: its own over all ranks (one all-reduce).

        Returns
        -------
        Tensor
            This rank's part of the step's mean loss (detached): its sum over ranks and micro-batches is the mean
            loss a token. `sequence_losses` then has the loss of each sequence, (B,), in the order of `x`.
        """
        step = check_step(step, self.next_step)
        if self.pending is not None:
            self.pending.check_call(step, tokens)
        with self._dropping():
            place = f"step {step}, rank {self.world.rank}"
            indices = language_indices(lang, self.languages, step, self.world.rank)
            if not len(x) == len(y) == len(indices):
                raise TrackerError(f"{place}: x, y and lang have {len(x)}, {len(y)} and {len(indices)} rows")
            total = total_tokens(y, tokens, self.options.ignore_index, self.world, place)
            self._prepare(loss_fn, place, (x, y), total)
            self.watch.begin()
            pending = self._open(step, total, tokens is not None)
            self.sequence_losses = self._pass(checked(loss_fn, place), x, y, indices, pending)
        return self.sequence_losses.sum() / total

    def commit(self, *, lr: float, grad_norm: float | Tensor | None = None, max_norm: float | None = None) -> None:
        """Add the step to phi, after clipping and before `optimizer.step()`; cheap on steps not evaluated.

        Parameters
        ----------
        lr : float
            The scheduled learning rate of this step.
        grad_norm, max_norm : float, optional
            The norm that `clip_grad_norm_` returned, and its limit, if the gradients were clipped.
        """
        pending = self.pending
        if pending is None:
            after = f"after step {self.next_step - 1}" if self.steps else "before the first step"
            raise TrackerError(f"commit without backward {after}", hint="call `backward` once or more a step")
        with self._dropping():
            lr = learning_rate(lr, pending.step)
            if pending.evaluated:
                self._book(pending, lr, grad_norm, max_norm)
            elif not isinstance(grad_norm, Tensor):  # which would have to come from the device
                clip_coefficient(grad_norm, max_norm, pending.step)
        self.pending = None
        self.steps, self.tokens, self.next_step = self.steps + 1, self.tokens + pending.total, pending.step + 1
        self.watch.lap(pending.evaluated)
        check_seen(self.languages, self.ledger.unseen, self.options.unseen_limit, pending.step)

    def evaluates(self, step: int) -> bool:
        """Whether `step` is evaluated; with `every="auto"` this is known from the first `backward` on."""
        return self.schedule is not None and self.schedule.evaluates(step)

    def measure(self, loss_fn: LossFn) -> NDArray[np.float64]:
        """Mean validation loss of each language (K,) now, on a fixed part of the set, with the model in eval mode.

        The first `backward` calls it (the start of the run); call it at the end, and at checkpoints for which a
        calibrated matrix is wanted, on every rank. Validation-free: give losses to `record_losses` instead.
        """
        if self.validation is None:
            hint = "give measured losses to `record_losses`"
            raise TrackerError("a validation-free tracker has no validation set to measure on", hint=hint)
        with self.watch.measurement(), aside(self.model):
            part = self.validation.fixed(self.options.measure_sequences, self.device)
            losses = measure_losses(checked(loss_fn, "measure"), part).numpy()
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
        every = self.schedule and self.schedule.every
        now = (self.steps, self.tokens, self.next_step)
        return {"irds": State(self._settings(), every, self.ledger, self.losses, *now).to_text()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
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
        if self.log is not None:
            self.log.cut(self.next_step)

    def provenance(self) -> dict[str, Any]:
        """How the values came about, as the SV matrix carries it."""
        found = {
            "N": non_embedding(self.model),
            "D": self.tokens,
            "steps": self.steps,
            "every": self.schedule and self.schedule.every,
            "engine": self.choice.engine and self.choice.engine.name,
            "order": self.order,
            "mode": "plain gradients",
            "seed": self.options.seed,
        }
        found |= {"validation": "fresh training gradients"} if self.validation is None else self.validation.facts()
        return found | ({"fallback": self.choice.fallback} if self.choice.fallback else {})

    def _settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        own = {"languages": list(self.languages), "validation": self.validation is not None}
        return {**own, **self.choice.settings(), **self.options.settings()}

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """A step in which something fails is dropped, so that a later one can begin."""
        try:
            yield
        except BaseException:
            self.pending = None
            self.choice.forget()
            raise

    def _prepare(self, loss_fn: LossFn, place: str, few: Sequences, total: float) -> None:
        """Before the first step: the schedule, the losses at the start, a clean log."""
        if self.schedule is None:
            val_tokens = None if self.validation is None else self.validation.tokens
            self.schedule = automatic(self.options, total / self.world.size, val_tokens, len(self.languages))
        if self.steps == 0 and self.pending is None:
            if self.log is not None:
                self.log.cut(0)
            if self.validation is not None and not self.losses.start:
                self.measure(loss_fn)
            check_sums(self.model, checked(loss_fn, place), few, self.options.ignore_index, self.world)

    def _open(self, step: int, total: float, given: bool) -> Pending:
        if self.pending is None:
            self.pending = Pending(step, self.evaluates(step), total, given)
        self.pending.calls += 1
        return self.pending

    def _pass(self, loss_fn: LossFn, x: Tensor, y: Tensor, indices: Tensor, pending: Pending) -> Tensor:
        """The call itself; the loss of each sequence (B,)."""
        languages, scale = len(self.languages), self.world.size / pending.total
        if not pending.evaluated:
            both = loss_fn(x, y)
            (trained(both).sum() * scale).backward()
            return plain(both).detach()
        batch, order = arrange(x, y, indices, languages, self.options.ignore_index, self.validation is None)
        task = Task(loss_fn, batch, self._val(pending, self.options.micro_batches, x.device), scale, languages)
        outcome = self.choice.run(task, lambda: self._val(pending, 1, x.device), pending.step)
        pending.add(outcome, batch, languages)
        return torch.empty_like(outcome.losses).index_copy_(0, order.to(outcome.losses.device), outcome.losses)

    def _val(self, pending: Pending, pieces: int, device: torch.device) -> Batch | None:
        """The validation sequences of a call, if an evaluation's are divided among so many."""
        if self.validation is None:
            return None
        return self.validation.take(self.ledger.count, device, min(pending.calls, pieces) - 1, pieces)

    def _book(self, pending: Pending, lr: float, grad_norm: float | Tensor | None, max_norm: float | None) -> None:
        assert self.schedule is not None
        second = self.choice.finish(lr, pending.step)
        sums = pending.close(second, self.world, self.device, self.languages, self.options.any_divisor)
        clip = clip_coefficient(grad_norm, max_norm, pending.step)
        evaluation = Evaluation(pending.step, float(self.schedule.every), lr, clip, *sums)
        self.ledger.add(evaluation)
        if self.log is not None:
            self.log.add(evaluation)
