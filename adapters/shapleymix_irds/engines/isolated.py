"""Gradients by themselves: one backward pass whose gradients come back and go nowhere else.

Neither `.grad`, nor a wrapper (DDP, FSDP2), nor a hook on a parameter or on its accumulation (an optimiser that steps
in the backward pass, Megatron's `main_grad`) meets them. The sum that is to be trained on is then handed over in one
ordinary backward pass, in which all of these do what they do in an untracked run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from shapleymix_irds.distributed import World, is_sharded
from shapleymix_irds.engines.graph import leaf_uses, runs_anew
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.wrappers import UNUSED, hooks_of, reduced, replicas, shard_groups, through, unsynced, waiting

Grads = list[Tensor | None]


class Isolation:
    """Gradients of losses of one model with respect to its trainable parameters."""

    def __init__(self, model: nn.Module, parameters: Iterable[nn.Parameter], world: World) -> None:
        self.model, self.world, self.parameters = model, world, list(parameters)
        self.sharded = is_sharded(self.parameters)
        self.forget()

    def forget(self) -> None:
        """Passes so far were not on training sequences."""
        self.used = [False] * len(self.parameters)

    def gradients(self, make_loss: Callable[[], Tensor]) -> Grads:
        """Gradients of the loss that is made; under FSDP2 every rank must call, and they are means over ranks.

        Raises
        ------
        CoverageError
            If they cannot be had by themselves.
        """
        if self.sharded:
            return self._reduced(make_loss)
        with unsynced(self.model):
            loss = make_loss()
            if not loss.requires_grad:
                return [None] * len(self.parameters)
            if runs_anew(loss):
                return self._through_leaves(loss)
            return list(run_backward(loss, self.parameters))

    def hand_over(self, grads: Grads) -> None:
        """Add gradients to those of the step as a backward pass would: reduced, where the wrapper reduces now."""
        if self.sharded:
            self._add_shards(grads)
            return
        given = {id(p): (p, grad) for p, grad in zip(self.parameters, grads, strict=True) if grad is not None}
        ends = []
        for replica in replicas(self.model):
            inside = [given.pop(id(p)) for p in replica.module.parameters() if id(p) in given]
            ends.append(through(replica, lambda inside=inside: hand(inside)))
        ends.append(hand(list(given.values())))
        if ends := [end for end in ends if end is not None]:
            torch.autograd.backward(ends)

    def collect(self, make_loss: Callable[[], Tensor]) -> None:
        """Bring into `.grad` what FSDP2 holds of earlier calls; the loss is one whose gradient is 0."""
        if not self.sharded:
            return
        held = waiting(self.model)
        if self.world.any(bool(held)):
            self.used = [used or id(p) in held for used, p in zip(self.used, self.parameters, strict=True)]
            self._add_shards(self._reduced(make_loss))

    def _reduced(self, make_loss: Callable[[], Tensor]) -> Grads:
        with cleared(self.parameters) as taken, reduced(self.model):
            loss = make_loss()
            if runs_anew(loss):
                hint = "take the non-reentrant form (use_reentrant=False)"
                raise CoverageError("reentrant checkpointing under FSDP2 hides what the loss depends on", hint=hint)
            self._note(loss)
            if loss.requires_grad:
                run_backward(loss)
        return taken

    def _through_leaves(self, loss: Tensor) -> Grads:
        """What is made anew in the backward pass gives gradients to leaves only."""
        if any(hooks_of(parameter) for parameter in self.parameters):
            hint = "take the non-reentrant form (use_reentrant=False)"
            raise CoverageError("hooks on gradients do not go with reentrant checkpointing", hint=hint)
        with cleared(self.parameters) as taken:
            run_backward(loss)
        if all(grad is None for grad in taken):
            hint = "take the non-reentrant form (use_reentrant=False)"
            raise CoverageError("something moves gradients out of `.grad` in the backward pass", hint=hint)
        return taken

    def _note(self, loss: Tensor) -> None:
        """Remember which sharded parameters this rank has used."""
        leaves = {id(leaf) for leaf, _ in leaf_uses(loss)}
        whole = {
            id(part.sharded_param): id(getattr(part, "_unsharded_param", None))
            for group in shard_groups(self.model)
            for part in group.fsdp_params
        }
        mine = [whole.get(id(p)) in leaves or id(p) in leaves for p in self.parameters]
        self.used = [before or now for before, now in zip(self.used, mine, strict=True)]

    def _add_shards(self, grads: Grads) -> None:
        """Gradients of parameters that no rank has used are none, as FSDP2 has it; then its hooks."""
        used = self.world.sum(torch.tensor(self.used, dtype=torch.float32, device=self.world.device)).tolist()
        self.forget()
        groups = {id(part.sharded_param): group for group in shard_groups(self.model) for part in group.fsdp_params}
        for parameter, grad, ranks in zip(self.parameters, grads, used, strict=True):
            group = groups[id(parameter)]
            if grad is None or not (ranks or getattr(group, UNUSED, False)):
                continue
            parameter.grad = grad if parameter.grad is None else parameter.grad.add_(grad)
            if group.reduce_grads and group.all_reduce_grads:
                for hook in hooks_of(parameter).values():
                    hook(parameter)


def run_backward(loss: Tensor, inputs: Sequence[Tensor] = ()) -> tuple[Tensor | None, ...]:
    """`loss.backward()`, or the gradients of `inputs`, with modes of torch functions active.

    So that layers which are recomputed in the backward pass are intercepted, too. `Tensor.backward` and its like are
    torch functions themselves: under a mode they run its handler, and there modes are off. Hence the engine is called
    as they call it.
    """
    engine: Any = torch.autograd.Variable._execution_engine
    return engine.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        False,
        False,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=not inputs,
    )


@contextmanager
def cleared(parameters: Sequence[nn.Parameter]) -> Iterator[Grads]:
    """Within, `.grad` begins empty; after it the list has what came to be there, and `.grad` is as it was."""
    saved = [parameter.grad for parameter in parameters]
    taken: Grads = []
    for parameter in parameters:
        parameter.grad = None
    try:
        yield taken
        taken += [parameter.grad for parameter in parameters]
    finally:
        for parameter, grad in zip(parameters, saved, strict=True):
            parameter.grad = grad


class Handing(torch.autograd.Function):
    """A zero whose backward pass gives ready gradients to the parameters."""

    @staticmethod
    def forward(ctx: Any, grads: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.grads = grads
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        return None, *ctx.grads


def hand(pairs: list[tuple[nn.Parameter, Tensor]]) -> Tensor | None:
    """The end of a graph that gives each parameter its gradient."""
    if not pairs:
        return None
    end: Tensor = Handing.apply([grad for _, grad in pairs], *(parameter for parameter, _ in pairs))
    return end
