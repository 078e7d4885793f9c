"""The lines of Megatron's page in a training loop: `torchrun ... megatron_page.py FOLDER`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import initialize_rng_tracker
from megatron_runs import LENGTH, Case, OnCpu, batch, made, validation_loss

PAGE = Path(__file__).resolve().parents[3] / "adapters" / "docs" / "megatron.md"
LINES, END = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
STEPS = 20


def batch_of() -> dict[str, Any]:
    """The batch of two languages, as a loader of Megatron's gives it; the same each time, so that losses fall."""
    x, y, lang = batch((2, 2, 0, 0), masked=False)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool), 1)
    places = torch.arange(LENGTH).expand(x.shape)
    told = {"tokens": x, "labels": y, "lang": lang, "position_ids": places, "attention_mask": mask}
    return told | {"loss_mask": torch.ones_like(y, dtype=torch.float64)}


def loss_func(loss_mask: Any, output: Any) -> Any:
    loss = (output * loss_mask).sum() / loss_mask.sum()
    return loss, {"loss": loss.detach()}


def train() -> None:
    """The page's lines, a loop of Megatron's, the page's end."""
    model, optimizer = made(Case("page", llama=True))
    x, y, lang = batch((2, 2, 0, 0), masked=False)
    held_out = {name: (x[lang == k], y[lang == k]) for k, name in enumerate(("en", "de"))}
    names: dict[str, Any] = {"model": model, "optimizer": optimizer, "validation": held_out, "loss_func": loss_func}
    names["loss_fn"] = validation_loss(model)
    exec(LINES, names)
    for _ in range(STEPS):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=names["forward_step"],
            data_iterator=iter([batch_of()]),
            model=model,
            num_microbatches=1,
            seq_length=LENGTH,
            micro_batch_size=4,
        )
        optimizer.step()
    exec(END, names)


def main() -> None:
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment]
    dist.init_process_group("gloo")
    initialize_rng_tracker(inference_rng_tracker=True)
    with OnCpu():
        parallel_state.initialize_model_parallel(1)
        train()
        parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
