"""Parameters whose use is not covered: found in the graph of a loss, on every rank, before anything is booked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from shapleymix_irds.distributed import World, is_sharded
from shapleymix_irds.engines.graph import not_probed
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.wrappers import tidy, whole_names


@dataclass
class Coverage:
    """What is known of one model.

    Attributes
    ----------
    passed : set of str
        Parameters that are used in calls that are not covered, so that their gradients take a pass a language.
    found : set of str
        Those that were seen on this rank since the ranks last agreed, with what is not in the model.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    world: World
    passed: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    def look(self, losses: Iterable[Tensor]) -> None:
        """Note the parameters from which a loss gets its gradient otherwise than through probes."""
        leaves = [leaf for leaf in not_probed(losses) if isinstance(leaf, nn.Parameter)]
        if leaves:
            names = {id(parameter): tidy(name) for name, parameter in self.model.named_parameters()}
            names |= whole_names(self.model, self.parameters)
            self.found |= {names.get(id(leaf), _unknown(leaf)) for leaf in leaves} - self.passed

    def agree(self, device: torch.device, by_passes: bool) -> bool:
        """Whether more parameters have to be passed than were known; every rank must call.

        Raises
        ------
        CoverageError
            On every rank, if they cannot be: shards, parameters outside of the model, or no losses of sequences.
        """
        names = sorted(self.parameters)
        known = set(names)
        flags = [name in self.found for name in names] + [bool(self.found - known)]
        together = self.world.sum(torch.tensor(flags, dtype=torch.float64, device=device)).cpu() > 0
        fresh = {name for name, flag in zip(names, together.tolist(), strict=False) if flag}
        outside, self.found = sorted(self.found - known), set()
        if outside or bool(together[-1]):
            self._refuse(sorted(fresh | set(outside)), bool(outside))
        if fresh and (not by_passes or is_sharded(self.parameters.values())):
            self._refuse(sorted(fresh), False)
        self.passed |= fresh
        return bool(fresh)

    def compare(self, eager: Tensor, compiled: Tensor) -> None:
        """See that a compiled model hands over the same calls as it does uncompiled; every rank must call.

        Raises
        ------
        CoverageError
            On every rank, if the sketches of the same sequences differ.
        """
        error = (eager - compiled).norm() / eager.norm().clamp(min=1e-300)
        if self.world.sum((error > 0.1).double()) > 0:
            hint = "compile its blocks one by one, or measure it uncompiled"
            raise CoverageError(f"the compiled model hides layers from the tracker: {float(error):.0%} off", hint=hint)

    def _refuse(self, names: list[str], unknown: bool) -> None:
        listed = ", ".join(names) or "parameters of another rank"
        raise CoverageError(_NOT_KNOWN.format(listed) if unknown else _NOT_COVERED.format(listed), hint=_HINT)


_NOT_KNOWN = "the loss depends on parameters that the tracker does not know: {}"
_NOT_COVERED = "parameters used in calls that are not covered: {}"
_HINT = (
    "unsharded models with `backward(loss_fn, ...)` take any layer of their own; otherwise use linear, embedding and "
    "norm layers, or do not train these"
)


def _unknown(leaf: Tensor) -> str:
    return f"one of shape {tuple(leaf.shape)}"
