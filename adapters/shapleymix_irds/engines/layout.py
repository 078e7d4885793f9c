"""Which numbers of a step's sketches belong to which parameters.

Parameters of one learning rate share a sketch. Where rates differ, sketches are kept apart, so that each can be
multiplied by its own rate once that is known; together they are about as long as the one would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shapleymix_irds.engines.sketches import Form
from shapleymix_irds.errors import TrackerError

LEAST = 1_024  # numbers of a sketch beside others, or all where it would have fewer alone


@dataclass(frozen=True)
class Layout:
    """The sketches of one step, by their names.

    Attributes
    ----------
    sizes : mapping of str to int
        Numbers of each trained parameter.
    kinds : mapping of str to int
        Parameters of one number share a sketch; those that are not named have number 0.
    """

    form: Form
    sizes: Mapping[str, int]
    kinds: Mapping[str, int] = field(default_factory=dict)

    def sketch(self, parameter: str) -> str:
        """The sketch that a parameter is in: its own where products are exact."""
        return parameter if self.form.exact else str(self.kinds.get(parameter, 0))

    def numbers(self) -> dict[str, int]:
        """Numbers of each sketch, in one order on every rank."""
        if self.form.exact:
            return dict(sorted(self.sizes.items()))
        names = sorted({self.sketch(parameter) for parameter in self.sizes})
        width = max(self.form.width // len(names), min(self.form.width, LEAST))
        return dict.fromkeys(names, width)

    def factors(self, shares: Mapping[str, float]) -> Tensor | None:
        """What each number of a sketch is multiplied with, given that of each parameter; None where all are 1.

        Raises
        ------
        TrackerError
            If parameters of one sketch have different ones.
        """
        if all(share == 1.0 for share in shares.values()):
            return None
        found: dict[str, tuple[str, float]] = {}
        for parameter in self.sizes:
            share = shares.get(parameter, 1.0)
            first, known = found.setdefault(self.sketch(parameter), (parameter, share))
            if share != known:
                told = f"{first!r} and {parameter!r} had one learning rate when the step began, and now have two"
                hint = "set learning rates before the step's first backward pass, or give the tracker parameter_groups="
                raise TrackerError(told, hint=hint)
        parts = [torch.full((n,), found[name][1], dtype=torch.float64) for name, n in self.numbers().items()]
        return torch.cat(parts)
