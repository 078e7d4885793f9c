"""What a loss is made of: the leaves of its autograd graph, and the functions that they go into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torch import Tensor, nn

from shapleymix_irds.distributed import tidy

# Functions that split a gradient by language. A compiled graph is one function, which cannot be looked into: a
# compiled model is probed instead.
SPLITTING = ("Grouped", "CompiledFunction", "ApplyTemplate")


def leaf_uses(loss: Tensor) -> list[tuple[Tensor, str]]:
    """Each use of a leaf that gets a gradient, with the name of the function that it goes into.

    What runs anew in the backward pass (reentrant checkpointing) is not seen.
    """
    waiting, seen = [loss.grad_fn], {loss.grad_fn}
    uses = []
    while waiting:
        node = waiting.pop()
        for following, _ in () if node is None else node.next_functions:
            if hasattr(following, "variable"):
                uses.append((following.variable, node.name()))  # type: ignore[union-attr]
            elif following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return uses


def not_split(loss: Tensor, model: nn.Module, besides: Tensor) -> str:
    """Why the gradients of a loss cannot be split by language, or nothing; `besides` is no parameter."""
    uses = [(leaf, name) for leaf, name in leaf_uses(loss) if leaf is not besides]
    outside = {id(leaf): leaf for leaf, name in uses if not name.startswith(SPLITTING)}
    count = Counter(id(leaf) for leaf, name in uses if name.startswith("Grouped"))
    twice = {id(leaf): leaf for leaf, _ in uses if count[id(leaf)] > 1 and id(leaf) not in outside}
    return explain(names_of(model, outside.values()), names_of(model, twice.values()))


def strangers(loss: Tensor, known: Iterable[Tensor]) -> list[tuple[int, ...]]:
    """Shapes of the leaves that get a gradient from the loss and are not among those known."""
    identities = {id(value) for value in known}
    return [tuple(leaf.shape) for leaf, _ in leaf_uses(loss) if id(leaf) not in identities]


def explain(outside: list[str], twice: list[str]) -> str:
    """The words for parameters that are not covered, and for those that are used more than once."""
    texts = []
    if outside:
        texts.append(f"parameters used in calls that are not covered: {', '.join(outside)}")
    if twice:
        texts.append(f"parameters tied or used more than once: {', '.join(twice)}")
    return "; ".join(texts)


def names_of(model: nn.Module, leaves: Iterable[Tensor]) -> list[str]:
    """Names of parameters, or shapes of what the model does not hold now."""
    names = {id(parameter): tidy(name) for name, parameter in model.named_parameters()}
    return [names.get(id(leaf), f"one of shape {tuple(leaf.shape)}, not in the model") for leaf in leaves]
