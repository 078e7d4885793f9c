"""The tensors of a run by name: those of the model, and those that its optimiser keeps for each parameter."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from shapleymix.errors import Location, StoreError
from shapleymix_irds.train.optimisers import Optimiser
from shapleymix_irds.train.saving.shards import Reader
from shapleymix_irds.wrappers import put_back, tidy


def tensors_of(model: nn.Module, optimiser: Optimiser) -> dict[str, Tensor]:
    """`model/NAME` for parameters and buffers, `optimiser/KEY/NAME` for what the optimiser keeps of a parameter.

    They are not copied: what is read into them is the run's.
    """
    put_back(model)  # losses may just have been measured
    found = {f"model/{tidy(name)}": value for name, value in model.state_dict().items()}
    for key, values in optimiser.state(model).items():
        found |= {f"optimiser/{key}/{name}": value for name, value in values.items()}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def tensor_bytes(model: nn.Module, optimiser: Optimiser) -> int:
    """What the tensors of a checkpoint take, those of all ranks together."""
    return sum(value.numel() * value.element_size() for value in tensors_of(model, optimiser).values())


def fill(model: nn.Module, optimiser: Optimiser, reader: Reader, folder: Path) -> None:
    """Fill the model and its optimiser.

    Raises
    ------
    StoreError
        If the files are of another model, lack a part, or cannot be read; what has been filled is of no use then.
    """
    tensors = tensors_of(model, optimiser)
    if strange := sorted(set(reader.sources) - set(tensors)):
        raise StoreError(f"holds {strange[0]!r}, which the run has not", location=Location(file=str(folder)))
    for name, tensor in tensors.items():
        reader.check(name, tensor)
    reader.fill(tensors)
