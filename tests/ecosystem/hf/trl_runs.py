"""Runs of TRL's `SFTTrainer` with and without the tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from runs import OPTIONS, RecordingMixin, arguments, prompted, told
from shapleymix_irds.hf import label_tokens
from tokenizers import Tokenizer, models, pre_tokenizers
from trainers import VOCAB, examples, llama
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer, pack_dataset

__all__ = ["OPTIONS", "Tracked", "packed", "sft", "sft_arguments", "tokenizer"]
PACKED = {"dataset_kwargs": {"skip_prepare_dataset": True}, "padding_free": True, "max_length": None}


class Tracked(RecordingMixin, SFTTrainer):
    """As a user writes it, with `IRDSTrainerMixin`; here recorded, too."""


def tokenizer() -> PreTrainedTokenizerFast:
    """A word for each token."""
    words = {f"w{number}" if number else "<pad>": number for number in range(VOCAB)}
    model = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="w1")


def sft_arguments(folder: Path, **options: Any) -> SFTConfig:
    """TRL's defaults where they differ: checkpointing is on."""
    plain = arguments(folder)
    names = ("per_device_train_batch_size", "num_train_epochs", "learning_rate", "max_grad_norm", "seed")
    given = {name: getattr(plain, name) for name in names}
    fixed = {"logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True, "disable_tqdm": True}
    fixed |= {"gradient_accumulation_steps": 2, "bf16": False, "output_dir": str(folder)}
    return SFTConfig(**(given | fixed | options))


def packed() -> Dataset:
    """Examples joined to rows of at most 24 tokens, with a language for each token."""
    data = Dataset.from_list(prompted(examples(32)))
    return pack_dataset(data.map(label_tokens, remove_columns=data.column_names), 24)


def sft(
    args: SFTConfig, tracked: bool, data: Dataset | None = None, callbacks: Any = None, **options: Any
) -> SFTTrainer:
    """One run."""
    data = Dataset.from_list(prompted(examples(22))) if data is None else data
    given: dict[str, Any] = {"train_dataset": data, "processing_class": tokenizer()}
    if not tracked:
        data = data.remove_columns("lang")
        trainer = SFTTrainer(llama(), args, **(given | {"train_dataset": data}))
    else:
        trainer = Tracked(llama(), args, irds=told(**options), **given)
        if callbacks is not None:
            trainer.naive = callbacks(trainer)  # type: ignore[attr-defined]
            trainer.add_callback(trainer.naive)  # type: ignore[attr-defined]
    trainer.train()
    return trainer
