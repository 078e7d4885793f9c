"""Compiled, sharded and recomputed models in every combination: the same sketches as uncompiled."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist
from irds_models import LENGTH, VOCAB, make_model, sequence_losses
from shapleymix_irds.batch import Piece
from shapleymix_irds.engine import Engine
from shapleymix_irds.world import World
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LANGUAGES, BATCH = ("a", "b", "c"), 9


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    """A group of one rank: wrappers work as they do in many."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore")  # torch itself uses what it deprecates while it compiles
@pytest.mark.parametrize("parallel", ["", "ddp", "fsdp"])
@pytest.mark.parametrize(("compiled", "recompute"), [("", True), ("whole", False), ("blocks", True)])
def test_sketches_are_those_of_the_uncompiled_model(compiled: str, parallel: str, recompute: bool) -> None:
    torch.compiler.reset()
    model = made(compiled, parallel, recompute)
    engine = Engine(model, World.of(None, torch.device("cpu")), LANGUAGES, None, 0)
    engine.loss_fn = lambda x, y: sequence_losses(model(x), y)
    with torch.compiler.set_stance("force_eager"):
        eager = validated(engine)
    for seed in (1, 2):  # the graph of the first evaluation is used again in the second
        engine.open(seed)
        found = validated(engine)
        assert sorted(found) == sorted(eager) == sorted(engine.projections)
        for name, sketch in found.items():
            torch.testing.assert_close(sketch, eager[name], rtol=1e-4, atol=1e-5 * float(eager[name].abs().max()))


def made(compiled: str, parallel: str, recompute: bool) -> nn.Module:
    decoder = make_model(checkpointed=recompute, layers=1)
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


def validated(engine: Engine) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randint(VOCAB, (2, BATCH, LENGTH), generator=generator)
    languages = torch.arange(BATCH) % 3
    tokens = torch.full((BATCH,), LENGTH, dtype=torch.float64)
    piece = Piece(x, y, languages, torch.ones(BATCH, dtype=torch.float64), tokens)
    return engine.validation_sketches([piece]).sketches
