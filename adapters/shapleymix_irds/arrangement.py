"""How a trainer arranges a model: the order of activations, and parameters that ranks divide among them."""

from __future__ import annotations

from dataclasses import dataclass

from shapleymix_irds.distributed import World


@dataclass(frozen=True)
class Arrangement:
    """What a tracker is told of a trainer with a parallelism of its own (Megatron, torchtitan).

    Attributes
    ----------
    tokens_first : bool
        Whether activations are (S, B, ...); ids of tokens are (B, S) all the same.
    scattered : bool
        Whether a rank holds the averaged gradient in a part of its parameters only (a distributed optimiser), so that
        gradients of different ranks cannot be compared.
    divisor : float, optional
        What the sum of gradients over ranks is divided by; None: the number of ranks.
    parts : World, optional
        The ranks that hold parts of the same layers and see the same sequences (tensor parallel).
    copies : frozenset of str
        Parameters that are whole on each of those ranks, and counted by another one.
    """

    tokens_first: bool = False
    scattered: bool = False
    divisor: float | None = None
    parts: World | None = None
    copies: frozenset[str] = frozenset()
