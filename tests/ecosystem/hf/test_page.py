"""The lines of the page for Hugging Face run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from datasets import Dataset
from runs import arguments
from shapleymix_irds import IRDS
from shapleymix_irds.hf import IRDSArguments, LanguageCollator
from trainers import LANGUAGES, collate, examples, llama, validation
from trl_runs import sft_arguments, tokenizer

PAGE = Path(__file__).resolve().parents[3] / "adapters" / "docs" / "hugging-face.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def lines(start: str) -> str:
    """The one block with these words."""
    (found,) = [block for block in BLOCKS if start in block]
    return found


def test_the_lines_for_hugging_face(tmp_path: Path) -> None:
    train = examples(88)
    names = {"model": llama(), "train": train, "collator": collate, "validation": validation()}
    exec(lines("IRDSTrainer(model"), names | {"args": arguments(tmp_path)})
    assert (tmp_path / "sv.csv").exists()


def test_the_lines_for_trl(tmp_path: Path) -> None:
    wanted = sft_arguments(tmp_path)
    settings = {name: getattr(wanted, name) for name in ("output_dir", "use_cpu", "report_to", "bf16", "save_strategy")}
    irds = IRDSArguments(LANGUAGES, val=validation(), every=1)
    data = Dataset.from_list(examples(44))
    names = {"model": llama(max_position_embeddings=4096), "tokenised": data, "tokenizer": tokenizer(), "irds": irds}
    exec(lines("pack_dataset("), names | {"settings": settings | {"num_train_epochs": 3}})
    assert (tmp_path / "sv_raw.csv").exists()


def test_the_lines_for_accelerate() -> None:
    plugin = GradientAccumulationPlugin(2, sync_with_dataloader=False)
    accelerator, model, rows = Accelerator(cpu=True, gradient_accumulation_plugin=plugin), llama(), examples(200)
    loader = torch.utils.data.DataLoader(
        rows,  # type: ignore[arg-type]
        batch_size=4,
        collate_fn=LanguageCollator(collate, LANGUAGES),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    names: dict[str, Any] = {"accelerator": accelerator, "model": model, "optimizer": optimizer, "loader": loader}
    names |= {"validation": validation(), "languages": LANGUAGES, "accumulation": 2, "IRDS": IRDS}
    exec(lines("accelerator.prepare("), names)
    assert (names["tracker"].steps, names["tracker"].ledger.count) == (25, 2)
