"""The grouped engine: training and validation sequences in one concatenated pass."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import group_sums
from shapleymix_irds.distributed import World, is_sharded, without_sync
from shapleymix_irds.engines.base import Outcome, Task, combine_halves, full_cover, plain, trained
from shapleymix_irds.engines.graph import explain, leaf_uses, names_of, not_split, strangers
from shapleymix_irds.engines.intercept import Interceptor, Layout, Probe, backward_in_mode
from shapleymix_irds.errors import CoverageError


class GroupedEngine:
    """One pass over the concatenated batch; see `grouped` for how the products come about."""

    name = "grouped"

    def __init__(self, model: nn.Module, world: World, chunk_mib: float | None) -> None:
        self.model, self.world = model, world
        listed = [parameter for parameter in model.parameters() if parameter.requires_grad]
        room = chunk_mib if chunk_mib is not None else 8 if listed[0].device.type == "cpu" else 512
        self.chunk = int(room * 2**20 / 4)
        double = any(parameter.dtype == torch.float64 for parameter in listed)
        self.exact = torch.float64 if double else torch.float32

    def run(self, task: Task) -> Outcome:
        """See `Engine.run`.

        Raises
        ------
        CoverageError
            On every rank, and before anything is differentiated, if on any of them a parameter is used where its
            gradient cannot be split: it would take in what validation sequences teach.
        """
        batch, val, bounds = task.batch, task.val, task.batch.bounds
        x, y = _concatenated(task)
        weights = torch.full((len(batch.x),), task.scale, dtype=torch.float64)
        if val is not None:
            bounds = bounds + [len(batch.x) + edge for edge in val.bounds[1:]]
            weights = torch.cat([weights, _mean_weights(val.bounds, val.tokens)])
        layout = self._layout(x, bounds, batch.groups)
        with Interceptor(layout):
            both = task.loss_fn(x, y)
            measured = plain(both).detach()
            losses = torch.cat([trained(both)[: len(batch.x)], plain(both)[len(batch.x) :]])
            total = (losses * weights.to(losses)).sum()
            self._check(total, layout.gram)
            backward_in_mode(total)
        gram = layout.gram.grad
        products = torch.zeros(layout.gram.shape) if gram is None else gram.double().cpu()
        if val is None:
            products, cover = combine_halves(products.double(), batch.tokens, 1.0 / task.scale)
            return Outcome(measured, products, cover, None)
        val_losses = group_sums(measured[len(batch.x) :].double().cpu(), val.bounds) / val.tokens
        cover = full_cover(batch.tokens, task.languages)
        return Outcome(measured[: len(batch.x)], products.double(), cover, val_losses)

    def finish(self, lr: float) -> Tensor | None:
        """First order only: nothing is left to do."""
        return None

    def _check(self, loss: Tensor, gram: Tensor) -> None:
        fault = not_split(loss, self.model, gram)
        agree(self.world, CoverageError(fault, hint=COVERAGE_HINT) if fault else None, gram.device)

    def _layout(self, x: Tensor, bounds: list[int], train: int) -> Layout:
        groups = len(bounds) - 1
        gram = torch.zeros((train, (groups - train) or train), dtype=self.exact, device=x.device, requires_grad=True)
        return Layout(len(x), x.shape[1], torch.tensor(bounds), train, gram, self.chunk)


def agree(world: World, fault: CoverageError | None, device: torch.device) -> None:
    """Raise on every rank what any rank has found; every rank must call."""
    if world.sum(torch.tensor(float(fault is not None), device=device)) > 0:
        raise fault or CoverageError("parameters of another rank are not covered", hint=COVERAGE_HINT)


def _concatenated(task: Task) -> tuple[Tensor, Tensor]:
    """Training sequences, then validation sequences."""
    batch, val = task.batch, task.val
    if val is None:
        return batch.x, batch.y
    if val.x.shape[1:] != batch.x.shape[1:]:
        shapes = tuple(val.x.shape[1:]), tuple(batch.x.shape[1:])
        raise CoverageError(_LENGTH.format(*shapes), hint=_LENGTH_HINT)
    return torch.cat([batch.x, val.x]), torch.cat([batch.y, val.y])


_LENGTH = "validation sequences have shape {}, training sequences {}"
_LENGTH_HINT = 'cut them to the same length, or use engine="micro"'


def _mean_weights(bounds: list[int], tokens: Tensor) -> Tensor:
    """1 / tokens of its language for each validation sequence."""
    sizes = torch.tensor([bounds[k + 1] - bounds[k] for k in range(len(bounds) - 1)])
    return torch.repeat_interleave(1.0 / tokens.clamp(min=1), sizes)


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it runs through `torch.compile`."""
    kind = torch._dynamo.eval_frame.OptimizedModule
    return any(isinstance(m, kind) or m._compiled_call_impl is not None for m in model.modules())


def check_coverage(model: nn.Module, parameters: Mapping[str, nn.Parameter], task: Task) -> None:
    """Run the model once on a few sequences and see that each parameter is used once, in a covered call.

    Under distributed wrappers every rank must call. Gradients are left as they were.

    Raises
    ------
    CoverageError
        Naming the parameters that are tied, or used where their gradient cannot be split by language.
    """
    source = task.batch if len(task.batch.x) else task.val
    assert source is not None, "an evaluated step has sequences"
    # A number of sequences that other axes seldom have. What it misses is found when the step itself is taken.
    count = 7 if source.x.shape[1] == 5 else 5
    pick = torch.arange(count, device=source.x.device) % len(source.x)
    probe = Probe(_probe_layout(source.x[pick]), model)
    with torch.compiler.set_stance("force_eager"):
        missed = _gradients_outside(model, parameters, task, source.x[pick], source.y[pick], probe)
    if is_compiled(model) and not missed:
        # a compiler may hand over other calls than Python does, so that its own view counts, too
        x, y = _concatenated(task)
        probe.layout = _probe_layout(x)
        missed = _gradients_outside(model, parameters, task, x, y, probe)
    twice = [name for name in parameters if probe.uses[name] > 1]
    if missed or twice:
        raise CoverageError(explain(missed, twice), hint=COVERAGE_HINT)


COVERAGE_HINT = 'use engine="micro", which takes any layer'


def _probe_layout(x: Tensor) -> Layout:
    return Layout(len(x), x.shape[1], torch.tensor([0, len(x)]), 1, x.new_zeros((1, 1)), 1)


def _gradients_outside(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], task: Task, x: Tensor, y: Tensor, probe: Probe
) -> list[str]:
    """Names of parameters that get a gradient, or would, although covered calls are cut off."""
    sharded = is_sharded(parameters.values())
    saved = [parameter.grad for parameter in parameters.values()]
    for parameter in parameters.values():
        parameter.grad = None
    try:
        with without_sync(model), probe:
            loss = trained(task.loss_fn(x, y)).sum()
            probe.counting = False
            if sharded and not is_compiled(model):
                # ranks may differ in what is not covered, and a backward pass of one rank would wait for the others
                return sorted(set(names_of(model, (leaf for leaf, _ in leaf_uses(loss)))))
            if not sharded and (unknown := strangers(loss, parameters.values())):
                return [f"one of shape {shape}, not in the model" for shape in unknown]
            if loss.requires_grad:
                backward_in_mode(loss)
        return [name for name, parameter in parameters.items() if parameter.grad is not None]
    finally:
        for parameter, grad in zip(parameters.values(), saved, strict=True):
            parameter.grad = grad
