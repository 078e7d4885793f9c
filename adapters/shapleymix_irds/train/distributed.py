"""One process or many: the ranks that train together, and the model wrapped for them."""

from __future__ import annotations

import contextlib
import os
import uuid
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous

from shapleymix.errors import UsageError
from shapleymix_irds.train.model import Decoder
from shapleymix_irds.train.settings import TrainingSettings
from shapleymix_irds.world import World as Ranks


class World(Ranks):
    """All ranks, this one's number, and its device."""

    def wait(self) -> None:
        """Until all ranks are here."""
        if self.size > 1:
            dist.barrier()

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, on the CPU in float64; every rank must call."""
        return super().sum(values.to(self.device, torch.float64)).cpu()


def join(device: str) -> World:
    """Join the processes that torchrun started; one process by itself without it.

    Raises
    ------
    UsageError
        If a CUDA device is asked for and there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda, but torch sees no CUDA device", hint="--device cpu")
    cuda = device != "cpu" and torch.cuda.is_available()
    here = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(here)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        store, rank, size = next(iter(rendezvous("env://")))
        store = PrefixStore(agreed_round(store, rank, size), store)
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", store=store, rank=rank, world_size=size)
    return World.of(None, here)


def agreed_round(store: Store, rank: int, size: int) -> str:
    """A name that rank 0 gives to this start of the group, and that all its living ranks have heard.

    torchrun keeps one store over its restarts; without a name of its own, a restarted group would find there the
    addresses of its dead predecessor. Restart counts differ between nodes, so that they cannot be the name.
    """
    nonce = uuid.uuid4().hex
    if rank:
        store.set(f"hello/{rank}", nonce)
        name = store.get(f"round/{nonce}").decode()
        store.set(f"heard/{nonce}/{name}", "1")
        return name
    for peer in range(1, size):
        heard = False
        while not heard:  # the greeting of a dead predecessor is not answered; the living one's will come
            greeting = store.get(f"hello/{peer}").decode()
            store.set(f"round/{greeting}", nonce)
            with contextlib.suppress(dist.DistStoreError):
                store.wait([f"heard/{greeting}/{nonce}"], timedelta(seconds=1))
                heard = True
    return nonce


def build(settings: TrainingSettings, vocabulary: int, world: World) -> tuple[Decoder, nn.Module]:
    """The model, initialised, and what trains it: itself, under DDP, or sharded block by block with FSDP2.

    The weights depend on the seed alone. A sharded model is never whole on one rank.
    """
    sharded = settings.parallel != "ddp" and world.size > 1
    with torch.device("meta" if sharded else world.device):
        decoder = Decoder(settings.shape(vocabulary), recompute=settings.recompute)
    if settings.compile:
        decoder.compile()
    if sharded:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16(settings, world) else None
        mesh = _mesh(settings, world)
        for module in (*decoder.blocks, decoder):
            fully_shard(module, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
        decoder.to_empty(device=world.device)
    decoder.initialise(settings.seed)
    if sharded or world.size == 1:
        return decoder, decoder
    ids = [world.device.index] if world.device.type == "cuda" else None
    return decoder, nn.parallel.DistributedDataParallel(decoder, device_ids=ids, gradient_as_bucket_view=True)


def bf16(settings: TrainingSettings, world: World) -> bool:
    """Whether products are computed in bfloat16."""
    return settings.precision == "bf16" or (settings.precision == "auto" and world.device.type == "cuda")


def _mesh(settings: TrainingSettings, world: World) -> DeviceMesh:
    """All ranks, or with "hsdp" rows of `shard_size` that are copies of each other; without one a row is a node."""
    if settings.parallel == "fsdp":
        return init_device_mesh(world.device.type, (world.size,))
    size = settings.shard_size or int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
    if world.size % size:
        message = f"--shard-size {size} does not divide the {world.size} ranks"
        raise UsageError(message, hint="choose a divisor of it, or --parallel fsdp")
    return init_device_mesh(world.device.type, (world.size // size, size), mesh_dim_names=("replicate", "shard"))


def sync_gradients(model: nn.Module, last: bool) -> None:
    """Let the next backward pass reduce gradients over ranks only if it is the last of a step."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model.require_backward_grad_sync = last
    elif isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
