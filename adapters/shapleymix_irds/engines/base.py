"""What the engine is given and gives: loss functions, and the products of halves where there is no validation set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LossFn = Callable[[Any, Tensor], "Tensor | tuple[Tensor, Tensor]"]  # of inputs (one tensor, or several by name), labels


def trained(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is trained on."""
    return losses[0] if isinstance(losses, tuple) else losses


def plain(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is measured."""
    return losses[1] if isinstance(losses, tuple) else losses


def combine_halves(gram: Tensor, tokens: Tensor, parts: Tensor) -> tuple[Tensor, Tensor]:
    """Validation-free products: language j's own fresh training gradient stands for its validation gradient.

    Parameters
    ----------
    gram : tensor (2K, 2K)
        Products of the scaled gradients of halves of languages.
    tokens, parts : tensor (2K,)
        Tokens of the halves, and what part of the loss they are: gradients over parts are those of mean losses.

    Returns
    -------
    tuple
        Products (K, K), 0 where a column has no estimate, and the tokens covered. On the diagonal one half of
        the language is measured on the other: with the same sequences on both sides it would be several
        times too large.
    """
    n, parts = tokens.view(-1, 2), parts.view(-1, 2)
    total = n.sum(1)
    blocks = gram.view(len(n), 2, len(n), 2)
    tiny = 1e-300
    means = torch.where(total > 0, 1 / parts.sum(1).clamp(min=tiny), 0.0)
    products = blocks.sum((1, 3)) * means
    both = (n > 0).all(1)
    crossed = torch.diagonal(blocks[:, 0, :, 1]) * (1 / parts.clamp(min=tiny)).sum(1)
    products.diagonal().copy_(torch.where(both, crossed, 0.0))
    known = (total > 0).expand(len(n), len(n)).clone()
    known.diagonal().copy_(both)
    return products, total[:, None] * known
