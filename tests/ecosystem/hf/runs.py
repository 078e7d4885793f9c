"""Hugging Face's `Trainer` and TRL's `SFTTrainer` with the tracker and without: `torchrun ... runs.py FOLDER`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "irds")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from datasets import Dataset  # noqa: E402
from irds_models import dot  # noqa: E402
from shapleymix_irds import Options  # noqa: E402
from shapleymix_irds.hf import IRDSArguments, IRDSTrainerMixin  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from trainers import LANGUAGES, VOCAB, collate, examples, llama, validation  # noqa: E402
from transformers import PreTrainedTokenizerFast, Trainer, TrainerCallback, TrainingArguments  # noqa: E402
from trl import SFTConfig, SFTTrainer  # noqa: E402

LIMIT = 0.5
COUNT = 22  # examples: 6 batches of 4, of which the last is short
SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_train_epochs": 2,
    "learning_rate": 2e-2,
    "max_grad_norm": LIMIT,
    "save_strategy": "no",
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "disable_tqdm": True,
    "seed": 3,
}
"""Clipped, with accumulation, and a learning rate that changes in each step."""


def told() -> IRDSArguments:
    """Every step evaluated, exactly."""
    options = Options(val_sequences=4, measure_sequences=4)
    return IRDSArguments(LANGUAGES, val=validation(), every=1, engine="exact", options=options)


def prompted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same examples, whose first two tokens are a prompt without labels."""
    return [row | {"labels": [-100, -100, *row["input_ids"][2:]]} for row in rows]


class RecordingMixin(IRDSTrainerMixin):
    """Keeps the batches of each step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.recorded: dict[int, list[dict[str, Tensor]]] = {}
        super().__init__(*args, **kwargs)

    def of_step(self, step: int) -> list[dict[str, Tensor]]:
        """The batches of a step on all ranks."""
        mine = [{k: v for k, v in batch.items() if isinstance(v, Tensor)} for batch in self.recorded[step]]
        ranks: list[Any] = [mine] * (dist.get_world_size() if dist.is_initialized() else 1)
        if dist.is_initialized():
            dist.all_gather_object(ranks, mine)
        return [batch for batches in ranks for batch in batches]

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        batches, items = super().get_batch_samples(*args, **kwargs)
        self.recorded[self.state.global_step] = [dict(batch) for batch in batches]
        return batches, items


class Naive(TrainerCallback):
    """Takes each step's products by one backward pass a language, and sums them as the paper does."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.phi = torch.zeros(len(LANGUAGES), len(LANGUAGES), dtype=torch.float64)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients are clipped already; the coefficient is reckoned from whole ones."""
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        batches = self.trainer.of_step(state.global_step)
        total = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
        g = [gradient(model, batches, total, k) for k in range(len(LANGUAGES))]
        val = [collate(rows) for rows in validation().values()]
        h = [gradient(model, [batch], int((batch["labels"][:, 1:] != -100).sum())) for batch in val]
        norm = sum(sum(parts).double().square().sum() for parts in zip(*g, strict=True)).sqrt().item()
        rate = optimizer.param_groups[0]["lr"] * min(1.0, LIMIT / (norm + 1e-6))
        self.phi += rate * torch.tensor([[dot(gi, hj) for hj in h] for gi in g], dtype=torch.float64)
        for parameter, grad in zip(model.parameters(), kept, strict=True):
            parameter.grad = grad


def gradient(model: nn.Module, batches: list[dict[str, Tensor]], total: int, k: int | None = None) -> list[Tensor]:
    """Of the losses of one language's tokens, or of all, over the number of labels."""
    parts = []
    for batch in batches:
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask") if name in batch}
        logits, labels = model(**inputs).logits[:, :-1].float(), batch["labels"][:, 1:]
        each = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")
        each = each.view(labels.shape)
        parts.append((each if k is None else each * (batch["lang"] == k)[:, None]).sum() / total)
    return list(torch.autograd.grad(sum(parts), list(model.parameters())))


def plain(folder: Path, tracked: bool) -> Any:
    """A trainer of transformers."""
    kind: Any = type("Recording", (RecordingMixin, Trainer), {}) if tracked else Trainer
    args = TrainingArguments(output_dir=str(folder), **SETTINGS)
    more = {"irds": told()} if tracked else {}
    return kind(llama(), args, train_dataset=prompted(examples(COUNT)), data_collator=collate, **more)


def trl(folder: Path, tracked: bool) -> Any:
    """A trainer of TRL: its head takes losses itself, checkpointing is on, and it drops columns it does not know."""
    kind: Any = type("Recording", (RecordingMixin, SFTTrainer), {}) if tracked else SFTTrainer
    words = {f"w{number}" if number else "<pad>": number for number in range(VOCAB)}
    model = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", eos_token="w1")
    data = Dataset.from_list(prompted(examples(COUNT)))
    args = SFTConfig(output_dir=str(folder), **SETTINGS)
    more = {"irds": told()} if tracked else {}
    rows = data if tracked else data.remove_columns("lang")
    return kind(llama(), args, train_dataset=rows, processing_class=tokenizer, **more)


CASES = {"plain": plain, "trl": trl}


def outcome(name: str, folder: Path) -> dict[str, Any]:
    """Weights that differ from an untracked run's, phi, and what it should be."""
    found, other = (CASES[name](folder / f"{name}{tracked}", tracked) for tracked in (True, False))
    naive = Naive(found)
    found.add_callback(naive)
    for trainer in (found, other):
        trainer.train()
    pairs = zip(found.model.named_parameters(), other.model.parameters(), strict=True)
    worst = [label for (label, mine), theirs in pairs if not torch.equal(mine, theirs)]
    return {"worst": worst, "phi": found.tracker.ledger.phi.tolist(), "truth": naive.phi.tolist()}


def main() -> None:
    torch.set_num_threads(1)
    out, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    found = {name: outcome(name, out) for name in CASES}
    (out / f"rank{rank}.json").write_text(json.dumps(found))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
