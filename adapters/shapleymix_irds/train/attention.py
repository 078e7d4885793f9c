"""Causal attention over whole sequences, or within the documents of packed ones.

Shapes: B sequences, T positions, H heads, d numbers of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

Mask = Tensor | BlockMask


def documents_of(tokens_BT: Tensor, end: int) -> Tensor:
    """The number of each token's document, (B, T); the token that ends a document is its last."""
    ends = (tokens_BT == end).long()
    return ends.cumsum(1) - ends


def positions_of(documents_BT: Tensor) -> Tensor:
    """Each token's place in its document, (B, T)."""
    place = torch.arange(documents_BT.shape[1], device=documents_BT.device).expand_as(documents_BT)
    begins = torch.diff(documents_BT, prepend=documents_BT[:, :1] - 1, dim=1) != 0
    return place - torch.where(begins, place, 0).cummax(1).values


def mask_of(documents_BT: Tensor) -> Mask:
    """Who sees whom: on a GPU blocks of what is seen, elsewhere a table (B, 1, T, T)."""
    if documents_BT.device.type == "cuda":
        return block_mask(documents_BT)
    length = documents_BT.shape[1]
    earlier = torch.ones(length, length, dtype=torch.bool, device=documents_BT.device).tril()
    same = documents_BT[:, None, :, None] == documents_BT[:, None, None, :]
    return same & earlier


def block_mask(documents_BT: Tensor) -> BlockMask:
    """Who sees whom, so that blocks of which nothing is seen cost nothing."""

    def seen(b: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents_BT[b, query] == documents_BT[b, key])

    B, T = documents_BT.shape
    return create_block_mask(seen, B, None, T, T, device=documents_BT.device)


def attend(q_BHTd: Tensor, k_BHTd: Tensor, v_BHTd: Tensor, mask: Mask | None) -> Tensor:
    """Softmax attention, (B, H, T, d): to all earlier tokens, or to those of the mask."""
    if not isinstance(mask, BlockMask):
        return F.scaled_dot_product_attention(q_BHTd, k_BHTd, v_BHTd, attn_mask=mask, is_causal=mask is None)
    flex = flex_attention if torch.compiler.is_compiling() or q_BHTd.device.type != "cuda" else _fused()
    found = flex(q_BHTd, k_BHTd, v_BHTd, block_mask=mask)
    assert isinstance(found, Tensor)
    return found


@cache
def _fused() -> Callable[..., object]:
    """Compiled it is one kernel; uncompiled it would hold all scores."""
    return torch.compile(flex_attention)
