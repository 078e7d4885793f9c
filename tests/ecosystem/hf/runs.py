"""Runs of Hugging Face's `Trainer` with and without the tracker, and what a run gives by the naive reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from irds_models import dot
from shapleymix_irds.hf import IRDSArguments, IRDSTrainer, IRDSTrainerMixin
from shapleymix_irds.options import Options
from torch import Tensor, nn
from trainers import LANGUAGES, collate, examples, llama, validation
from transformers import Trainer, TrainerCallback, TrainingArguments

OPTIONS = Options(val_sequences=4, measure_sequences=4)
COUNT = 22  # examples: 6 batches of 4, of which the last is short, and 2 make a step


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    """Clipped, with accumulation, and a learning rate that changes in each step."""
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "num_train_epochs": 2,
        "learning_rate": 2e-2,
        "max_grad_norm": 0.5,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 3,
    }
    return TrainingArguments(**(settings | options))


def told(**options: Any) -> IRDSArguments:
    """Every step evaluated, exactly."""
    settings: dict[str, Any] = {"val": validation(), "every": 1, "engine": "exact", "options": OPTIONS}
    return IRDSArguments(LANGUAGES, **(settings | options))


def prompted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same examples, whose first two tokens are a prompt without labels."""
    return [row | {"labels": [-100, -100, *row["input_ids"][2:]]} for row in rows]


def run(folder: Path, tracked: IRDSArguments | None, model: nn.Module | None = None, **options: Any) -> Trainer:
    """One run; without `tracked` by the plain trainer."""
    resume, data = options.pop("resume", None), options.pop("data", None)
    rows = data if data is not None else prompted(examples(COUNT))
    given: dict[str, Any] = {"train_dataset": rows, "data_collator": options.pop("collator", collate)}
    given |= {name: options.pop(name) for name in ("eval_dataset", "callbacks") if name in options}
    model, args = model or llama(), arguments(folder, **options)
    kind: Any = Trainer if tracked is None else IRDSTrainer
    trainer = kind(model, args, **given, **({} if tracked is None else {"irds": tracked}))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """The trained weights."""
    return {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}


def same(a: Trainer, b: Trainer) -> bool:
    """Whether two runs end with the same weights, bit for bit."""
    mine, other = weights(a), weights(b)
    return mine.keys() == other.keys() and all(torch.equal(mine[name], other[name]) for name in mine)


# -- the naive reference ---------------------------------------------------------------------------------------


def token_losses(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """The loss of each next token (B, S - 1); 0 where it has no label."""
    inputs = {k: v for k, v in batch.items() if k in ("input_ids", "attention_mask", "position_ids")}
    logits = model(**inputs).logits[:, :-1].float()
    each = F.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100, reduction="none")
    return each.view(logits.shape[:2])


class Naive(TrainerCallback):
    """Takes each step's products by one backward pass a language, and sums them as the paper does.

    `steps` gives the batches of the step on each rank, with their languages under "lang", (B,) or (B, S). With
    `own_means` each rank divides by its own tokens.
    """

    def __init__(
        self, steps: Callable[[int], list[list[dict[str, Tensor]]]], limit: float, own_means: bool = False
    ) -> None:
        self.steps, self.limit, self.own_means = steps, limit, own_means
        self.phi = torch.zeros(len(LANGUAGES), len(LANGUAGES), dtype=torch.float64)
        self.val = [collate(rows) for rows in validation().values()]

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients are clipped already; the coefficient is reckoned from whole ones."""
        model, optimizer = kwargs["model"], kwargs["optimizer"]
        kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        ranks = self.steps(state.global_step)
        counts = [sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches) for batches in ranks]
        totals = [len(ranks) * count if self.own_means else sum(counts) for count in counts]
        divided = [(batch, total) for batches, total in zip(ranks, totals, strict=True) for batch in batches]
        g = [self._gradient(model, divided, k) for k in range(len(LANGUAGES))]
        h = [self._validation(model, batch) for batch in self.val]
        norm = sum(sum(parts).double().square().sum() for parts in zip(*g, strict=True)).sqrt().item()
        clip = min(1.0, self.limit / (norm + 1e-6)) if self.limit else 1.0
        lr = optimizer.param_groups[0]["lr"]
        self.phi += lr * clip * torch.tensor([[dot(gi, hj) for hj in h] for gi in g], dtype=torch.float64)
        for parameter, grad in zip(model.parameters(), kept, strict=True):
            parameter.grad = grad

    def _gradient(self, model: nn.Module, divided: list[tuple[dict[str, Tensor], int]], k: int) -> list[Tensor]:
        parts = []
        for batch, total in divided:
            losses, lang = token_losses(model, batch), batch["lang"]
            mine = (lang == k)[:, None] if lang.dim() == 1 else (lang == k)[:, : losses.shape[1]]
            parts.append((losses * mine).sum() / total)
        return list(torch.autograd.grad(sum(parts), list(model.parameters())))

    def _validation(self, model: nn.Module, batch: dict[str, Tensor]) -> list[Tensor]:
        mean = token_losses(model, batch).sum() / (batch["labels"][:, 1:] != -100).sum()
        return list(torch.autograd.grad(mean, list(model.parameters())))


class RecordingMixin(IRDSTrainerMixin):
    """Keeps the batches of each step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.recorded: dict[int, list[dict[str, Tensor]]] = {}
        super().__init__(*args, **kwargs)

    def of_step(self, step: int) -> list[list[dict[str, Tensor]]]:
        """The batches of a step on each rank."""
        mine = [{k: v for k, v in batch.items() if isinstance(v, Tensor)} for batch in self.recorded[step]]
        if not dist.is_initialized():
            return [mine]
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, mine)
        return ranks

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        batches, items = super().get_batch_samples(*args, **kwargs)
        self.recorded[self.state.global_step] = [dict(batch) for batch in batches]
        return batches, items


class Recording(RecordingMixin, Trainer):
    """`Trainer`, recorded."""
