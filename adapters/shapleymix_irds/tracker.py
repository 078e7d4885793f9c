"""`IRDS`: measure who teaches whom while a model trains (ShapleyLaw paper, appendix on IRDS, first-order eq.).

K languages; g_i gradient of the training loss over language i's part of the batch; h_j that of the mean validation loss
of language j; Gram (K, K) is <h_j, g_i>; phi += weight * lr * clip * Gram.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from shapleymix.errors import caution
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_irds.batch import (
    Inputs,
    LossFn,
    Sequences,
    ValidationSet,
    checked,
    language_indices,
    length,
    plain,
    sample_of,
    trained,
)
from shapleymix_irds.engine import Engine, Watched
from shapleymix_irds.errors import LanguageError, TrackerError
from shapleymix_irds.following import Following, Rates, numbered, squares, unwrapped
from shapleymix_irds.ledger import VERSION, EvaluationLog, Kind, Ledger, MeasuredLosses, read_state, transfer_matrix
from shapleymix_irds.schedule import Options, Schedule, check_settings
from shapleymix_irds.step import Call, Pending, close
from shapleymix_irds.world import Arrangement, World, isolated, local, non_embedding

EngineName = Literal["auto", "sketch", "exact"]
EXACT = 2**22  # numbers of exact gradients by group that "auto" holds


class IRDS:
    """The tracker of one training run.

    Parameters
    ----------
    model : nn.Module
        The module as it is called in `loss_fn`: plain, compiled, DDP or FSDP2 (`fully_shard`). Wrap it first.
    languages : sequence of str
        Names of the K languages.
    val : mapping of str to Sequences, optional
        Validation sequences of each language, `{name: (x, y)}` with n sequences in front; x may be a dictionary of the
        model's inputs. The same on every rank, which divide them. None: training sequences stand in for them, which is
        right where none is trained on twice, and needs `backward`. Losses for calibration then come by
        `record_losses`, and a language's own value needs two sequences of it on a rank, or one on each of two, now and
        then.
    every : int or "auto"
        Block length m: one step of each block of m is evaluated; "auto" takes the m that holds `options.overhead`.
    engine : {"auto", "sketch", "exact"}
        "sketch" brings each row of a gradient to `options.side` numbers, "exact" keeps all; "auto" is exact for small
        models.
    loss_fn : callable, optional
        As `backward` takes it: the loss of validation sequences, where training goes by `watch` alone.
    process_group : ProcessGroup, optional
        The data-parallel group; the default group if torch.distributed is initialised.
    out : str or os.PathLike[str], optional
        Folder for the log of evaluations (Parquet); None: no log.
    options : Options, optional
        Settings beyond the common ones.
    arrangement : Arrangement, optional
        What a trainer with a parallelism of its own does to the model.

    Attributes
    ----------
    ledger, losses : Ledger and MeasuredLosses
        Values so far, and measured validation losses.
    steps, next_step : int
        So far, and the least number that the next step may have.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        *,
        val: Mapping[str, Sequences] | None,
        every: int | Literal["auto"] = "auto",
        engine: EngineName = "auto",
        loss_fn: LossFn | None = None,
        process_group: ProcessGroup | None = None,
        out: str | os.PathLike[str] | None = None,
        options: Options | None = None,
        arrangement: Arrangement | None = None,
    ) -> None:
        check_settings(languages, every, engine)
        self.model, self.languages, self.options = model, tuple(languages), options or Options()
        weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not weights:
            raise TrackerError("no parameter of the model is trained", hint="set requires_grad before this")
        self.world = World.of(process_group, local(weights[0]).device)
        self.validation = None if val is None else ValidationSet(val, languages, self.options)
        self.auto, self.seen_first_call = every == "auto", False
        self.schedule = None if every == "auto" else Schedule(every, self.options.seed)
        numbers = sum(p.numel() for p in weights) * len(languages) * (2 if val is None else 1)
        exact = engine == "exact" or (engine == "auto" and numbers <= EXACT)
        columns = 0 if exact else self.options.side
        loss = None if loss_fn is None else checked(loss_fn, "validation")
        self.engine = Engine(model, self.world, languages, self.validation, columns, arrangement, loss)
        self.ledger, self.losses = Ledger(len(languages)), MeasuredLosses()
        self.log = EvaluationLog(out, languages) if out is not None and self.world.main else None
        self.pending: Pending | None = None
        self.following: Following | None = None
        self.steps, self.next_step = 0, 0
        self.trained: float | Tensor = 0.0  # tokens, as they are counted on the device
        self.sequence_losses = torch.zeros(0)

    @contextmanager
    def watch(
        self, lang: Tensor | Sequence[str], *, step: int, tokens: int | Tensor | None = None, length: int | None = None
    ) -> Iterator[Watched]:
        """Run a forward and a backward pass within, in whatever way: they are not changed, only looked at.

        With `tokens` a call's loss is the sum over its own tokens, times ranks, over `tokens`. Without, it is the mean
        over its own tokens, and the step's is the mean over calls and ranks. Values are right in either case, and in
        any other: they are those of the gradients that are seen. Ranks average gradients.

        Parameters
        ----------
        lang : tensor or sequence of str
            Language of each sequence, (B,), or of each token of packed sequences, (B, S); indices or names. What goes
            back through a token's position counts as its language's: mask attention between documents.
        step, tokens : int
            As for `backward`, or None.
        length : int, optional
            S, where the model's first layer does not tell.

        Returns
        -------
        Watched
            What is seen. Its `parts` may be given before the backward pass: losses by sequence (B,) or token (B, S),
            of which the loss is made, where parameters are in calls that are not covered.

        Raises
        ------
        TrackerError
            If there is no validation set: what the loss is a mean of must be known then, as in `backward`.
        """
        if self.validation is None:
            raise TrackerError("`watch` needs validation sequences", hint="give `val=`, or train by `backward`")
        step, place = self._enter(step, tokens)
        with self._dropping():
            indices = language_indices(lang, self.languages, place, self._looks_at(step))
            usual = 1 if indices.dim() == 2 else length or self.validation.length or 1
            counts = torch.full(indices.shape, usual)
            total = float(indices.numel() * usual * self.world.size) if tokens is None else tokens
            total = total.double() if isinstance(total, Tensor) else float(total)  # single precision loses count
            call = Call(step, place, indices, counts, tokens, total, length, mean=tokens is None)
            with self._call(call, self.engine.loss_fn) as watched:
                yield watched

    def backward(
        self,
        loss_fn: LossFn,
        x: Inputs,
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
            Language of each sequence, (B,), or of each token, (B, S): indices into `languages`, or names.
        step : int
            Number of the step, counted from 0. Several calls with one step accumulate; then give `tokens`.
        tokens : int, optional
            Tokens of the whole step over all ranks and micro-batches, by which the summed loss is divided; the same in
            each of its calls. None, where there is one call: its own over all ranks (one all-reduce).

        Returns
        -------
        Tensor
            This rank's part of the step's mean loss (detached): its sum over ranks and micro-batches is the mean
            loss a token. `sequence_losses` then has the loss of each sequence, (B,), in the order of `x`.
        """
        step, place = self._enter(step, tokens)
        with self._dropping():
            indices = language_indices(lang, self.languages, place, self._looks_at(step))
            seen = (y != self.options.ignore_index).flatten(1)
            total = self.world.sum(seen.sum().double()) if tokens is None else float(tokens)
            counts = seen if indices.dim() == 2 else seen.sum(1)
            call = Call(step, place, indices, counts, tokens, total, length(x))
            self.engine.loss_fn = checking = checked(loss_fn, place)
            if self.validation is None and not self.engine.first_pass.is_over:
                self.engine.examine(sample_of(x, y, self.options.ignore_index, y.device))
            with self._call(call, loss_fn) as watched:
                both = checking(x, y)
                values = trained(both)
                if call.indices.dim() == 1:
                    watched.parts = values
                exact = torch.promote_types(values.dtype, torch.float32)
                whole = total.clamp(min=1).to(exact) if isinstance(total, Tensor) else max(total, 1.0)
                (values.sum() * (self.world.size / whole)).backward()
            self.sequence_losses = plain(both).detach()
        return self.sequence_losses.sum() / whole

    @property
    def tokens(self) -> float:
        """Tokens trained on so far."""
        return float(self.trained)

    def evaluates(self, step: int) -> bool:
        """Whether `step` is evaluated; with `every="auto"` this is known from the first `backward` on."""
        return self.schedule is not None and self.schedule.evaluates(step)

    def _looks_at(self, step: int) -> bool:
        """Whether a call of this step is looked at."""
        return not self.seen_first_call or self.evaluates(step)

    def commit(
        self,
        *,
        lr: float,
        grad_norm: float | Tensor | None = None,
        max_norm: float | None = None,
        grad_scale: float | Tensor = 1.0,
    ) -> None:
        """Add the step to phi, after clipping and before `optimizer.step()`; cheap on steps not evaluated.

        Parameters
        ----------
        lr : float
            The learning rate of this step; where parameter groups have several, `follow` the optimiser.
        grad_norm, max_norm : float, optional
            The norm that `clip_grad_norm_` returned, and its limit, if the gradients were clipped.
        grad_scale : float or tensor
            What the loss was multiplied with before it was differentiated.
        """
        pending = self._begun(by_hand=True)
        with self._dropping():
            if pending.evaluated:
                lrs = dict.fromkeys(self.engine.parameters, float(lr))
                self._book(pending, Rates.clipped(lrs, grad_norm, max_norm, float(grad_scale), pending.step))
        self._end(pending)

    def follow(self, *optimizers: Optimizer, hook: bool = True) -> None:
        """From now on, commit when these optimisers take their steps: leave `commit` out.

        Learning rates are those of their parameter groups; what clipping and averaging multiply gradients with is
        measured on evaluated steps. Values are those of plain gradient descent at these rates, whatever the optimisers
        are. Each must take each step: one that a `GradScaler` skips ends in an error.

        Parameters
        ----------
        optimizers : torch.optim.Optimizer
            All that train the model: a step is committed when each has been called.
        hook : bool
            Whether they commit by themselves; otherwise a trainer calls `take` before each takes its step.

        Raises
        ------
        TrackerError
            If a trained parameter is in no group of theirs, or in two. Later, by `optimizer.step()`: if gradients were
            changed otherwise than by one factor for all of a parameter group since the backward pass.
        """
        if self.following is not None or self.pending is not None or not optimizers:
            raise TrackerError("call `follow` once, with all optimisers, and between two steps")
        following = Following([unwrapped(optimizer) for optimizer in optimizers], self.world)
        numbered(following.groups, self.engine.parameters)
        if hook:
            following.hook(self.take)
        self.following = following

    def measure(self, loss_fn: LossFn) -> NDArray[np.float64]:
        """Mean validation loss of each language (K,) now, on a fixed part of the set, with the model in eval mode.

        The first step begins with it (the start of the run); call it at the end, and at checkpoints for which a
        calibrated matrix is wanted, on every rank. Validation-free: give losses to `record_losses` instead.
        """
        if self.validation is None:
            hint = "give measured losses to `record_losses`"
            raise TrackerError("a validation-free tracker has no validation set to measure on", hint=hint)
        self.engine.check()
        world, sums = self.world, torch.zeros((2, len(self.languages)), dtype=torch.float64)
        with isolated(self.model, evaluating=True), torch.no_grad(), torch.compiler.set_stance("force_eager"):
            for piece in self.validation.fixed(self.options.measure_sequences, world):
                piece.add(sums, plain(checked(loss_fn, "measure")(piece.x, piece.y)))
        total, tokens = world.sum(sums.to(world.device)).cpu().numpy()
        self.record_losses(dict(zip(self.languages, (total / tokens).tolist(), strict=True)))
        return total / tokens

    def record_losses(self, losses: Mapping[str, float]) -> None:
        """Give measured validation losses instead of `measure`: the first call is the run's start."""
        if unknown := sorted(set(losses).difference(self.languages)):
            raise LanguageError(f"a measured loss of an unknown language {unknown[0]!r}")
        self.losses.record(losses)

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
        if self.world.main:
            matrix.write(path, force=force)

    def provenance(self) -> dict[str, Any]:
        """How the values came about, as the SV matrix carries it."""
        run: dict[str, Any] = {"N": non_embedding(self.model), "D": self.tokens, "steps": self.steps}
        run |= {"every": self.schedule and self.schedule.every, "seed": self.options.seed}
        return run | {"engine": self.engine.name}

    def state_dict(self) -> dict[str, str]:
        """State for the model's checkpoint: one JSON string under "irds" (the Stateful protocol of DCP).

        Raises
        ------
        TrackerError
            Between `backward` and `commit`.
        """
        if self.following is None and self.pending is not None:
            raise TrackerError(f"step {self.pending.step} is not committed, so that it cannot be checkpointed")
        if self.log is not None:
            self.log.flush()
        document = {
            "version": VERSION,
            "settings": self.engine.settings(self.options),
            "every": self.schedule and self.schedule.every,
            "ledger": self.ledger.to_document(),
            "losses": [self.losses.start, self.losses.latest],
            "run": [self.steps, self.tokens, self.next_step],
            "passed": sorted(self.engine.first_pass.per_language),
        }
        return {"irds": json.dumps(document)}  # floats read back exactly

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume; cuts log rows after the checkpoint.

        Raises
        ------
        ResumeError
            If it is no tracker's state, or its languages or settings differ from this tracker's.
        """
        mine = self.engine.settings(self.options)
        saved = read_state(state, mine if self.schedule is None else {**mine, "every": self.schedule.every})
        self.schedule = Schedule(saved["every"], self.options.seed) if saved["every"] else self.schedule
        self.ledger, self.losses = saved["ledger"], saved["losses"]
        self.steps, self.trained, self.next_step = saved["run"]
        self.engine.first_pass.per_language |= saved["passed"]
        if self.log is not None:
            self.log.cut(self.next_step)

    def _enter(self, step: int, tokens: int | Tensor | None) -> tuple[int, str]:
        """A call begins: its step, and how errors name it."""
        number = operator.index(step)
        if number < self.next_step:
            hint = "count steps upwards from 0, and after a resume from where the checkpoint was made"
            raise TrackerError(f"step {number} comes where the next one is {self.next_step}", hint=hint)
        if self.pending is not None:
            self.pending.check_call(number, tokens)
        return number, f"step {number}, rank {self.world.rank}"

    def _prepare(self, loss_fn: LossFn | None, total: float | Tensor) -> None:
        """Before the first step: what is not covered, the schedule, the losses at the start, a clean log."""
        if self.validation is not None and not self.engine.first_pass.is_over:
            self.engine.examine(self.validation.sample(self.world.device))
        if self.schedule is None:
            self.schedule = Schedule.planned(self.engine.extra_cost(float(total)), self.options)
        if self.steps == 0 and self.pending is None:
            if self.log is not None:
                self.log.cut(0)
            if self.validation is not None and not self.losses.start and loss_fn is not None:
                self.measure(loss_fn)

    def _tell_price(self, total: float) -> None:
        """The first call has shown all that is not covered: what that costs, and a schedule that reckons with it."""
        extra, fallback = self.engine.extra_cost(total), self.engine.fallback
        if self.auto and self.steps == 0:
            self.schedule = Schedule.planned(extra, self.options)
        if fallback and self.world.main:
            caution([f"{fallback}: an evaluated step takes about {1 + extra:.1f} plain ones"], stacklevel=6)

    @contextmanager
    def _call(self, call: Call, loss_fn: LossFn | None) -> Iterator[Watched]:
        """One call of a step; where the step is evaluated, what is seen of it. The first call of all is looked at."""
        first, self.seen_first_call = not self.seen_first_call, True
        self._prepare(loss_fn, call.total)
        pending = self.pending = self.pending or Pending(call, self.evaluates(call.step), self.engine.groups)
        pending.add(call)
        if not pending.evaluated and not first:
            yield Watched(call.indices)
            return
        with self._watch(pending, call) as watched:
            yield watched
        if first:
            self._tell_price(float(call.total))
        if not pending.evaluated:
            self.engine.release()
            return
        if self.following is not None:
            self.following.note(self.engine.parameters)
        pending.tokens.index_add_(0, watched.groups.flatten().cpu(), call.counts.flatten().cpu().double())

    @contextmanager
    def _watch(self, pending: Pending, call: Call) -> Iterator[Watched]:
        """The engine's look at one backward pass, which must come."""
        if not pending.evaluated:
            self.engine.open(0)
        elif pending.calls == 1:
            self.engine.begin(self.ledger.count, self.options.seed * 1_000_003 + pending.step)
        turn, before = self.world.rank + pending.calls + 1, partial(self._before_backward, pending)
        with self.engine.watch(call.indices, call.length, turn, before if pending.evaluated else None) as watched:
            yield watched
        if not watched.seen:
            raise TrackerError(f"step {pending.step}: no backward pass was seen within `watch`")

    def _before_backward(self, pending: Pending) -> None:
        """In an evaluated step, gradients begin with nothing, and go on with what was noted."""
        following = self.following
        if following is None:
            return
        noted = following.any_gradient(following.before)
        if following.any_gradient(squares(self.engine.parameters)) != noted:
            told = "is begun again" if noted else "begins with gradients of an earlier one"
            hint = "clear gradients (`optimizer.zero_grad()`) once in each step, before its first backward pass"
            raise TrackerError(f"step {pending.step} {told}", hint=hint)

    def take(self, number: int) -> None:
        """An optimiser that is followed is about to take a step."""
        following = self.following
        assert following is not None
        if self.pending is None and all(group.get("lr") == 0 for group in following.optimizers[number].param_groups):
            return  # as PyTorch does it to make an optimiser's state
        pending = self._begun()
        with self._dropping():
            following.about_to_step(number, self.engine.parameters if pending.evaluated else None, pending.step)
            if len(following.came) < len(following.optimizers):
                return
            if pending.evaluated:
                self._book(pending, following.rates(self.engine.parameters, pending.step))
            self._end(pending)

    def _book(self, pending: Pending, rates: Rates) -> None:
        assert self.schedule is not None
        self.ledger.add(evaluation := close(pending, self.engine, rates, float(self.schedule.every)))
        if self.log is not None:
            self.log.add(evaluation)

    def _end(self, pending: Pending) -> None:
        """A step is committed."""
        self.drop()
        self.engine.release()
        self.steps, self.trained, self.next_step = self.steps + 1, self.trained + pending.total, pending.step + 1

    def drop(self) -> None:
        """Leave the step that is under way out, since no optimiser will take it; its number may come again."""
        self.pending = None
        if self.following is not None:
            self.following.forget()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """A step in which something fails is dropped, so that a later one can begin."""
        try:
            yield
        except BaseException:
            self.drop()
            raise

    def _begun(self, by_hand: bool = False) -> Pending:
        if by_hand and self.following is not None:
            raise TrackerError("the tracker follows the optimiser, which commits", hint="leave `commit` out")
        if self.pending is None:
            raise TrackerError("commit without backward", hint="call `backward` once or more a step")
        return self.pending
