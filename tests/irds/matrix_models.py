"""Small models and the wrappers around them, as cells of the matrix name them."""

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from irds_models import VOCAB, Decoder
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


@dataclass(frozen=True)
class Case:
    """One cell of the matrix."""

    wrapper: str
    engine: str
    feature: str

    @property
    def name(self) -> str:
        return f"{self.wrapper} {self.engine} {self.feature}"


class Small(Decoder):
    """One block; `tied` shares the embedding with the output layer."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__(width=8, layers=1)
        if tied:
            self.head.weight = self.embed.weight


class Experts(Small):
    """A sequence goes through the expert that its first token chooses; the last expert is never chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.blocks[0](self.embed(ids))
        chosen = ids[:, 0] % 3
        moved = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            if (chosen == k).any():
                moved[chosen == k] = expert(x[chosen == k])
        return self.head(self.norm(x + moved))


class Counting(Small):
    """Counts its tokens, and follows the mean of its activations, in buffers that the next pass reads."""

    load: Tensor
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("load", torch.zeros(VOCAB, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(8, dtype=torch.float64))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.blocks[0](self.embed(ids))
        bias, mean = self.load[ids] / 100, self.mean.clone()
        with torch.no_grad():
            self.load += torch.bincount(ids.flatten(), minlength=VOCAB)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        return self.head(self.norm(x + bias[..., None] + mean))


def make(feature: str) -> Small:
    torch.manual_seed(0)
    model = Experts() if "experts" in feature else Counting() if feature == "buffers" else Small("tied" in feature)
    return model.double()


def wrap(model: Small, case: Case) -> Any:
    if case.feature.startswith("tensor parallel"):
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(model, mesh["tp"], {"head": ColwiseParallel(output_layouts=Replicate())})
        return fully_shard(model, mesh=mesh["dp"]) if case.feature.endswith("sharded") else model
    if case.feature == "half a mesh":
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("rest", "dp"))
        return fully_shard(model, mesh=mesh["dp"])
    if case.wrapper == "alone":
        return model
    if case.wrapper == "ddp":
        unused = "experts" in case.feature
        return nn.parallel.DistributedDataParallel(
            model, find_unused_parameters=unused, static_graph=case.feature == "static graph"
        )
    shape = {"fsdp": (2,), "hsdp 2x1": (2, 1), "hsdp 1x2": (1, 2)}[case.wrapper]
    names = ("dp",) if len(shape) == 1 else ("replicate", "shard")
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    fully_shard(model.blocks[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    if case.feature == "divide factor":
        model.set_gradient_divide_factor(1.0)  # type: ignore[operator]
    if case.feature == "experts":
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_reduce_scatter_unused_params(True)
    return model


@contextmanager
def syncing(model: Any, case: Case, last: bool) -> Iterator[None]:
    """Gradients are reduced in the last call of a step only."""
    off: AbstractContextManager[Any] = nullcontext()
    if case.wrapper == "ddp" and not last:
        off = model.no_sync()
    elif isinstance(model, FSDPModule):
        if case.feature == "late all-reduce":
            model.set_requires_all_reduce(last)
        else:
            model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
    with off:
        yield


def full(values: Any) -> Tensor:
    return values.full_tensor() if isinstance(values, DTensor) else values


def state(model: Any) -> dict[str, Tensor]:
    return {name.removeprefix("module."): full(value).detach().clone() for name, value in model.state_dict().items()}


def on_this_rank(outcomes: Mapping[str, Callable[[], Any]]) -> None:
    """Write what became of each case (or of those named after FOLDER) to FOLDER/rankN.json, and end the process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    gc.freeze()  # of what is imported nothing is freed: to look through it again for each case takes most of the time
    folder, *wanted = sys.argv[1:]
    found: dict[str, Any] = {}
    for name in wanted or outcomes:
        try:
            found[name] = outcomes[name]()
        except Exception:
            found[name] = {"crashed": traceback.format_exc()[-3000:]}
        gc.collect()
        Path(folder, f"rank{os.environ['RANK']}.json").write_text(json.dumps(found))
    gc.collect()  # models must go before their process group
    dist.destroy_process_group()
    os._exit(0)  # threads of a process group outlive the interpreter, which aborts then
