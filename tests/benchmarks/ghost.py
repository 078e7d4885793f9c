"""Per-sequence ghost dot products, written anew after Wang et al. 2025 (In-Run Data Shapley): a baseline only.

For a linear layer with inputs x and output gradients g, the product of the gradients of a training sequence n and
a validation sequence m is the sum over their token pairs of <x_n, x_m> <g_n, g_m>: no weight gradient a sequence
is formed, but every training token meets every validation token in every layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Ghost:
    """Hooks on the linear, embedding and norm layers of a model; `gram` is (sequences, val sequences)."""

    def __init__(self, model: nn.Module, train: int) -> None:
        self.train, self.gram = train, torch.zeros(())
        self.handles = []
        for module in model.modules():
            if isinstance(module, (nn.Linear, nn.Embedding, nn.RMSNorm)):
                self.handles.append(module.register_forward_hook(self._forward))

    def close(self) -> None:
        for handle in self.handles:
            handle.remove()

    def _forward(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = inputs[0].detach()
        output.register_hook(lambda grad: self._product(module, x, grad))

    def _product(self, module: nn.Module, x: Tensor, grad: Tensor) -> None:
        n = self.train
        if isinstance(module, nn.RMSNorm):
            wide = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + (module.eps or 1e-6)) * grad
            each = wide.sum(1)
            self.gram = self.gram + each[:n] @ each[n:].T
            return
        length = grad.shape[1]
        pairs = grad[:n].flatten(0, 1) @ grad[n:].flatten(0, 1).T
        if isinstance(module, nn.Embedding):
            pairs *= x[:n].flatten()[:, None] == x[n:].flatten()[None]
        else:
            pairs *= x[:n].flatten(0, 1) @ x[n:].flatten(0, 1).T
        self.gram = self.gram + pairs.view(n, length, -1, length).sum((1, 3))


def ghost_step(model: nn.Module, loss_fn: Any, train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor]) -> Tensor:
    """Training gradients in `.grad`, and the products (sequences, val sequences) of mean-loss gradients.

    One pass over the concatenated batch gives the products. Weight gradients of the training rows alone need a
    second backward pass through the weights; as in the published code, validation rows get a weight so small that
    they do not disturb the training gradients, which is undone in the products.
    """
    n, tokens = len(train[0]), train[1].numel()
    ghost = Ghost(model, n)
    losses = loss_fn(torch.cat([train[0], val[0]]), torch.cat([train[1], val[1]]))
    small = 1e-6
    weights = torch.cat([torch.full((n,), 1.0 / tokens), torch.full((len(val[0]),), small / val[1][0].numel())])
    (losses * weights).sum().backward()
    ghost.close()
    return ghost.gram / small
