"""One process or many: the world, wrapping a model for it, and the few collectives the loop needs."""

from __future__ import annotations

import contextlib
import gc
import os
import traceback
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous

from shapleymix.errors import UsageError
from shapleymix_irds.distributed import World


@contextlib.contextmanager
def joined_world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started; one process by itself without it.

    Nothing that outlives the block may hold the model.

    Raises
    ------
    UsageError
        If a CUDA device is asked for and there is none.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda, but torch sees no CUDA device", hint="--device cpu")
    cuda = device != "cpu" and torch.cuda.is_available()
    local = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(local)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World.of(None, local)
        return
    store, rank, size = next(iter(rendezvous("env://")))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        store = PrefixStore(agreed_round(store, rank, size), store)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", store=store, rank=rank, world_size=size)
    try:
        yield World.of(None, local)
    except BaseException as error:
        _clear_frames(error)
        raise
    finally:
        # The model goes before its process group. Whatever frees a group last joins the group's threads: the wrapped
        # model does so with the GIL held, and a thread that waits for the GIL to free a tensor then waits forever;
        # an interpreter that is going away aborts.
        gc.collect()
        dist.destroy_process_group()


def _clear_frames(error: BaseException | None) -> None:
    """Let go what the frames that an error went through have held, the model above all."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


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
        while not _hears(store, store.get(f"hello/{peer}").decode(), nonce):
            pass  # that was the greeting of a dead predecessor; the living one's will come
    return nonce


def _hears(store: Store, greeting: str, name: str) -> bool:
    store.set(f"round/{greeting}", name)
    try:
        store.wait([f"heard/{greeting}/{name}"], timedelta(seconds=1))
    except dist.DistStoreError:
        return False
    return True


def mesh_of(world: World, parallel: str, shard_size: int) -> DeviceMesh:
    """The mesh over which a model is sharded: all ranks, or with "hsdp" rows of `shard_size` that are copies of each
    other; without one a row is a node.

    Raises
    ------
    UsageError
        If the ranks do not divide into such rows.
    """
    if parallel == "fsdp":
        return init_device_mesh(world.device.type, (world.size,))
    size = shard_size or int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
    if world.size % size:
        message = f"--shard-size {size} does not divide the {world.size} ranks"
        raise UsageError(message, hint="choose a divisor of it, or --parallel fsdp")
    return init_device_mesh(world.device.type, (world.size // size, size), mesh_dim_names=("replicate", "shard"))


def wrap(
    model: nn.Module, blocks: Iterable[nn.Module], world: World, mesh: DeviceMesh | None, *, bf16: bool
) -> nn.Module:
    """The model for this world: itself, under DDP, or sharded block by block with FSDP2 where there is a mesh."""
    if world.size == 1:
        return model
    if mesh is None:
        ids = [world.device.index] if world.device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return model


@contextlib.contextmanager
def gradient_sync(model: nn.Module, last: bool) -> Iterator[None]:
    """Reduce gradients over ranks only in the last micro-batch of a step."""
    if isinstance(model, nn.parallel.DistributedDataParallel) and not last:
        with model.no_sync():
            yield
        return
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(last)  # type: ignore[operator]
    yield
