"""The families that people train, tiny and random, in Hugging Face's trainer, against naive values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parents[2] / "irds")]

import peft  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from irds_models import LANGUAGES, relative  # noqa: E402
from shapleymix_irds.hf import IRDSArguments, IRDSTrainer  # noqa: E402
from test_irds_families import FAMILIES, OPTIONS, PASSED, RATE, TRAIN, VAL, made, naive, products  # noqa: E402

pytestmark = pytest.mark.ecosystem

ADDED: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"]}
TOKENS: dict[str, Any] = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3}
TUNED = {  # a family, what is trained of it, and whether it takes a pass a language
    "oft": ("llama", peft.OFTConfig(**ADDED, r=0, oft_block_size=4), True),
    "c3a": ("llama", peft.C3AConfig(**ADDED, block_size=4), True),
    "prompt": ("llama", peft.PromptTuningConfig(**TOKENS), True),
    "p-tuning": ("llama", peft.PromptEncoderConfig(**TOKENS, encoder_hidden_size=8), True),
    "experts": ("qwen3_moe", peft.LoraConfig(target_parameters=["mlp.experts.gate_up_proj"], r=2), False),
}


def tuned(name: str) -> Any:
    """A model of the family, or one of which only what PEFT adds is trained."""
    if name in FAMILIES:
        return made(name)
    family, config, _ = TUNED[name]
    model = peft.get_peft_model(made(family), config).double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter) * parameter.requires_grad
    return model.train()


def trained(model: Any, folder: Path, tracked: bool) -> Any:
    """One step of plain descent by the trainer."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=1, per_device_train_batch_size=8, learning_rate=RATE, optim="sgd",
        lr_scheduler_type="constant", max_grad_norm=0.0, use_cpu=True, report_to=[], save_strategy="no",
        disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    told = IRDSArguments(LANGUAGES, val=VAL, every=1, engine="exact", options=OPTIONS)
    base, more = (IRDSTrainer, {"irds": told}) if tracked else (transformers.Trainer, {})
    data = [row if tracked else {k: v for k, v in row.items() if k != "lang"} for row in TRAIN]
    collate = transformers.default_data_collator
    trainer = base(model, arguments, train_dataset=data, data_collator=collate, **more)
    trainer.train()
    return trainer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*FAMILIES, *TUNED])
def test_a_family_is_measured_in_the_trainer(name: str, tmp_path: Path) -> None:
    g, h = naive(model := tuned(name))
    trainer, plain = trained(tuned(name), tmp_path, True), trained(tuned(name), tmp_path, False)
    assert (trainer.tracker.engine.fallback is not None) == (TUNED[name][2] if name in TUNED else name in PASSED)
    truth = products(model, g, h, trainer.tracker.engine.projections)
    assert relative(trainer.tracker.ledger.phi, RATE * truth) < 1e-5
    for one, other in zip(trainer.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)
