"""The ranks that train together, what wraps a model, and passes that training does not notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from shapleymix_irds.errors import CoverageError, TrackerError

Hook = Callable[[Tensor], Any]


@dataclass(frozen=True)
class World:
    """The data-parallel ranks, and this one's device; one rank where torch.distributed is not initialised."""

    group: dist.ProcessGroup | None
    size: int
    rank: int
    device: torch.device

    @classmethod
    def of(cls, group: dist.ProcessGroup | None, device: torch.device) -> Self:
        """The world of a process group (None: the default group, if there is one)."""
        if not (dist.is_available() and dist.is_initialized()):
            return cls(None, 1, 0, device)
        return cls(group, dist.get_world_size(group), dist.get_rank(group), device)

    @property
    def main(self) -> bool:
        """Whether this rank writes files and prints."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Sum over ranks, in place; every rank must call."""
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def sum_all(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Sums over ranks, in one message; every rank must call."""
        if self.size == 1:
            return dict(values)
        sizes = [each.numel() for each in values.values()]
        pieces = self.sum(torch.cat([each.flatten() for each in values.values()])).split(sizes)
        return {name: piece.view(values[name].shape) for name, piece in zip(values, pieces, strict=True)}

    def any(self, flag: bool) -> bool:
        """Whether any rank says so; every rank must call."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def told(self, value: Any) -> Any:
        """What the first rank gives, on every rank; every rank must call."""
        held = [value]
        if self.size > 1:
            group: Any = self.group or dist.group.WORLD
            dist.broadcast_object_list(held, dist.get_global_rank(group, 0), group, self.device)
        return held[0]


@dataclass(frozen=True)
class Arrangement:
    """What a tracker is told of a trainer with a parallelism of its own (Megatron, torchtitan).

    Attributes
    ----------
    tokens_first : bool
        Whether activations are (S, B, ...); ids of tokens are (B, S) all the same.
    divisor : float, optional
        What the sum of gradients over ranks is divided by; None: the number of ranks.
    tensor_parallel : World, optional
        The ranks that hold parts of the same layers and see the same sequences (tensor parallel).
    copies : frozenset of str
        Parameters that are whole on each of those ranks, and counted by another one.
    """

    tokens_first: bool = False
    divisor: float | None = None
    tensor_parallel: World | None = None
    copies: frozenset[str] = frozenset()


def is_sharded(parameters: Iterable[nn.Parameter]) -> bool:
    """Whether parameters are distributed tensors (FSDP2), whose gradients come reduced over ranks."""
    return any(isinstance(parameter, DTensor) for parameter in parameters)


def local(values: Tensor) -> Tensor:
    """This rank's part of a tensor."""
    return values.to_local() if isinstance(values, DTensor) else values


def share(parameter: Tensor) -> float:
    """By what to multiply products over this rank's part of a parameter, so that summing over ranks is right.

    1 for a shard; 1 / copies where ranks hold copies (hybrid sharding).
    """
    copies = 1
    if isinstance(parameter, DTensor):
        for axis, placement in enumerate(parameter.placements):
            copies *= parameter.device_mesh.size(axis) if placement.is_replicate() else 1
    return 1.0 / copies


def scalar(value: float | Tensor) -> float:
    """A number from what `clip_grad_norm_` returns (a DTensor under FSDP2)."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


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
    for module in modules_of(model, FSDPModule):
        module.reshard()


def modules_of(model: nn.Module, kind: type[Any] = nn.Module) -> list[Any]:
    """The modules of a kind in a model, each once; many times faster than `modules()`, which an evaluation feels."""
    found: dict[nn.Module, None] = {}
    waiting: list[nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is not None and module not in found:
            found[module] = None
            waiting += module._modules.values()
    return [module for module in found if isinstance(module, kind)]


def shard_groups(model: nn.Module) -> list[Any]:
    """FSDP2's groups of parameters that are gathered and reduced together."""
    groups = []
    for module in modules_of(model, FSDPModule):
        state: Any = module._get_fsdp_state()
        several = getattr(state, "_fsdp_param_groups", None)  # one before PyTorch 2.10 or so
        groups += [state._fsdp_param_group] if several is None and state._fsdp_param_group else several or []
    return groups


def names_of(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> dict[int, str]:
    """Names of parameters by identity, also of the whole ones that FSDP2 puts in the places of shards for a block."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    parts = [part for group in shard_groups(model) for part in group.fsdp_params]
    found = [(getattr(part, "_unsharded_param", None), names.get(id(part.sharded_param))) for part in parts]
    return names | {id(whole): name for whole, name in found if whole is not None and name is not None}


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it runs through `torch.compile`."""
    kind = torch._dynamo.eval_frame.OptimizedModule
    return any(isinstance(m, kind) or m._compiled_call_impl is not None for m in model.modules())


def word_layers(model: nn.Module) -> tuple[list[nn.Embedding], list[nn.Module]]:
    """The embeddings, and the output layers: those that share a table, else the last that has a row for each word.

    In small models other layers may have as many rows, too.
    """
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    sizes, owned = {table.num_embeddings for table in tables}, {id(table.weight) for table in tables}
    others = [(m, m._parameters.get("weight")) for m in model.modules() if not isinstance(m, nn.Embedding)]
    alike = [(m, each) for m, each in others if each is not None and each.dim() == 2 and each.shape[0] in sizes]
    tied = [module for module, weight in alike if id(weight) in owned]
    return tables, tied or [module for module, _ in alike[-1:]]


def non_embedding(model: nn.Module) -> int:
    """N: parameters without embeddings and without the output layer."""
    tables, outputs = word_layers(model)
    outside = {id(parameter) for module in (*tables, *outputs) for parameter in module.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)


# -- passes that training does not notice --------------------------------------------------------------------------


@contextmanager
def isolated(model: nn.Module, evaluating: bool = False) -> Iterator[None]:
    """Within, forward passes and `differentiate` leave no trace.

    Random numbers drawn within are not drawn from training's; what a forward pass writes into buffers (loads of
    experts, say) is taken back; DDP neither reduces nor is made ready to, and sharded parameters are sharded again.
    With `evaluating` each module takes itself to be in eval mode; its own `eval()`, which may do more (merge weights,
    say), is not called.
    """
    modules = modules_of(model)
    devices = list({p.device for m in modules for p in m._parameters.values() if p is not None and p.is_cuda})
    modes = [(vars(module), module.training) for module in modules]
    ready = [(replica, replica.require_forward_param_sync) for replica in modules_of(model, DistributedDataParallel)]
    buffers = [
        (module, name, buffer, buffer.clone(), buffer._version)
        for module in modules
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    for values, training in modes:
        values["training"] = training and not evaluating
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices))
            for replica, _ in ready:
                stack.enter_context(replica.no_sync())
            yield
    finally:
        for kept in buffers:
            _restore(*kept)
        for replica, value in ready:
            replica.require_forward_param_sync = value
        for values, training in modes:
            values["training"] = training
        put_back(model)


def _restore(module: nn.Module, name: str, buffer: Tensor, values: Tensor, version: int) -> None:
    """Put a buffer back, if it was written to: a graph may hold the one that was not."""
    if module._buffers.get(name) is not buffer or buffer._version != version:
        module._buffers[name] = buffer
        if not torch.equal(buffer, values):
            with torch.no_grad():
                buffer.copy_(values)


def differentiate(roots: Any, inputs: Any, seeds: Any, retain: bool = True) -> list[Tensor | None]:
    """`torch.autograd.grad` with modes on: called itself, it runs its handler, and there they are off."""
    run: Any = torch.autograd.Variable._execution_engine.run_backward
    options = {"allow_unreachable": True, "accumulate_grad": False}
    return list(run(tuple(roots), tuple(seeds), retain, False, tuple(inputs), **options))


# -- what is refused -----------------------------------------------------------------------------------------------


def check_wrappers(model: nn.Module, parameters: Mapping[str, nn.Parameter], world: World, divisor: float) -> None:
    """Refuse wrappers and hooks under which gradients or products would be wrong.

    Raises
    ------
    CoverageError
        Naming the wrapper, the mesh or the parameter.
    TrackerError
        If the wrapper's ranks are not those of the tracker.
    """
    if modules_of(model, FullyShardedDataParallel):
        raise CoverageError("the model is wrapped by FullyShardedDataParallel (FSDP1)", hint="use `fully_shard`")
    for replica in modules_of(model, DistributedDataParallel):
        if replica.static_graph:
            hint = "leave it out; with unused parameters take find_unused_parameters=True"
            raise CoverageError("DDP with static_graph=True expects the same passes in every step", hint=hint)
        if (size := dist.get_world_size(replica.process_group)) != world.size:
            raise TrackerError(f"DDP averages over {size} ranks, the tracker counts {world.size}", hint=_GROUP)
    if is_sharded(parameters.values()):
        _check_shards(model, parameters, world, divisor)
    for name, parameter in parameters.items():
        if parameter._backward_hooks and isinstance(parameter, DTensor):
            raise CoverageError(f"parameter {name!r} has a hook (register_hook), and is sharded", hint=_HOOK)


def _check_shards(model: nn.Module, parameters: Mapping[str, nn.Parameter], world: World, divisor: float) -> None:
    groups = shard_groups(model)
    managed = {id(part.sharded_param): part for group in groups for part in group.fsdp_params}
    meshes = {name: p.device_mesh for name, p in parameters.items() if isinstance(p, DTensor)}
    for name, mesh in meshes.items():
        part, axes = managed.get(id(parameters[name])), mesh.mesh_dim_names or ()
        if part is None or part.is_dtensor or any(OTHER_AXES & set(axis.lower().split("_")) for axis in axes):
            told = f"(mesh axes: {', '.join(axes) or 'without names'})"
            hint = "measure a run that is data parallel only (DDP, FSDP2 or HSDP)"
            raise CoverageError(f"parameter {name!r} is not data parallel only {told}", hint=hint)
    for name in parameters:
        if name not in meshes:
            hint = "shard all trained parameters with `fully_shard`, or freeze this one"
            raise CoverageError(f"parameter {name!r} is not sharded, and others are", hint=hint)
        if (size := meshes[name].size()) != world.size:
            told = f"parameter {name!r} is sharded over {size} ranks, the tracker counts {world.size}"
            raise TrackerError(told, hint=_GROUP)
    factors = {getattr(group, "gradient_divide_factor", None) for group in groups}
    if any((world.size if factor is None else factor) != divisor for factor in factors):
        hint = "leave the factor out: the tracker divides by the tokens of the step"
        raise CoverageError("FSDP2 has a gradient divide factor of its own (set_gradient_divide_factor)", hint=hint)


@contextmanager
def hooked(parameters: Mapping[str, nn.Parameter], other: Callable[[str, Hook], Hook]) -> Iterator[None]:
    """Within, others stand for the hooks of parameters (`register_hook`)."""
    found = [(name, p._backward_hooks, dict(p._backward_hooks)) for name, p in parameters.items() if p._backward_hooks]
    for name, held, own in found:
        held.update({key: other(name, hook) for key, hook in own.items()})
    try:
        yield
    finally:
        for _, held, own in found:
            held.update({key: hook for key, hook in own.items() if key in held})


def reading(name: str, hook: Hook) -> Hook:
    """The hook of a parameter, made to refuse that it changes the gradient, of which the tracker would not know."""

    def look(grad: Tensor) -> None:
        before = grad.clone()
        if hook(grad) is not None or not torch.equal(before.nan_to_num(), grad.nan_to_num()):
            raise CoverageError(f"parameter {name!r} has a hook that changes its gradient (register_hook)", hint=_HOOK)

    return look


_HOOK = "change the gradient after `commit`, or in a hook of register_post_accumulate_grad_hook"
_GROUP = "give the tracker the data-parallel group as process_group="
