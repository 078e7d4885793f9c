"""Whose each row of a layer's input is: a label for each sequence, or for each token of packed sequences.

Legend: B sequences of S tokens, G groups (languages, or their halves); a call's rows are U units of n rows each, and
a unit is of one group. Ids of tokens always come as (B, S); activations as (B, S, ...), or, in models with the tokens'
axis in front (Megatron), as (S, B, ...).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

FEWEST = 8  # groups that have room
BLOCK = 32  # rows of one group that are multiplied at a time, where labels change from token to token


@dataclass(frozen=True)
class Units:
    """The rows of one call, as units of one group each.

    Attributes
    ----------
    groups : tensor (U,)
        Group of each unit.
    slots : tensor (U n,), optional
        Which row stands in each place (the number of rows: none); None where rows stand in their order.
    """

    groups: Tensor
    slots: Tensor | None = None


@dataclass
class Labels:
    """The labels of one batch.

    Attributes
    ----------
    groups : tensor (B,) or (B, S)
        Group of each sequence, or of each token, on the model's device.
    count : int
        Number of groups, G.
    length : int, optional
        S; None: as the first call tells.
    tokens_first : bool
        Whether activations have the tokens' axis in front.
    """

    groups: Tensor
    count: int
    length: int | None = None
    tokens_first: bool = False
    blocks: Units = field(init=False)
    id_blocks: Units = field(init=False)

    def __post_init__(self) -> None:
        if self.by_token:
            self.length = self.groups.shape[1]
        self.blocks = self.id_blocks = _blocks(self._by_row().flatten(), self.count)
        if self.tokens_first and self.by_token:
            self.id_blocks = _blocks(self.groups.flatten(), self.count)

    @property
    def by_token(self) -> bool:
        """Whether each token has its own label."""
        return self.groups.dim() == 2

    @property
    def batch(self) -> int:
        return self.groups.shape[0]

    def dense(self) -> tuple[Labels, Tensor]:
        """The same labels numbered anew, without groups that do not occur, and which group each number is.

        There is room for a power of two of them, so that a compiled model is not compiled anew for each number.
        """
        present, numbers = torch.unique(self.groups, return_inverse=True)
        room = max(FEWEST, 1 << (len(present) - 1).bit_length())
        return replace(self, groups=numbers, count=min(self.count, room)), present

    def learn(self, shape: torch.Size) -> None:
        """Take S from the first call that has sequences and tokens in front."""
        if self.length is None and len(shape) >= 2 and shape[0] == self.batch:
            self.length = shape[1]

    def lead(self, shape: torch.Size, ids: bool = False) -> int:
        """How many axes in front of a shape (without the last axis of features) are axes of the batch; 0: none are.

        `ids` says that it is the shape of ids of tokens, of which sequences are in front in any model.
        """
        if not shape:
            return 0
        if self.length is not None and shape[0] == self.batch * self.length:
            return 1
        if self.tokens_first and not ids:
            return 2 if tuple(shape[:2]) == (self.length, self.batch) else 0
        if shape[0] != self.batch:
            return 0
        if self.by_token:
            return 2 if len(shape) >= 2 and shape[1] == self.length else 0
        return 1

    def units(self, shape: torch.Size, ids: bool = False) -> tuple[Units, int]:
        """The units of rows of this shape, and how many rows there are in each."""
        rows, swapped = math.prod(shape), self.tokens_first and not ids
        if not self.by_token:
            slots = self._sorted(rows) if swapped else None
            return Units(self.groups, slots), rows // self.batch
        each = rows // self.groups.numel()
        if each == 1:
            return (self.id_blocks if ids else self.blocks), BLOCK
        return Units((self.groups if ids else self._by_row()).flatten()), each

    def spread(self, shape: torch.Size) -> tuple[Tensor, int]:
        """The group of each unit of a shape that begins with axes of the batch, and how often all units come."""
        if not self.tokens_first:
            return self.groups.flatten(), 1
        assert self.length is not None
        return (self._by_row().flatten(), 1) if self.by_token else (self.groups, self.length)

    def sequences_first(self, x: Tensor, ids: bool = False) -> Tensor:
        """Values (B, ...) of each sequence, whatever the order of the axes of the batch."""
        if not self.tokens_first or ids:
            return x.reshape(self.batch, -1)
        return x.reshape(-1, self.batch, x.numel() // (self.batch * (self.length or 1))).transpose(0, 1).flatten(1)

    def _by_row(self) -> Tensor:
        """Groups in the order of an activation's rows."""
        return self.groups.t() if self.tokens_first and self.by_token else self.groups

    def _sorted(self, rows: int) -> Tensor:
        """Rows (S, B, n) in the order (B, S, n)."""
        assert self.length is not None
        order = torch.arange(rows, device=self.groups.device).view(self.length, self.batch, -1)
        return order.transpose(0, 1).flatten()


def _blocks(groups: Tensor, count: int) -> Units:
    """Rows sorted by group, each group padded to whole blocks; the number of blocks is that of the worst case."""
    rows = len(groups)
    total = rows // BLOCK + count
    order = torch.argsort(groups, stable=True)
    sizes = torch.bincount(groups, minlength=count)
    needed = (sizes + BLOCK - 1) // BLOCK
    first = torch.cumsum(needed, 0) - needed
    begin = torch.cumsum(sizes, 0) - sizes
    sorted_groups = groups[order]
    place = first[sorted_groups] * BLOCK + torch.arange(rows, device=groups.device) - begin[sorted_groups]
    slots = torch.full((total * BLOCK,), rows, device=groups.device, dtype=torch.long)
    slots[place] = order
    owner = torch.searchsorted(torch.cumsum(needed, 0), torch.arange(total, device=groups.device), right=True)
    return Units(owner.clamp(max=count - 1), slots)
