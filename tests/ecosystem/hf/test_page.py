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

import shapleymix as sm

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


def test_the_lines_for_proxy_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the state that they save is what the page's import reads."""
    monkeypatch.chdir(tmp_path)
    settings = {"use_cpu": True, "report_to": [], "max_steps": 4, "eval_steps": 2, "per_device_train_batch_size": 4}
    names = {"model": llama(), "train": examples(44), "collator": collate, "validation": validation()}
    exec(lines("save_state()"), names | {"settings": settings})
    Path("design.csv").write_text("run,N,p_en,p_de,p_fr\nmix-01,97600,.5,.3,.2\n")
    log = sm.read_runs("runs/mix-01/trainer_state.json", join="design.csv")
    assert (log.runs, log.targets) == (("mix-01", "mix-01"), ("en", "de", "fr"))
    assert 0 < log.D[0] < log.D[1]


def test_a_tracked_run_leaves_a_log_that_is_read_as_well(tmp_path: Path) -> None:
    told = arguments(tmp_path / "mix-01", eval_strategy="steps", eval_steps=2, include_num_input_tokens_seen=True)
    names = {"model": llama(), "train": examples(88), "collator": collate, "validation": validation(), "args": told}
    made = lines("IRDSTrainer(model").replace("irds=irds)", "irds=irds, eval_dataset=validation)")
    exec(made + "trainer.save_state()\n", names)
    log = sm.read_runs(tmp_path / "mix-01/trainer_state.json", map=["N=1M", "p.en=.5", "p.de=.3", "p.fr=.2"])
    assert log.targets == ("en", "de", "fr")
    assert (tmp_path / "mix-01/sv.csv").exists()
