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
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from shapleymix_irds.accounts.step import Call, Pending
from shapleymix_irds.arrangement import Arrangement
from shapleymix_irds.batch import Inputs, ValidationSet, language_indices, rows, sample_of, total_tokens
from shapleymix_irds.batch import length as length_of
from shapleymix_irds.checks import check_modules, check_settings, checked
from shapleymix_irds.distributed import World, local
from shapleymix_irds.engines.base import LossFn, plain, trained
from shapleymix_irds.engines.observer import Losses as CallLosses
from shapleymix_irds.engines.observer import Watched
from shapleymix_irds.engines.sketches import Form
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.evaluating import Engine, Evaluator
from shapleymix_irds.measuring import aside, check_sums, measure_losses
from shapleymix_irds.options import Options, automatic
from shapleymix_irds.rates import Group
from shapleymix_irds.schedule import Schedule
from shapleymix_irds.stepping import Stepping

Sequences = tuple[Inputs, Tensor]


class IRDS(Stepping):
    """The tracker of one training run.

    Parameters
    ----------
    model : nn.Module
        The module as it is called in `loss_fn`: plain, compiled, DDP or FSDP2 (`fully_shard`). Wrap it first.
    languages : sequence of str
        Names of the K languages.
    val : mapping of str to Sequences, optional
        Validation sequences of each language, `{name: (x, y)}` with n sequences in front; x may be a dictionary of the
        model's inputs. The same on every rank, which divide them. None: training sequences stand in for them, which
        costs no pass and is right where each is trained on once and is of the kind that validation would be of. A
        sequence that comes again in a later epoch has been learnt, and makes values too small; the tracker cannot see
        that. Losses for calibration then come by `record_losses`, and a language's own value needs two sequences of
        it on a rank, or one on each of two, now and then.
    every : int or "auto"
        Block length m: one step of each block of m is evaluated; "auto" takes the m that holds `options.overhead`.
    engine : {"auto", "sketch", "exact"}
        "sketch" keeps `options.numbers` random projections of gradients, "exact" all of them; "auto" is exact for
        small models.
    order : {1, 2}
        With 2, validation gradients are taken at the middle of the step (holds a copy of this rank's weights).
    loss_fn : callable, optional
        As `backward` takes it: the loss of validation sequences, where training goes by `watch` alone.
    process_group : ProcessGroup, optional
        The data-parallel group; the default group if torch.distributed is initialised.
    parameter_groups : sequence of parameters or of dicts that hold "params", optional
        Groups of the parameters of which each has its learning rate in `commit`, such as `optimizer.param_groups`;
        None: one rate for all, or those of the optimiser that is followed.
    out : str or os.PathLike[str], optional
        Folder for the log of evaluations (Parquet); None: no log.
    arrangement : Arrangement, optional
        What a trainer with a parallelism of its own does to the model.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        *,
        val: Mapping[str, Sequences] | None,
        every: int | Literal["auto"] = "auto",
        engine: Engine = "auto",
        order: Literal[1, 2] = 1,
        loss_fn: LossFn | None = None,
        process_group: ProcessGroup | None = None,
        parameter_groups: Sequence[Group] | None = None,
        out: str | os.PathLike[str] | None = None,
        options: Options | None = None,
        arrangement: Arrangement | None = None,
    ) -> None:
        options = options or Options()
        check_settings(languages, every, engine, order, val is None)
        check_modules(model)
        self.device = local(next(p for p in model.parameters() if p.requires_grad)).device
        world = World.of(process_group, self.device)
        count, seed, ignore = options.val_sequences, options.seed, options.ignore_index
        validation = None if val is None else ValidationSet(val, languages, count, seed, ignore, options.pass_tokens)
        schedule = None if every == "auto" else Schedule(every, options.seed)
        form = Form(options.numbers, options.side)
        evaluator = Evaluator(
            model, world, languages, validation, engine, form, order, options.any_divisor, arrangement
        )
        evaluator.loss_fn = None if loss_fn is None else checked(loss_fn, "validation")
        super().__init__(model, languages, evaluator, schedule, options, out, parameter_groups)
        self.sequence_losses = torch.zeros(0)  # of the last `backward`

    @contextmanager
    def watch(
        self, lang: Tensor | Sequence[str], *, step: int, tokens: int | None = None, length: int | None = None
    ) -> Iterator[Watched]:
        """Run a forward and a backward pass within, in whatever way: they are not changed, only looked at.

        With `tokens` a call's loss is the sum over its own tokens, times ranks, over `tokens`. Without, it is the mean
        over its own tokens, and the step's is the mean over calls and ranks. With a validation set values are right in
        either case, and in any other: they are those of the gradients that are seen. Ranks average gradients.

        Parameters
        ----------
        lang : tensor or sequence of str
            Language of each sequence, (B,), or of each token of packed sequences, (B, S); indices or names. What goes
            back through a token's position counts as its language's: mask attention between documents.
        step, tokens : int
            As for `backward`, or None. Every token of a sequence counts.
        length : int, optional
            S, where the model's first layer does not tell.

        Returns
        -------
        Watched
            What is seen. Its `parts` may be given before the backward pass: losses by sequence (B,) or token (B, S),
            of which the loss is made, where parameters are in calls that are not covered.
        """
        step = self._check(step, tokens)
        with self._dropping():
            indices = language_indices(lang, self.languages, step, self.world.rank)
            spread = 1 if indices.dim() == 2 else length or self._usual_length()
            counts = torch.full(indices.shape, spread, dtype=torch.float64)
            total = float(counts.sum()) * self.world.size if tokens is None else float(tokens)
            call = Call(step, indices, counts, tokens, total, length, labelled=False, mean=tokens is None)
            with self._call(call, self.evaluator.loss_fn) as watched:
                yield watched or Watched()

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
        step = self._check(step, tokens)
        with self._dropping():
            place = f"step {step}, rank {self.world.rank}"
            indices = language_indices(lang, self.languages, step, self.world.rank)
            if not rows(x) == len(y) == len(indices):
                raise TrackerError(f"{place}: x, y and lang have {rows(x)}, {len(y)} and {len(indices)} rows")
            if indices.dim() == 2 and indices.shape != y.shape:
                kind = f"shape {tuple(indices.shape)} and type {indices.dtype}"
                raise TrackerError(f"{place}: lang has {kind}, expected a label for each sequence, or each token of y")
            total = total_tokens(y, tokens, self.options.ignore_index, self.world, place)
            counts = (y != self.options.ignore_index).to("cpu", torch.float64)
            counts = counts if indices.dim() == 2 else counts.flatten(1).sum(1)
            call = Call(step, indices, counts, tokens, total, length_of(x))
            losses = self._backward(loss_fn, x, y, call)
        return losses.sum() / total

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
        self.evaluator.check()
        with self.clock.measurement(), aside(self.model):
            world, count = self.world, self.options.measure_sequences
            pieces = self.validation.fixed(count, world.rank, world.size, self.device)
            losses = measure_losses(checked(loss_fn, "measure"), pieces, len(self.languages), world).numpy()
        self.record_losses(dict(zip(self.languages, losses.tolist(), strict=True)))
        return losses

    def _usual_length(self) -> int:
        first = None if self.validation is None else length_of(self.validation.parts[0][0])
        return first or 1

    def _prepare(self, loss_fn: LossFn | None, total: float) -> None:
        """Before the first step: the schedule, the losses at the start, a clean log."""
        if self.schedule is None:
            ranks = self.world.size
            val_tokens = 0 if self.validation is None else self.validation.tokens(ranks)
            mean = self.world.sum(torch.tensor(total / ranks**2, dtype=torch.float64, device=self.world.device))
            self.schedule = automatic(self.options, float(mean), val_tokens, self.evaluator.share)  # on all ranks
        if self.steps == 0 and self.pending is None:
            if self.log is not None:
                self.log.cut(0)
            if self.validation is not None and not self.losses.start and loss_fn is not None:
                self.measure(loss_fn)

    @contextmanager
    def _call(self, call: Call, loss_fn: LossFn | None) -> Iterator[Watched | None]:
        """One call of a step; where the step is evaluated, what is seen of it."""
        self._prepare(loss_fn, call.total)
        self.clock.begin()
        pending = self._open(call)
        if not pending.evaluated:
            yield None
            self._after_backward(pending)
            return
        args = (call.indices, call.length, self.ledger.count, self.options.seed)
        with self.evaluator.watch(pending, *args, self._kinds) as (watched, labels):
            watched.groups, watched.first = labels.groups, partial(self._before_backward, pending, call)
            yield watched
        if not watched.seen:
            raise TrackerError(f"step {call.step}: no backward pass was seen within `watch`")
        self._after_backward(pending)
        pending.count(labels.groups, call.counts)

    def _open(self, call: Call) -> Pending:
        if self.pending is None:
            empty = torch.zeros(self.evaluator.groups, dtype=torch.float64)
            zeros = torch.zeros(len(self.languages), dtype=torch.float64)
            told = (call.tokens is not None, empty, zeros, call.labelled, call.mean)
            self.pending = Pending(call.step, self.evaluates(call.step), call.total, *told)
        elif call.mean:
            self.pending.total += call.total
        self.pending.calls += 1
        return self.pending

    def _backward(self, loss_fn: LossFn, x: Inputs, y: Tensor, call: Call) -> Tensor:
        """The losses of the sequences (B,), differentiated."""
        checking = checked(loss_fn, f"step {call.step}, rank {self.world.rank}")
        self.evaluator.loss_fn = checking
        if self.validation is None and not self.evaluator.known:
            self.evaluator.sample = sample_of(x, y, self.options.ignore_index)
        scale = self.world.size / call.total
        if self.steps == 0 and self.pending is None:
            self.evaluator.check()
            self._prepare(loss_fn, call.total)
            check_sums(self.model, checking, (x, y), self.options.ignore_index, self.world)
        with self._call(call, loss_fn) as watched:
            both = checking(x, y)
            values = trained(both)
            if watched is not None and watched.groups is not None and call.indices.dim() == 1:
                watched.losses = CallLosses(values * scale, watched.groups)
            (values.sum() * scale).backward()
        self.sequence_losses = plain(both).detach()
        if watched is not None and self.pending is not None and call.indices.dim() == 1:
            self.pending.losses.index_add_(0, call.indices, self.sequence_losses.double().cpu())
        return self.sequence_losses
