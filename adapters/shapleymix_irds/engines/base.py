"""What the engines share: a call's outcome, losses of sequences, and the validation-free estimate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from shapleymix_irds.batch import Batch

LossFn = Callable[[Tensor, Tensor], "Tensor | tuple[Tensor, Tensor]"]


@dataclass(frozen=True)
class Task:
    """One call of `backward` on an evaluated step.

    Attributes
    ----------
    batch, val : Batch, optional
        Training sequences sorted by group, and validation sequences by language (None: validation-free).
    scale : float
        Ranks / N; the summed loss is multiplied by it before it is differentiated (wrappers take the mean over ranks).
    languages : int
        Number of languages, K.
    """

    loss_fn: LossFn
    batch: Batch
    val: Batch | None
    scale: float
    languages: int


@dataclass(frozen=True)
class Outcome:
    """What a call gives; sums over ranks and calls are the step's.

    Attributes
    ----------
    losses : tensor (B,)
        Summed token loss of each training sequence, in the order of the batch.
    gram : tensor (K, K)
        Products <h_j, g_i> in float64, row i and column j: this rank's share.
    cover : tensor (K, K)
        Tokens of source i for which column j could be estimated, in float64.
    val_losses : tensor, optional
        Mean validation losses (K,), or None in validation-free mode.
    """

    losses: Tensor
    gram: Tensor
    cover: Tensor
    val_losses: Tensor | None


class Engine(Protocol):
    """An estimator of one step."""

    name: str

    def run(self, task: Task) -> Outcome:
        """Leave the training gradients in `.grad` as `backward()` would, and give the products."""
        ...

    def finish(self, lr: float) -> Tensor | None:
        """At commit, with clipped gradients in `.grad`: the products (K, K) of second order, or None."""
        ...


def trained(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is trained on."""
    return losses[0] if isinstance(losses, tuple) else losses


def plain(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is measured."""
    return losses[1] if isinstance(losses, tuple) else losses


def full_cover(tokens: Tensor, languages: int) -> Tensor:
    """Every column estimated: the tokens of each source, (K, K)."""
    return tokens[:, None].expand(languages, languages).clone()


def combine_halves(gram: Tensor, tokens: Tensor, unscale: float) -> tuple[Tensor, Tensor]:
    """Validation-free products: language j's own fresh training gradient stands for its validation gradient.

    Parameters
    ----------
    gram : tensor (2K, 2K)
        Products of the scaled gradients of halves of languages.
    tokens : tensor (2K,)
        Tokens of the halves.
    unscale : float
        The factor that undoes the scale of one of the two gradients.

    Returns
    -------
    tuple
        Products (K, K), 0 where a column has no estimate, and the tokens covered. On the diagonal one half of
        the language is measured on the other: with the same sequences on both sides it would be several
        times too large.
    """
    n = tokens.view(-1, 2)
    total = n.sum(1)
    blocks = gram.view(len(n), 2, len(n), 2)
    means = torch.where(total > 0, unscale / total.clamp(min=1), 0.0)
    products = blocks.sum((1, 3)) * means
    both = (n > 0).all(1)
    crossed = torch.diagonal(blocks[:, 0, :, 1]) * (unscale / n.clamp(min=1)).sum(1)
    products.diagonal().copy_(torch.where(both, crossed, 0.0))
    known = (total > 0).expand(len(n), len(n)).clone()
    known.diagonal().copy_(both)
    return products, total[:, None] * known
