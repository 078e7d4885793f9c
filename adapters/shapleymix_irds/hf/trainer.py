"""`IRDSTrainer` and `IRDSTrainerMixin`: a trainer that trains as ever, and measures who teaches whom.

Every forward and backward pass runs within `tracker.watch`; the optimiser's step commits it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Trainer

from shapleymix_irds.engines.observer import Watched
from shapleymix_irds.errors import CoverageError, LanguageError, ResumeError, TrackerError
from shapleymix_irds.hf.arguments import IRDSArguments
from shapleymix_irds.hf.callback import NAME, callback_of, efficiency, progress
from shapleymix_irds.hf.collating import KEY, LanguageCollator
from shapleymix_irds.hf.validation import IGNORED, causal_loss, validation_of
from shapleymix_irds.tracker import IRDS

Base = Trainer if TYPE_CHECKING else object
Batch = dict[str, Any]


class IRDSTrainerMixin(Base):
    """Put before a subclass of `Trainer`: `class Tracked(IRDSTrainerMixin, SFTTrainer)`.

    Training examples have their language in a column (`IRDSArguments.column`). Weights are those of the trainer
    without the tracker. A checkpoint has the tracker's state; `train(resume_from_checkpoint=...)` goes on from it.

    Attributes
    ----------
    tracker : IRDS, optional
        The tracker of the last run of `train`.
    """

    def __init__(self, *args: Any, irds: IRDSArguments, **kwargs: Any) -> None:
        self.irds = irds
        self.tracker: IRDS | None = None
        self.step_tokens: int | None = None
        super().__init__(*args, **kwargs)
        _check(self, irds)
        self.validation = validation_of(irds.val, irds.languages, irds.column)
        self.data_collator: Any = LanguageCollator(self.data_collator, tuple(irds.languages), irds.column)
        self.add_callback(callback_of(self))

    # -- the tracker's life ------------------------------------------------------------------------------------

    @property
    def results(self) -> Path:
        """The folder of the matrix and of the log of evaluations."""
        return Path(self.irds.out or str(self.args.output_dir))

    def start_tracking(self) -> None:
        """Make the tracker of a run, and give it the state of the checkpoint that the run goes on from."""
        told, model = self.irds, self.model_wrapped
        assert isinstance(model, nn.Module)
        if self.tracker is not None:
            self.tracker.unfollow()
        options = replace(told.options, total_steps=told.options.total_steps or self.state.max_steps)
        self.tracker = IRDS(
            model,
            tuple(told.languages),
            val=self.validation,
            every=told.every,
            engine=told.engine,
            order=told.order,
            loss_fn=causal_loss(model),
            out=self.results,
            options=options,
        )
        if self.state.global_step > 0:
            self.tracker.load_state_dict(self._saved())
        self.tracker.follow(self._optimizer())

    def _optimizer(self) -> Optimizer:
        found = self.optimizer
        assert isinstance(found, Optimizer)
        return found

    def measure(self) -> None:
        """Measure the validation losses now, and log the efficiency ratios."""
        if self.tracker is not None:
            self.tracker.measure(causal_loss(self.tracker.model))
            self.log(efficiency(self.tracker))

    def _saved(self) -> dict[str, Any]:
        kept: Any = self.state.stateful_callbacks
        saved = kept.get(NAME, {}).get("attributes", {}).get("saved")
        if saved is None:
            hint = "begin anew, or go on with a trainer without the tracker"
            message = f"the checkpoint of step {self.state.global_step} was made without the tracker"
            raise ResumeError(message, hint=hint)
        return saved

    # -- what a trainer calls ----------------------------------------------------------------------------------

    def training_step(self, model: nn.Module, inputs: Batch, *args: Any, **kwargs: Any) -> Tensor:
        """One forward and backward pass, watched."""
        lang = inputs.pop(KEY, None)
        if lang is None:
            hint = "keep the column through tokenising; packing drops it: see `shapleymix_irds.hf.label_tokens`"
            raise LanguageError(f"the training examples have no column {self.irds.column!r}", hint=hint)
        assert self.tracker is not None
        length = inputs["input_ids"].shape[1]
        watching = self.tracker.watch(lang, step=self.state.global_step, tokens=self.step_tokens, length=length)
        with watching as watched, _fused_losses(self.accelerator.unwrap_model(model), watched):
            return super().training_step(model, inputs, *args, **kwargs)

    def get_batch_samples(self, epoch_iterator: Iterator[Batch], num_batches: int, device: torch.device) -> Any:
        """The batches of a step, whose labelled tokens are counted over all ranks.

        Where the trainer takes the mean of each batch, and training sequences stand for validation sequences, the
        tracker must know; otherwise values are those of the gradients, whatever they are means of.
        """
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches:
            count = self._count(batches, device)
            self.step_tokens = None if items is None and self.validation is None else count
        return batches, items

    def prediction_step(self, model: nn.Module, inputs: Batch, *args: Any, **kwargs: Any) -> Any:
        """Evaluation takes no language."""
        inputs.pop(KEY, None)
        return super().prediction_step(model, inputs, *args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """What is logged of training tells how far the tracker is."""
        if self.tracker is not None and "loss" in logs:
            logs |= progress(self.tracker)
        super().log(logs, *args, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        """`remove_unused_columns` leaves the language."""
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        if columns is not None and self.irds.column not in columns:
            columns.append(self.irds.column)

    def _count(self, batches: list[Batch], device: torch.device) -> int:
        """Labels of the step's batches on all ranks; the first token of a row is no target."""
        if "labels" not in batches[0]:
            hint = "give the collator labels, as DataCollatorForLanguageModeling(tokenizer, mlm=False) does"
            raise TrackerError(f"step {self.state.global_step}: the batches have no 'labels'", hint=hint)
        count = sum(int((batch["labels"][..., 1:] != IGNORED).sum()) for batch in batches)
        if self.accelerator.num_processes == 1:
            return count
        total: Any = self.accelerator.reduce(torch.tensor(count, device=device), reduction="sum")
        return int(total)


class IRDSTrainer(IRDSTrainerMixin, Trainer):
    """Hugging Face's `Trainer` with a tracker: `IRDSTrainer(model, args, ..., irds=IRDSArguments(...))`."""


@contextmanager
def _fused_losses(model: nn.Module, watched: Watched) -> Iterator[None]:
    """Tell the losses of tokens, where the model's forward pass takes them itself, as with TRL's fused head."""

    def look(_: nn.Module, __: object, output: object) -> None:
        found = getattr(output, "log_probs", None)
        if isinstance(found, Tensor) and found.requires_grad:
            watched.parts = found

    handle = model.register_forward_hook(look)
    try:
        yield
    finally:
        handle.remove()


def _check(trainer: Trainer, irds: IRDSArguments) -> None:
    """Refuse by name what no tracker sees into, and take the kind of checkpointing that it does.

    Raises
    ------
    CoverageError
        Under DeepSpeed, DataParallel, meshes that are not data parallel, and reentrant checkpointing.
    TrackerError
        If ranks take means of their own and there are no validation examples.
    """
    if trainer.is_deepspeed_enabled:
        raise CoverageError("DeepSpeed keeps gradients to itself", hint="shard with FSDP2 (fsdp=..., version 2)")
    if trainer.args.n_gpu > 1:
        hint = "start with torchrun or `accelerate launch`, or show one GPU (CUDA_VISIBLE_DEVICES)"
        raise CoverageError("DataParallel copies the model in every step", hint=hint)
    if irds.val is None and trainer.accelerator.num_processes > 1 and not trainer.args.average_tokens_across_devices:
        hint = "leave average_tokens_across_devices=False out, or give validation examples"
        raise TrackerError("each rank divides by its own tokens, and there are no validation examples", hint=hint)
    mesh = getattr(trainer.accelerator, "parallelism_config", None)
    for axis in ("tp", "cp", "sp"):
        if getattr(mesh, f"{axis}_enabled", False):
            hint = "measure a run that is data parallel only (DDP, FSDP2 or HSDP)"
            raise CoverageError(f"the trainer's mesh has an axis {axis!r}", hint=hint)
    if trainer.args.gradient_checkpointing:
        given: Any = trainer.args.gradient_checkpointing_kwargs or {}
        if given.get("use_reentrant"):
            hint = "leave out use_reentrant=True from gradient_checkpointing_kwargs, as PyTorch advises"
            raise CoverageError("reentrant checkpointing hides what the loss depends on", hint=hint)
        trainer.args.gradient_checkpointing_kwargs = {"use_reentrant": False, **given}
