"""The tensors of a run by name: those of the model, and those that its optimiser keeps for each parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from shapleymix.errors import Location, StoreError
from shapleymix_irds.train.shards import DTYPES, Block, Reader
from shapleymix_irds.wrappers import put_back, tidy

MODEL, OPTIMISER = "model/", "optimiser/"


def tensors_of(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """`model/NAME` for parameters and buffers, `optimiser/KEY/NAME` for what the optimiser keeps of a parameter."""
    found = _of_model(model)
    for name, weight in model.named_parameters():
        for key, value in optimiser.state.get(weight, {}).items():
            found[f"{OPTIMISER}{key}/{tidy(name)}"] = torch.as_tensor(value)
    return found


def fill(model: nn.Module, optimiser: Optimizer, reader: Reader, folder: Path) -> None:
    """Fill the model, and give the optimiser what it kept when the files were written.

    Raises
    ------
    StoreError
        If the files are of another model, lack a part, or cannot be read; what has been filled is of no use then.
    """
    tensors, weights = _of_model(model), {tidy(name): weight for name, weight in model.named_parameters()}
    if strange := sorted(name for name in reader.sources if name.startswith(MODEL) and name not in tensors):
        raise StoreError(f"holds {strange[0]!r}, which the model has not", location=Location(file=str(folder)))
    kept: dict[str, dict[str, Tensor]] = {}
    for name in (name for name in reader.sources if name.startswith(OPTIMISER)):
        key, _, parameter = name.removeprefix(OPTIMISER).partition("/")
        if parameter not in weights:
            raise StoreError(f"holds {name!r} of no parameter", location=Location(file=str(folder)))
        weight, block = weights[parameter], reader.whole(name)
        if math.prod(block.whole) > weight.numel():
            message = f"holds {name!r} of sizes {block.whole}, the parameter has {tuple(weight.shape)}"
            raise StoreError(message, location=Location(file=str(folder)))
        tensors[name] = kept.setdefault(parameter, {})[key] = _empty(block, weight)
    for name, tensor in tensors.items():
        reader.check(name, tensor)
    reader.fill(tensors)
    _give(optimiser, {id(weight): kept[name] for name, weight in weights.items() if name in kept})


def _of_model(model: nn.Module) -> dict[str, Tensor]:
    put_back(model)  # losses may just have been measured
    return {MODEL + tidy(name): value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def _empty(block: Block, weight: Tensor) -> Tensor:
    """A tensor to fill: divided among ranks as the parameter if it has its sizes, otherwise whole on each."""
    dtype = DTYPES[block.code]
    if block.whole == tuple(weight.shape):
        return torch.zeros_like(weight.detach(), dtype=dtype)
    return torch.zeros(block.whole, dtype=dtype)


def _give(optimiser: Optimizer, kept: dict[int, dict[str, Tensor]]) -> None:
    """Give an optimiser what it keeps, by the parameter; its settings stay as they are."""
    weights: Iterable[Tensor] = (weight for group in optimiser.param_groups for weight in group["params"])
    state = {number: kept[id(weight)] for number, weight in enumerate(weights) if id(weight) in kept}
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
