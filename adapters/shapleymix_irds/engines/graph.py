"""What a loss is made of: the leaves of its autograd graph, and the functions that they go into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor, nn
from torch.autograd.graph import Node

from shapleymix_irds.wrappers import tidy

# Functions that split a gradient by language. A compiled graph is one function, which cannot be looked into: a
# compiled model is probed instead.
SPLITTING = ("Grouped", "CompiledFunction", "ApplyTemplate")


def edges(loss: Tensor) -> Iterator[tuple[Node, Node]]:
    """Each function of the graph with each one that its gradients go on to."""
    waiting, seen = [loss.grad_fn], {loss.grad_fn}
    while waiting:
        node = waiting.pop()
        for following, _ in () if node is None else node.next_functions:
            if node is None or following is None:
                continue
            yield node, following
            if following not in seen:
                seen.add(following)
                waiting.append(following)


def leaf_uses(loss: Tensor) -> list[tuple[Tensor, str]]:
    """Each use of a leaf that gets a gradient, with the name of the function that it goes into.

    What runs anew in the backward pass (reentrant checkpointing) is not seen.
    """
    ends = ((getattr(following, "variable", None), node) for node, following in edges(loss))
    return [(leaf, node.name()) for leaf, node in ends if leaf is not None]


def runs_anew(loss: Tensor) -> bool:
    """Whether a part of the graph is made in the backward pass only (reentrant checkpointing)."""
    return any(following.name() == "CheckpointFunctionBackward" for _, following in edges(loss))


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
