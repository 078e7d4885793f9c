"""The grouped engine: training and validation sequences in one concatenated pass."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import group_sums
from shapleymix_irds.buffers import Buffers
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.base import Outcome, Task, combine_halves, full_cover, plain, trained
from shapleymix_irds.engines.graph import explain, leaf_uses, names_of, not_split, runs_anew, strangers
from shapleymix_irds.engines.intercept import Interceptor, Layout, Probe
from shapleymix_irds.engines.isolated import Isolation, run_backward
from shapleymix_irds.engines.rows import probe_rows
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.wrappers import unsynced


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
        layout, buffers = self._layout(x, bounds, batch.groups), Buffers(self.model)
        with Interceptor(layout):
            both = task.loss_fn(x, y)
            measured = plain(both).detach()
            losses = torch.cat([trained(both)[: len(batch.x)], plain(both)[len(batch.x) :]])
            total = (losses * weights.to(losses)).sum()
            self._check(total, layout.gram, buffers)
            run_backward(total)
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

    def _check(self, loss: Tensor, gram: Tensor, buffers: Buffers) -> None:
        """Before anything is differentiated: is all that the pass does split by language, or undone?"""
        fault = not_split(loss, self.model, gram)
        if runs_anew(loss):
            fault = "reentrant checkpointing (use_reentrant=True) hides what the loss depends on"
        if written := buffers.written():
            fault = f"buffers written in the forward pass, validation and all: {', '.join(written)}"
        try:
            agree(self.world, CoverageError(fault, hint=COVERAGE_HINT) if fault else None)
        except CoverageError:
            buffers.restore()
            raise

    def _layout(self, x: Tensor, bounds: list[int], train: int) -> Layout:
        groups = len(bounds) - 1
        gram = torch.zeros((train, (groups - train) or train), dtype=self.exact, device=x.device, requires_grad=True)
        return Layout(len(x), x.shape[1], torch.tensor(bounds), train, gram, self.chunk)


def agree(world: World, fault: CoverageError | None) -> None:
    """Raise on every rank what any rank has found; every rank must call."""
    if world.any(fault is not None):
        raise fault or CoverageError("another rank cannot be measured in this way: see its message", hint=COVERAGE_HINT)


def _concatenated(task: Task) -> tuple[Tensor, Tensor]:
    """Training sequences, then validation sequences."""
    batch, val = task.batch, task.val
    if val is None:
        return batch.x, batch.y
    return torch.cat([batch.x, val.x]), torch.cat([batch.y, val.y])


def of_other_length(task: Task) -> CoverageError | None:
    """Why training and validation sequences do not go into one batch, if they do not."""
    shapes = tuple((task.val or task.batch).x.shape[1:]), tuple(task.batch.x.shape[1:])
    return CoverageError(_LENGTH.format(*shapes), hint=LENGTH_HINT) if shapes[0] != shapes[1] else None


_LENGTH = "validation sequences have shape {}, training sequences {}"
LENGTH_HINT = 'cut them to the same length, or use engine="micro"'


def _mean_weights(bounds: list[int], tokens: Tensor) -> Tensor:
    """1 / tokens of its language for each validation sequence."""
    sizes = torch.tensor([bounds[k + 1] - bounds[k] for k in range(len(bounds) - 1)])
    return torch.repeat_interleave(1.0 / tokens.clamp(min=1), sizes)


def is_compiled(model: nn.Module) -> bool:
    """Whether the model or a part of it runs through `torch.compile`."""
    kind = torch._dynamo.eval_frame.OptimizedModule
    return any(isinstance(m, kind) or m._compiled_call_impl is not None for m in model.modules())


def check_coverage(isolation: Isolation, parameters: Mapping[str, nn.Parameter], task: Task) -> None:
    """Run the model once on a few sequences and see that each parameter is used once, in a covered call.

    Under distributed wrappers every rank must call. Gradients and buffers are left as they were.

    Raises
    ------
    CoverageError
        Naming the parameters that are tied, or used where their gradient cannot be split by language.
    """
    model, buffers = isolation.model, Buffers(isolation.model)
    few, labels = probe_rows(task)
    probe = Probe(_probe_layout(few), model)
    with torch.compiler.set_stance("force_eager"):
        missed = _gradients_outside(isolation, parameters, task, few, labels, probe)
    if is_compiled(model) and not missed:
        # a compiler may hand over other calls than Python does, so that its own view counts, too
        x, y = _concatenated(task)
        probe.layout = _probe_layout(x)
        missed = _gradients_outside(isolation, parameters, task, x, y, probe)
    buffers.restore()
    twice = [name for name in parameters if probe.uses[name] > 1]
    if missed or twice:
        raise CoverageError(explain(missed, twice), hint=COVERAGE_HINT)


COVERAGE_HINT = 'use engine="micro", which takes any layer'


def _probe_layout(x: Tensor) -> Layout:
    return Layout(len(x), x.shape[1], torch.tensor([0, len(x)]), 1, x.new_zeros((1, 1)), 1)


def _gradients_outside(
    isolation: Isolation,
    parameters: Mapping[str, nn.Parameter],
    task: Task,
    x: Tensor,
    y: Tensor,
    probe: Probe,
) -> list[str]:
    """Names of parameters that get a gradient, or would, although covered calls are cut off."""
    if isolation.sharded and not is_compiled(isolation.model):
        # ranks may differ in what is not covered, and a backward pass of one rank would wait for the others
        with probe, unsynced(isolation.model):
            loss = _probe_loss(task, x, y, probe)
        return sorted(set(names_of(isolation.model, (leaf for leaf, _ in leaf_uses(loss)))))
    unknown: list[str] = []

    def make_loss() -> Tensor:
        loss = _probe_loss(task, x, y, probe)
        if not isolation.sharded:
            unknown.extend(f"one of shape {shape}, not in the model" for shape in strangers(loss, parameters.values()))
        return loss.detach() if unknown else loss

    with probe:
        grads = isolation.gradients(make_loss)
    return unknown or [name for name, grad in zip(parameters, grads, strict=True) if grad is not None]


def _probe_loss(task: Task, x: Tensor, y: Tensor, probe: Probe) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "None of the inputs have requires_grad=True")  # they are cut off
        loss = trained(task.loss_fn(x, y)).sum()
    probe.counting = False
    return loss
