"""What wraps a model: DDP and FSDP2, what they do to gradients, and which wrappers are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from shapleymix_irds.distributed import World, is_sharded
from shapleymix_irds.errors import CoverageError, TrackerError

OTHER_AXES = {"tp", "cp", "sp", "ep", "pp", "tensor", "context", "sequence", "expert", "pipeline"}


def tidy(name: str) -> str:
    """A parameter's name without what wrappers add to it."""
    for wrapper in ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."):
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters, sharded where they are."""
    put_back(model)
    return {tidy(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def put_back(model: nn.Module) -> None:
    """Put sharded parameters back into their places.

    After a forward pass without a backward pass FSDP2 may leave whole parameters there, which it frees later.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def replicas(model: nn.Module) -> list[DistributedDataParallel]:
    """The DDP wrappers in a model."""
    return [module for module in model.modules() if isinstance(module, DistributedDataParallel)]


def shard_groups(model: nn.Module) -> list[Any]:
    """FSDP2's groups of parameters that are gathered and reduced together."""
    groups = []
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()
            several = getattr(state, "_fsdp_param_groups", None)  # one before PyTorch 2.10 or so
            groups += [state._fsdp_param_group] if several is None and state._fsdp_param_group else several or []
    return groups


def whole_names(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[int, str]:
    """Names of the whole parameters that FSDP2 puts in the places of shards while a block runs, by identity."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    parts = [part for group in shard_groups(model) for part in group.fsdp_params]
    found = [(getattr(part, "_unsharded_param", None), names.get(id(part.sharded_param))) for part in parts]
    return {id(whole): name for whole, name in found if whole is not None and name is not None}


# -- passes that nobody notices --------------------------------------------------------------------------------


@contextmanager
def unsynced(model: nn.Module) -> Iterator[None]:
    """Passes in here are reduced by no DDP wrapper."""
    with ExitStack() as stack:
        for replica in replicas(model):
            stack.enter_context(replica.no_sync())
        yield


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it runs through `torch.compile`."""
    kind = torch._dynamo.eval_frame.OptimizedModule
    return any(isinstance(m, kind) or m._compiled_call_impl is not None for m in model.modules())


class _StandIn(nn.Module):
    """Takes the place of a DDP wrapper's module for one forward pass; its buffers are still those of the module."""

    def __init__(self, give: Callable[[], Any], module: nn.Module) -> None:
        super().__init__()
        self.give = give
        self.named_buffers = module.named_buffers

    def forward(self, _: Tensor) -> Any:
        return self.give()


def through(replica: DistributedDataParallel, give: Callable[[], Any]) -> Any:
    """What `give()` returns, handed out by a DDP wrapper as if its module had made it."""
    inside = replica.module
    try:
        replica.module = _StandIn(give, inside)
        return replica(torch.zeros(()))
    finally:
        replica.module = inside


def share_buffers(model: nn.Module) -> None:
    """Let DDP copy rank 0's buffers to all ranks now, if it would have done so at the next pass."""
    with torch.no_grad(), unsynced(model):
        for replica in replicas(model):
            if replica.will_sync_module_buffers():
                through(replica, lambda: None)


# -- what is refused -------------------------------------------------------------------------------------------


def check_wrappers(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], world: World, divisor: float | None = None
) -> None:
    """Refuse wrappers under which gradients or products would be wrong.

    Raises
    ------
    CoverageError
        Naming the wrapper, the mesh or the parameter.
    TrackerError
        If the wrapper's ranks are not those of the tracker.
    """
    if world.size == 1 and world.group is None and dist.is_initialized() and dist.get_world_size() > 1:
        hint = "call init_process_group and wrap the model first; one process by itself gives its own process_group="
        raise TrackerError("torch.distributed was started after the tracker was made", hint=hint)
    for module in model.modules():
        if isinstance(module, FullyShardedDataParallel):
            raise CoverageError("the model is wrapped by FullyShardedDataParallel (FSDP1)", hint="use `fully_shard`")
    for replica in replicas(model):
        _check_replica(replica, world)
    if is_sharded(parameters.values()):
        _check_shards(model, parameters, world)
        _check_divisor(model, world.size if divisor is None else divisor, world.size)
    elif shard_groups(model):
        hint = "call `fully_shard` first, then give the model to the tracker"
        raise TrackerError("the model was sharded after the tracker was made", hint=hint)


def _check_replica(replica: DistributedDataParallel, world: World) -> None:
    if replica.static_graph:
        hint = "leave it out; with unused parameters take find_unused_parameters=True"
        raise CoverageError("DDP with static_graph=True expects the same passes in every step", hint=hint)
    if (size := dist.get_world_size(replica.process_group)) != world.size:
        raise TrackerError(f"DDP averages over {size} ranks, the tracker counts {world.size}", hint=_GROUP)


def _check_shards(model: nn.Module, parameters: Mapping[str, nn.Parameter], world: World) -> None:
    groups = shard_groups(model)
    managed = {id(part.sharded_param): part for group in groups for part in group.fsdp_params}
    meshes = {name: p.device_mesh for name, p in parameters.items() if isinstance(p, DTensor)}
    for name, mesh in meshes.items():
        part, axes = managed.get(id(parameters[name])), mesh.mesh_dim_names or ()
        others = any(OTHER_AXES & set(axis.lower().split("_")) for axis in axes)
        if part is None or part.is_dtensor or others:
            told = f"(mesh axes: {', '.join(axes) or 'without names'})"
            raise CoverageError(f"parameter {name!r} is not data parallel only {told}", hint=_DATA)
    for name in parameters:
        if name not in meshes:
            hint = "shard all trained parameters with `fully_shard`, or freeze this one"
            raise CoverageError(f"parameter {name!r} is not sharded, and others are", hint=hint)
        if (size := meshes[name].size()) != world.size:
            message = f"parameter {name!r} is sharded over {size} ranks, the tracker counts {world.size}"
            raise TrackerError(message, hint=_GROUP)


def _check_divisor(model: nn.Module, divisor: float, size: int) -> None:
    factors = {getattr(group, "gradient_divide_factor", None) for group in shard_groups(model)}
    if any((size if factor is None else factor) != divisor for factor in factors):
        hint = "leave the factor out: the tracker divides by the tokens of the step"
        raise CoverageError("FSDP2 has a gradient divide factor of its own (set_gradient_divide_factor)", hint=hint)


def check_attention() -> None:
    """Refuse context parallelism, under which a rank has a part of each sequence.

    Raises
    ------
    CoverageError
        While `context_parallel` is active.
    """
    handlers = getattr(getattr(DTensor, "_op_dispatcher", None), "_custom_op_handlers", {})
    if torch.ops.aten._scaled_dot_product_flash_attention.default in handlers:
        raise CoverageError("context parallelism splits sequences over ranks", hint=_DATA)


def check_hooks(parameters: Mapping[str, nn.Parameter]) -> None:
    """Refuse hooks that change the gradient of a parameter on its way.

    Raises
    ------
    CoverageError
        Naming the parameter.
    """
    for name, parameter in parameters.items():
        if parameter._backward_hooks:
            hint = "change the gradient after `commit`, or in a hook of register_post_accumulate_grad_hook"
            raise CoverageError(f"parameter {name!r} has a hook that changes its gradient (register_hook)", hint=hint)


def check_averaged(parameters: Mapping[str, nn.Parameter], world: World, step: int) -> None:
    """Ranks that hold whole parameters must have the same gradient now; where it is used up already, the same weights.

    Raises
    ------
    TrackerError
        Naming the parameter that differs most.
    """
    if world.size == 1 or is_sharded(parameters.values()):
        return
    grads = [getattr(p, "main_grad", None) if p.grad is None else p.grad for p in parameters.values()]
    values = [p if grad is None else grad for p, grad in zip(parameters.values(), grads, strict=True)]
    table = world.table(torch.stack([torch.linalg.vector_norm(v.detach(), dtype=torch.float64) for v in values]))
    least, most = table.min(0).values, table.max(0).values
    spread = (most - least) / most.clamp(min=1e-300)
    if (spread > SAME).any():
        worst = int(spread.argmax())
        norms = f"norms from {least[worst]:.3g} to {most[worst]:.3g}"
        told = f"the gradient of {list(parameters)[worst]!r} differs between ranks ({norms})"
        hint = "wrap the model in DDP or `fully_shard`, or average gradients over ranks before `commit`"
        raise TrackerError(f"step {step}: nothing has averaged gradients over ranks: {told}", hint=hint)


SAME = 1e-3  # averages differ between ranks by rounding at most


_GROUP = "give the tracker the data-parallel group as process_group="
_DATA = "measure a run that is data parallel only (DDP, FSDP2 or HSDP)"
