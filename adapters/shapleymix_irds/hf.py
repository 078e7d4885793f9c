"""The tracker inside Hugging Face's `Trainer`, TRL's `SFTTrainer` and LLaMA-Factory's trainers.

`IRDSTrainer` is `Trainer` with a tracker; `IRDSTrainerMixin` makes any subclass of `Trainer` one::

    class Tracked(IRDSTrainerMixin, SFTTrainer): ...

    Tracked(model, args, train_dataset=train, irds=IRDSArguments(["en", "de"], val=validation)).train()

Every forward and backward pass runs within `tracker.watch`; the optimiser's step commits it.

Legend: B examples become R rows of S tokens; R = B where examples are padded, R = 1 where they are joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from transformers import Trainer
from transformers.trainer_callback import ExportableState, TrainerCallback

from shapleymix.errors import caution
from shapleymix_irds.batch import Inputs, LossFn, language_indices
from shapleymix_irds.engine import Watched
from shapleymix_irds.errors import CoverageError, LanguageError, ResumeError, TrackerError
from shapleymix_irds.hooked_watch import save_matrices
from shapleymix_irds.schedule import Options
from shapleymix_irds.tracker import IRDS, EngineName

Example = Mapping[str, Any]  # a row of a dataset: tokens in "input_ids", perhaps "labels" and a language
Examples = Iterable[Example]
Batch = dict[str, Any]
Collator = Callable[[list[Any]], MutableMapping[str, Any]]
Base = Trainer if TYPE_CHECKING else object
KEY = "lang"  # of a batch: languages by number
IGNORED = -100  # the label that transformers leaves out of a loss


@dataclass(frozen=True)
class IRDSArguments:
    """Settings of the tracker in a trainer; those that are not told of here are those of `IRDS`.

    Attributes
    ----------
    languages : sequence of str
        Names of the K languages.
    val : mapping of str to Examples
        Validation examples of each language, with `input_ids` (and `labels`, else every token is a label).
    column : str
        The column of the training examples with the language: a name or number for an example, or a list with one for
        each token of packed examples.
    out : str or os.PathLike[str], optional
        Folder for `sv_raw.csv`, `sv.csv` and the log of evaluations; None: the trainer's `output_dir`.
    """

    languages: Sequence[str]
    val: Mapping[str, Examples]
    column: str = "lang"
    every: int | Literal["auto"] = "auto"
    engine: EngineName = "auto"
    out: str | os.PathLike[str] | None = None
    options: Options = field(default_factory=Options)


# -- batches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageCollator:
    """A collator that takes the language out of each example and adds the languages of the batch as `lang`.

    Attributes
    ----------
    inner : callable
        The collator of everything else.
    languages : sequence of str
        Names of the languages, by number.
    column : str
        Where an example has its language. A batch of which no example has one is left as it is (evaluation sets).

    Raises
    ------
    LanguageError
        When it is called: if an example has no language of these, or not one for each of its tokens.
    """

    inner: Collator
    languages: Sequence[str]
    column: str = "lang"

    def __call__(self, examples: Sequence[Example]) -> MutableMapping[str, Any]:
        found = [example.get(self.column) for example in examples]
        batch = self.inner([{k: v for k, v in example.items() if k != self.column} for example in examples])
        if all(value is None for value in found):
            return batch
        if None in found:
            raise LanguageError(f"example {found.index(None)} of a batch has no language in {self.column!r}")
        batch[KEY] = self._of_batch([self._numbers(value) for value in found], examples, batch)
        return batch

    def _of_batch(self, labels: list[Any], examples: Sequence[Example], batch: Mapping[str, Any]) -> Tensor:
        rows, width = batch["input_ids"].shape
        if rows == len(examples):
            if all(isinstance(label, int) for label in labels):
                return torch.tensor(labels)
            mask = batch.get("attention_mask")
            left = mask is not None and mask.dim() == 2 and bool((mask[:, 0] == 0).any())
            return torch.tensor([_filled(_each(label, width), width, left) for label in labels])
        if rows != 1:
            raise LanguageError(f"the collator made {rows} rows of {len(examples)} examples: whose each is, is lost")
        pairs = zip(labels, examples, strict=True)
        joined = [number for label, example in pairs for number in _each(label, len(example["input_ids"]))]
        return torch.tensor([_filled(joined, width, left=False)])

    def _numbers(self, value: Any) -> Any:
        """A number, or a list of them."""
        value = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(value, Sequence) and not isinstance(value, str):
            return language_indices(value, self.languages, f"the column {self.column!r}").tolist()
        return self._numbers([value])[0]


def _each(label: int | list[int], tokens: int) -> list[int]:
    return [label] * tokens if isinstance(label, int) else label


def _filled(labels: list[int], width: int, left: bool) -> list[int]:
    """A label for each of `width` tokens; those of the padding count for nothing."""
    missing = width - len(labels)
    if missing < 0 or not labels:
        hint = "give a label for each token of `input_ids`, after truncation"
        raise LanguageError(f"an example has {len(labels)} labels of languages for {width} tokens", hint=hint)
    return [labels[0]] * missing + labels if left else labels + [labels[-1]] * missing


def label_tokens(example: Example, column: str = "lang") -> dict[str, list[Any]]:
    """The columns of a tokenised example that packing needs, with its language once for each token.

    Parameters
    ----------
    example : mapping
        With `input_ids`, a language in `column`, and perhaps `labels`; every token is a label where there are none.

    Returns
    -------
    dict
        `input_ids`, `labels` and `column`, of one length; for `dataset.map`, before `trl.pack_dataset`.

    Raises
    ------
    LanguageError
        If the example has no language.
    """
    language, tokens, labels = example.get(column), list(example["input_ids"]), example.get("labels")
    if language is None:
        raise LanguageError(f"an example has no language in {column!r}")
    labels = tokens if labels is None else list(labels)
    return {"input_ids": tokens, "labels": labels, column: [language] * len(tokens)}


# -- validation ----------------------------------------------------------------------------------------------------


def validation_of(val: Mapping[str, Examples]) -> dict[str, tuple[Inputs, Tensor]]:
    """Padded sequences and labels of each language.

    Raises
    ------
    TrackerError
        If an example has no tokens.
    """
    return {name: _sequences(list(examples), name) for name, examples in val.items()}


def _sequences(examples: list[Example], language: str) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs (n, S) by name, and labels (n, S), padded on the right; the first token of a sequence is no target."""
    if not examples or not all(len(example.get("input_ids", ())) > 1 for example in examples):
        hint = "give tokenised examples of two tokens or more"
        raise TrackerError(f"a validation example of {language!r} has no two tokens in 'input_ids'", hint=hint)
    ids = [torch.as_tensor(example["input_ids"]) for example in examples]
    pairs = list(zip(examples, ids, strict=True))
    seen = [torch.as_tensor(example.get("attention_mask", torch.ones_like(row))) for example, row in pairs]
    usual = [row.masked_fill(mask == 0, IGNORED) for row, mask in zip(ids, seen, strict=True)]
    given = [example.get("labels") for example in examples]
    labels = [own if each is None else torch.as_tensor(each) for each, own in zip(given, usual, strict=True)]
    tokens, mask, y = (pad_sequence(each, True, fill) for each, fill in ((ids, 0), (seen, 0), (labels, IGNORED)))
    y[:, 0] = IGNORED
    return {"input_ids": tokens, "attention_mask": mask}, y


def causal_loss(model: nn.Module) -> LossFn:
    """The loss that `model(**x)` predicts the next tokens with, summed over each sequence."""

    def loss_fn(x: Any, y: Tensor) -> Tensor:
        logits = model(**x, use_cache=False).logits[:, -y.shape[1] : -1]  # virtual tokens in front have no label
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        each = F.cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=IGNORED, reduction="none")
        return each.view(len(y), -1).sum(1)

    return loss_fn


# -- the trainer ---------------------------------------------------------------------------------------------------


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
        super().__init__(*args, **kwargs)
        _check(self)
        self.validation = validation_of(irds.val)
        self.data_collator: Any = LanguageCollator(self.data_collator, tuple(irds.languages), irds.column)
        # a class for this trainer alone, since a trainer that restores callbacks makes new ones by their class
        self.add_callback(type(NAME, (IRDSCallback,), {"trainer": self})())

    @property
    def results(self) -> Path:
        """The folder of the matrix and of the log of evaluations."""
        return Path(self.irds.out or str(self.args.output_dir))

    def start_tracking(self) -> None:
        """Make the tracker of a run, and give it the state of the checkpoint that the run goes on from."""
        told, model, optimizer = self.irds, self.model_wrapped, self.optimizer
        assert isinstance(model, nn.Module)
        assert isinstance(optimizer, Optimizer)
        options = replace(told.options, total_steps=told.options.total_steps or self.state.max_steps)
        self.tracker = IRDS(
            model,
            tuple(told.languages),
            val=self.validation,
            every=told.every,
            engine=told.engine,
            loss_fn=causal_loss(model),
            out=self.results,
            options=options,
        )
        if self.state.global_step > 0:
            kept: Any = self.state.stateful_callbacks
            saved = kept.get(NAME, {}).get("attributes", {}).get("saved")
            if saved is None:
                message = f"the checkpoint of step {self.state.global_step} was made without the tracker"
                raise ResumeError(message, hint="begin anew, or go on with a trainer without the tracker")
            self.tracker.load_state_dict(saved)
        self.tracker.follow(optimizer, hook=False)

    def training_step(self, model: nn.Module, inputs: Batch, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """One forward and backward pass, watched; with the labelled tokens of the step, where they are counted."""
        lang = inputs.pop(KEY, None)
        if lang is None:
            hint = "keep the column through tokenising; packing drops it: see `shapleymix_irds.hf.label_tokens`"
            raise LanguageError(f"the training examples have no column {self.irds.column!r}", hint=hint)
        assert self.tracker is not None
        known = self.args.average_tokens_across_devices or self.args.world_size == 1
        told = {"tokens": num_items_in_batch if known else None, "length": inputs["input_ids"].shape[1]}
        watching = self.tracker.watch(lang, step=self.state.global_step, **told)
        with watching as watched, _fused_losses(self.accelerator.unwrap_model(model), watched):
            return super().training_step(model, inputs, num_items_in_batch)

    def prediction_step(self, model: nn.Module, inputs: Batch, *args: Any, **kwargs: Any) -> Any:
        """Evaluation takes no language."""
        inputs.pop(KEY, None)
        return super().prediction_step(model, inputs, *args, **kwargs)

    def _set_signature_columns_if_needed(self) -> None:
        """`remove_unused_columns` leaves the language."""
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        if columns is not None and self.irds.column not in columns:
            columns.append(self.irds.column)


class IRDSTrainer(IRDSTrainerMixin, Trainer):
    """Hugging Face's `Trainer` with a tracker: `IRDSTrainer(model, args, ..., irds=IRDSArguments(...))`."""


NAME = "IRDSCallback"  # under which a checkpoint's `trainer_state.json` has the tracker's state


class IRDSCallback(TrainerCallback, ExportableState):
    """Keeps a tracker in step with its trainer.

    Its state goes into `trainer_state.json`, which a checkpoint gets together with the number of its step.
    """

    trainer: IRDSTrainerMixin

    def state(self) -> dict[str, Any]:
        """The tracker's state, as JSON takes it."""
        tracker = self.trainer.tracker
        return {"args": {}, "attributes": {"saved": None if tracker is None else tracker.state_dict()}}

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Model and optimiser are wrapped and loaded."""
        self.trainer.start_tracking()

    def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
        """Gradients are clipped."""
        if self.trainer.tracker is not None:
            self.trainer.tracker.take(0)

    def on_train_end(self, *_: object, **__: object) -> None:
        """Measure the losses for the last time, and write the matrix."""
        tracker = self.trainer.tracker
        if tracker is not None and tracker.steps > 0:
            tracker.measure(causal_loss(tracker.model))
            faults = save_matrices(tracker, self.trainer.results)
            caution(map(str, faults if tracker.world.main else ()))  # an error would cost the trained model


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


def _check(trainer: Trainer) -> None:
    """Refuse by name what no tracker sees into.

    Raises
    ------
    CoverageError
        Under DeepSpeed, DataParallel, fp16 and meshes that are not data parallel.
    """
    if trainer.is_deepspeed_enabled:
        raise CoverageError("DeepSpeed keeps gradients to itself", hint="shard with FSDP2 (fsdp=..., version 2)")
    if trainer.args.n_gpu > 1:
        hint = "start with torchrun or `accelerate launch`, or show one GPU (CUDA_VISIBLE_DEVICES)"
        raise CoverageError("DataParallel copies the model in every step", hint=hint)
    if trainer.args.fp16:
        raise CoverageError("a GradScaler may skip steps (fp16)", hint="train in bf16, or without the tracker")
    mesh = getattr(trainer.accelerator, "parallelism_config", None)
    for axis in ("tp", "cp", "sp"):
        if getattr(mesh, f"{axis}_enabled", False):
            hint = "measure a run that is data parallel only (DDP, FSDP2 or HSDP)"
            raise CoverageError(f"the trainer's mesh has an axis {axis!r}", hint=hint)
