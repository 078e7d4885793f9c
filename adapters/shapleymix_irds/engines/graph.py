"""What a loss gets its gradient from, besides probes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from shapleymix_irds.errors import CoverageError


def not_probed(losses: Iterable[Tensor]) -> list[Tensor]:
    """Leaves that get a gradient by another way than through probes (see `probes`).

    Raises
    ------
    CoverageError
        If a part of the graph is made in the backward pass only.
    """
    waiting: list[Any] = [loss.grad_fn for loss in losses]
    seen, leaves = set(waiting), {}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        if hasattr(node, "variable"):
            leaves[id(node.variable)] = node.variable
            continue
        if node.name() == "CheckpointFunctionBackward":
            hint = "take the non-reentrant form (use_reentrant=False), as PyTorch advises"
            raise CoverageError("reentrant checkpointing hides what the loss depends on", hint=hint)
        below = getattr(node, "below", None)
        following = below if below is not None else _following(node)
        waiting += [n for n in following if n is not None and n not in seen]
        seen.update(following)
    return list(leaves.values())


def _following(node: Any) -> list[Any]:
    """The functions that a function's operands come from; a compiled graph takes parameters itself."""
    nodes = [edge for edge, _ in node.next_functions if edge is not None]
    opaque = node.name().startswith("CompiledFunction")
    return [edge for edge in nodes if not (opaque and hasattr(edge, "variable"))]
