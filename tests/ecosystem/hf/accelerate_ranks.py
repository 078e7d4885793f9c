"""A plain loop with `Accelerator`, as the README has it: `torchrun ... accelerate_ranks.py FOLDER`, or imported."""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "irds")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import GradientAccumulationPlugin  # noqa: E402
from irds_models import relative  # noqa: E402
from runs import OPTIONS, Naive  # noqa: E402
from shapleymix_irds import IRDS  # noqa: E402
from shapleymix_irds.hf import LanguageCollator, causal_loss, validation_of  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from trainers import LANGUAGES, collate, examples, llama, validation  # noqa: E402

LIMIT, LR = 0.5, 2e-2


def train(tracked: bool, micro: int = 2) -> tuple[torch.nn.Module, Any, Tensor]:
    """Six steps of `micro` batches; the model, the tracker, and phi by the naive reference."""
    plugin = GradientAccumulationPlugin(num_steps=micro, sync_with_dataloader=False)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    model: Any = llama()
    rows: Any = examples(24 * micro)
    collator = LanguageCollator(collate, LANGUAGES)
    data = DataLoader(rows, batch_size=4 // accelerator.num_processes, collate_fn=collator)
    wrapped, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=LR), data)
    val = validation_of(validation(), LANGUAGES, "lang")
    options: dict[str, Any] = {"every": 1, "engine": "exact", "options": OPTIONS}
    tracker = IRDS(wrapped, LANGUAGES, val=val, loss_fn=causal_loss(wrapped), **options) if tracked else None
    if tracker is not None:
        tracker.follow(optimizer)
    kept: list[Any] = []
    naive = Naive(lambda step: gathered(kept[step]), LIMIT)
    for step, batches in enumerate(zip(*[iter(loader)] * micro, strict=False)):
        kept.append([dict(batch) for batch in batches])
        tokens = int(accelerator.reduce(sum((batch["labels"][:, 1:] != -100).sum() for batch in batches), "sum"))
        for batch in batches:
            lang = batch.pop("lang")
            watching = nullcontext() if tracker is None else tracker.watch(lang, step=step, tokens=tokens)
            with accelerator.accumulate(wrapped), watching:
                items = tokens / (accelerator.num_processes * micro)  # both are averaged over
                accelerator.backward(wrapped(**batch, num_items_in_batch=items).loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(wrapped.parameters(), LIMIT)
                if tracker is not None:
                    state: Any = SimpleNamespace(global_step=step)
                    naive.on_pre_optimizer_step(None, state, None, model=model, optimizer=optimizer)
            optimizer.step()
            optimizer.zero_grad()
    return model, tracker, naive.phi


def gathered(batches: Any) -> list[list[dict[str, Tensor]]]:
    """The batches of a step on each rank."""
    if not dist.is_initialized():
        return [batches]
    ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, batches)
    return ranks


def compared() -> dict[str, float]:
    """Whether the weights are the same, and how far values are from the naive reference."""
    found, tracker, phi = train(True)
    plain, _, _ = train(False)
    pairs = zip(found.parameters(), plain.parameters(), strict=True)
    weights = float(all(torch.equal(mine, other) for mine, other in pairs))
    return {"weights": weights, "phi": relative(tracker.ledger.phi, phi), "steps": float(tracker.steps)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[1], f"rank{os.environ['RANK']}.json").write_text(json.dumps(compared()))
    dist.destroy_process_group()
