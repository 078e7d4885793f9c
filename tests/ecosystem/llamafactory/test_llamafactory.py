"""LLaMA-Factory's own supervised fine-tuning (`run_sft`), with the mixin before its trainer."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("llamafactory")

import torch
from datasets import Dataset, DatasetDict
from llamafactory.hparams import get_train_args
from llamafactory.train.sft import workflow
from llamafactory.train.sft.trainer import CustomSeq2SeqTrainer
from safetensors.torch import load_file
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.hf import IRDSArguments, IRDSTrainerMixin
from shapleymix_irds.options import Options
from tokenizers import Tokenizer, models, pre_tokenizers
from trainers import LANGUAGES, VOCAB, examples, llama, validation
from transformers import PreTrainedTokenizerFast

from shapleymix import read_transfer


class Tracked(IRDSTrainerMixin, CustomSeq2SeqTrainer):
    """As a user writes it."""

    last: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Tracked.last = self


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny model with its tokenizer, and examples that LLaMA-Factory takes as tokenised."""
    words = {f"w{number}" if number else "<pad>": number for number in range(VOCAB)}
    words |= {"<s>": 1, "</s>": 2}
    model = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    names = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>"}
    PreTrainedTokenizerFast(tokenizer_object=model, **names).save_pretrained(tmp_path / "model")
    llama().save_pretrained(tmp_path / "model")
    rows = [row | {"attention_mask": [1] * len(row["input_ids"]), "labels": row["input_ids"]} for row in examples(24)]
    data = Dataset.from_list(rows)
    DatasetDict({"train": data}).save_to_disk(tmp_path / "tokens")
    DatasetDict({"train": data.remove_columns("lang")}).save_to_disk(tmp_path / "without")
    return tmp_path


def settings_of(folder: Path, out: str) -> dict[str, Any]:
    """What LLaMA-Factory is told, besides what the README has."""
    return {
        "do_train": True,
        "model_name_or_path": str(folder / "model"),
        "dataset": "none",
        "template": "empty",
        "finetuning_type": "full",
        "output_dir": str(folder / out),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_train_epochs": 2,
        "learning_rate": 2e-2,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
    }


def sft(folder: Path, out: str, **options: Any) -> dict[str, torch.Tensor]:
    """One run of LLaMA-Factory; the weights that it saves."""
    fixed = {"stage": "sft", "tokenized_path": str(folder / "tokens"), "use_reentrant_gc": False}
    told = get_train_args(settings_of(folder, out) | fixed | options)
    workflow.run_sft(*told)
    (path,) = (folder / out).glob("*model.safetensors")
    return load_file(path)


@pytest.mark.parametrize("options", [{}, {"finetuning_type": "lora", "lora_rank": 2}], ids=["full", "lora"])
def test_run_sft_trains_as_without_the_tracker(
    options: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = IRDSArguments(
        LANGUAGES, val=validation(), every=1, engine="exact", options=Options(val_sequences=4, measure_sequences=4)
    )
    plain = sft(folder, "plain", tokenized_path=str(folder / "without"), **options)
    monkeypatch.setattr(workflow, "CustomSeq2SeqTrainer", partial(Tracked, irds=told))
    found = sft(folder, "tracked", **options)
    assert found.keys() == plain.keys()
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    tracker = Tracked.last.tracker
    assert tracker.steps == tracker.ledger.count == 6
    assert read_transfer(folder / "tracked" / "sv.csv").sources == LANGUAGES
    assert read_transfer(folder / "tracked" / "sv_raw.csv").sv.diagonal().min() > 0


def test_the_lines_of_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).resolve().parents[3] / "adapters" / "docs" / "hugging-face.md").read_text(encoding="utf-8")
    (lines,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "run_exp" in block]
    monkeypatch.chdir(folder)
    monkeypatch.setattr(workflow, "CustomSeq2SeqTrainer", CustomSeq2SeqTrainer)
    told = IRDSArguments(LANGUAGES, val=validation(), every=1)
    exec(lines, {"IRDSTrainerMixin": IRDSTrainerMixin, "irds": told, "settings": settings_of(folder, "out")})
    assert (folder / "out" / "sv.csv").exists()


def test_its_reentrant_checkpointing_is_refused_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = IRDSArguments(LANGUAGES, val=validation(), every=1)
    monkeypatch.setattr(workflow, "CustomSeq2SeqTrainer", partial(Tracked, irds=told))
    with pytest.raises(CoverageError, match="reentrant checkpointing hides what the loss depends on"):
        sft(folder, "refused", use_reentrant_gc=True)
