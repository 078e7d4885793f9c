"""Runs of torchtitan's own `Trainer` on CPUs, with the tracker and without: `torchrun ... torchtitan_runs.py FOLDER`.

Where torchtitan finds no accelerator it takes CUDA; `Device` stands in for that module, and does nothing. The trainer,
its model, FSDP2, clipping, optimisers and checkpoints are torchtitan's own.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torchtitan.tools import utils  # noqa: E402


class Device:
    """What torchtitan asks of `torch.cuda`."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def device_count(self) -> int:
        return 8

    def current_device(self) -> int:
        return 0

    def get_device_name(self, *_: Any) -> str:
        return "none"

    def get_device_properties(self, *_: Any) -> Any:
        return SimpleNamespace(total_memory=2**30)

    def memory_stats(self, *_: Any) -> dict[str, int]:
        return {}


if not hasattr(dist, "set_timeout"):  # of a later PyTorch than the last one
    dist.set_timeout = lambda *_: None  # type: ignore[attr-defined]
time.sleep = lambda _: None  # two seconds behind each run
utils.device_type, utils.device_module = "cpu", Device()  # before anything else of torchtitan's is imported

from irds_models import LANGUAGES, batch, dot, gradient, mean_losses, sequence_losses, validation  # noqa: E402
from shapleymix_irds import Options  # noqa: E402
from shapleymix_irds.torchtitan import measure  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.optimizer import default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.models import llama3  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402

LR, STEPS, CALLS = 0.02, 3, 2
OPTIONS = Options(val_sequences=3, measure_sequences=2)
WIDTH, VOCAB, LENGTH = 16, 23, 7


@dataclass(frozen=True)
class Case:
    """One way to train."""

    name: str
    calls: int = 1
    clip: float = 1e9


class NoTokenizer(BaseTokenizer):
    """Data come as tokens."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def get_vocab_size(self) -> int:
        return VOCAB


class Loader(BaseDataLoader):
    """Batches of one rank; its state is the number of those given."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        labels: bool = True

    def __init__(self, config: Config, *, dp_rank: int, **_: Any) -> None:
        self.rank, self.labels, self.given = dp_rank, config.labels, 0

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        while True:
            x, y, lang = part(self.given, self.rank)
            self.given += 1
            yield ({"input": x, "lang": lang} if self.labels else {"input": x}), y

    def state_dict(self) -> dict[str, Any]:
        return {"given": self.given}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.given = state_dict["given"]


def part(number: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """A rank's batch."""
    return batch(((2, 1, 1, 1), (0, 3, 1, 1), (1, 1, 0, 3))[(number + rank) % 3], seed=20 + 2 * number + rank)


def tiny() -> Any:
    """The debug model, smaller."""
    found = llama3.model_registry("debugmodel", attn_backend="flex")
    build, kept = llama3._build_llama3_layers, llama3.compute_ffn_hidden_dim(WIDTH, multiple_of=16)
    rope = llama3.ComplexRoPE.Config(dim=8, max_seq_len=64, theta=10_000, scaling="none")
    layers = build(
        fuse_qkv=True,
        n_layers=2,
        dim=WIDTH,
        n_heads=2,
        hidden_dim=kept,
        rope=rope,
        attn_backend="flex",
        tp_gemm_backend="default",
    )
    for layer in layers:  # flex attention of a CPU has no backward pass
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    model = replace(
        found.model,
        dim=WIDTH,
        vocab_size=VOCAB,
        tok_embeddings=replace(found.model.tok_embeddings, num_embeddings=VOCAB, embedding_dim=WIDTH),
        norm=replace(found.model.norm, normalized_shape=WIDTH),
        lm_head=replace(found.model.lm_head, in_features=WIDTH, out_features=VOCAB),
        layers=layers,
    )
    return replace(found, model=model)


def config_of(case: Case, labels: bool, folder: str) -> Any:
    config = llama3_debugmodel()
    config.model_spec = tiny()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=VOCAB)
    config.tokenizer = NoTokenizer.Config()
    config.dataloader = Loader.Config(labels=labels)
    config.validator.enable = False
    config.dump_folder = folder
    config.activation_checkpoint = None
    config.training = replace(
        config.training,
        local_batch_size=5,
        global_batch_size=5 * case.calls * dist.get_world_size(),
        seq_len=LENGTH,
        steps=STEPS,
        max_norm=case.clip,
        disable_cuda_graphs=True,
        mixed_precision_param="float32",
        mixed_precision_reduce="float32",
    )
    config.optimizer = default_adamw(lr=LR)
    config.lr_scheduler.warmup_steps = 0
    config.lr_scheduler.decay_ratio = 0.0
    config.parallelism.data_parallel_shard_degree = dist.get_world_size()
    config.parallelism.spmd_backend = "partial_dtensor"  # others need a later PyTorch
    config.debug.seed = 1
    return config


def weights(trainer: Any) -> dict[str, Tensor]:
    state = trainer.model_parts[0].state_dict()
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() for k, v in state.items()}


def validation_loss(model: Any, x: Any, y: Tensor) -> Tensor:
    return sequence_losses(model(x), y)


def train(case: Case, tracked: bool, folder: str) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], Any]:
    """Weights at the end and before each step, and the tracker."""
    trainer = config_of(case, tracked, folder).build()
    for module in trainer.model_parts[0].modules():
        if isinstance(module, FSDPModule):  # gloo cannot multiply and sum at once, as NCCL does
            module.set_force_sum_reduction_for_comms(True)
    tracker = None
    if tracked:
        settings: Any = {"every": 1, "engine": "exact", "options": OPTIONS}
        tracker = measure(trainer, LANGUAGES, val=validation(), loss_fn=validation_loss, **settings)
    before: list[dict[str, Tensor]] = []
    step = trainer.train_step

    def noted(data: Any) -> None:
        before.append(weights(trainer))
        step(data)

    trainer.train_step = noted
    trainer.train()
    found = weights(trainer)
    trainer.close()
    return found, before, tracker


def naive(case: Case, before: list[dict[str, Tensor]]) -> Tensor:
    """phi by a backward pass for each language, in double precision."""
    config, phi = tiny().model, torch.zeros(4, 4, dtype=torch.float64)
    model = config.build()
    for step, state in enumerate(before):
        model.to_empty(device="cpu")
        model.init_weights(buffer_device=None)
        model.load_state_dict(state, strict=False)
        data = [
            part(step * case.calls + call, rank) for call in range(case.calls) for rank in range(dist.get_world_size())
        ]
        total = sum(int((y != -100).sum()) for _, y, _ in data)
        g = [[torch.zeros_like(p) for p in model.parameters()] for _ in LANGUAGES]
        for x, y, lang in data:
            for k in torch.unique(lang).tolist():
                loss = sequence_losses(model(x[lang == k]), y[lang == k]).sum() / total
                for sums, grad in zip(g[k], gradient(model, loss), strict=True):
                    sums += grad
        norm = float(torch.cat([sum(parts).flatten() for parts in zip(*g, strict=True)]).norm())
        rate = LR * min(1.0, case.clip / (norm + 1e-6))
        h = [gradient(model, loss) for loss in mean_losses(model, partial(validation_loss, model), validation())]
        phi += rate * torch.tensor([[dot(a, b) for b in h] for a in g], dtype=torch.float64)
    return phi


def outcome(case: Case, folder: Path) -> dict[str, Any]:
    """Weights that differ from an untracked run's, phi, and what it should be."""
    expected, before, _ = train(case, False, str(folder / "plain"))
    found, _, tracker = train(case, True, str(folder / "tracked"))
    worst = [name for name in expected if not torch.equal(found[name], expected[name])]
    return {"worst": worst, "phi": tracker.ledger.phi.tolist(), "truth": naive(case, before).tolist()}


CASES = (Case("plain"), Case("accumulated and clipped", calls=CALLS, clip=0.1))


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    dist.init_process_group("gloo")
    folder, found = Path(sys.argv[1]), {}
    for case in CASES:
        found[case.name] = outcome(case, folder / case.name)
        gc.collect()
    Path(folder, f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
