"""Compiled, sharded and recomputed models in every combination: the same sketches as uncompiled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from shapleymix_irds.batch import Piece
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.observer import Observer
from shapleymix_irds.engines.sketches import Form
from shapleymix_irds.train.model import Decoder, sequence_losses
from shapleymix_irds.train.shapes import ModelConfig
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LANGUAGES, BATCH, LENGTH, VOCABULARY = 3, 7, 8, 20


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    """A group of one rank: wrappers work as they do in many."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore")  # torch itself uses what it deprecates while it compiles
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("parallel", ["", "ddp", "fsdp"])
@pytest.mark.parametrize("compiled", ["", "whole", "blocks"])
def test_sketches_are_those_of_the_uncompiled_model(compiled: str, parallel: str, recompute: bool) -> None:
    torch.compiler.reset()
    model = made(compiled, parallel, recompute)
    observer = Observer(model, World.of(None, torch.device("cpu")), Form(0), LANGUAGES)
    with torch.compiler.set_stance("force_eager"):
        eager = validated(observer)
    for seed in (1, 2):  # the graph of the first evaluation is used again in the second
        observer.open(seed)
        found = validated(observer)
        assert sorted(found) == sorted(eager) == sorted(observer.layout.numbers())
        for name, sketch in found.items():
            torch.testing.assert_close(sketch, eager[name], rtol=1e-4, atol=1e-5 * float(eager[name].abs().max()))


def made(compiled: str, parallel: str, recompute: bool) -> nn.Module:
    decoder = Decoder(ModelConfig(1, 8, 12, 2, VOCABULARY), recompute=recompute)
    decoder.initialise(0)
    parts = {"": [], "whole": [decoder], "blocks": list(decoder.blocks)}[compiled]
    for part in parts:
        part.compile(backend="aot_eager")
    if parallel == "ddp":
        return DistributedDataParallel(decoder)
    if parallel == "fsdp":
        mesh = init_device_mesh("cpu", (1,))
        for part in (*decoder.blocks, decoder):
            fully_shard(part, mesh=mesh)
    return decoder


def validated(observer: Observer) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randint(VOCABULARY, (2, BATCH, LENGTH), generator=generator)
    languages = torch.arange(BATCH) % LANGUAGES
    tokens = torch.full((BATCH,), LENGTH, dtype=torch.float64)
    piece = Piece(x, y, languages, torch.ones(BATCH, dtype=torch.float64), tokens)
    return observer.validate(lambda x, y: sequence_losses(observer.model(x), y), [piece]).sketches
