"""A Llama-style decoder: RMSNorm, rotary positions, SwiGLU, untied embeddings.

Shapes: B sequences, T positions, H heads, h hidden, f feed-forward, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from shapleymix_irds.train.settings import ModelConfig

ROTARY_BASE, NORM_EPS = 10_000.0, 1e-5


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, h = config.heads, config.hidden
        self.query, self.key, self.value, self.out = (nn.Linear(h, h, bias=False) for _ in range(4))

    def forward(self, x_BTh: Tensor, turn: Tensor) -> Tensor:
        B, T, _ = x_BTh.shape
        layers = self.query, self.key, self.value
        q, k, v = (layer(x_BTh).view(B, T, self.heads, -1).transpose(1, 2) for layer in layers)
        mixed = F.scaled_dot_product_attention(rotate(q, turn), rotate(k, turn), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(B, T, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down = nn.Linear(config.ffn, config.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind a norm and around a residual path."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turn)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Decoder(nn.Module):
    """Tokens (B, T) to logits (B, T, V).

    Parameters
    ----------
    recompute : bool
        Compute each layer again in the backward pass.
    """

    def __init__(self, config: ModelConfig, *, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = config, recompute
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden, eps=NORM_EPS)
        self.output = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x = self.embedding(tokens_BT)
        turn = rotation(tokens_BT.shape[1], self.config.hidden // self.config.heads, x.device)
        again = self.recompute and torch.is_grad_enabled()
        for block in self.blocks:
            x = recomputed(block, x, turn) if again else block(x, turn)
        return self.output(self.norm(x))

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw the weights on the CPU from `seed`: the same on every rank and for every device."""
        generator = torch.Generator().manual_seed(seed)
        inner = 0.02 / math.sqrt(2 * self.config.layers)
        for name, weight in self.named_parameters():
            if weight.ndim == 1:
                weight.fill_(1.0)
                continue
            scale = inner if name.endswith(("attention.out.weight", "down.weight")) else 0.02
            drawn = torch.randn(weight.shape, generator=generator).mul_(scale)
            weight.copy_(sharded_like(weight, drawn))


@torch.compiler.disable(recursive=False)
def recomputed(block: nn.Module, x: Tensor, turn: Tensor) -> Tensor:
    """The block's output, computed again in the backward pass.

    A compiler that traced through this would hide the block's layers from the tracker; it begins anew inside of it.
    """
    return checkpoint(block, x, turn, use_reentrant=False)


def sharded_like(weight: Tensor, drawn: Tensor) -> Tensor:
    """The rank's part of `drawn`, which all ranks have alike, if the weight is sharded."""
    if not isinstance(weight, DTensor):
        return drawn
    there = drawn.to(weight.device)
    return distribute_tensor(there, weight.device_mesh, weight.placements, src_data_rank=None)


def rotation(length: int, head_size: int, device: torch.device) -> Tensor:
    """Cosines and sines (2, T, head_size / 2) of the rotary position embedding."""
    speed = ROTARY_BASE ** (-torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
    angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), speed)
    return torch.stack([angle.cos(), angle.sin()])


def rotate(x_BHTd: Tensor, turn: Tensor) -> Tensor:
    """Turn each pair (first half, second half) of the head's coordinates by its position's angle."""
    cos, sin = turn.to(x_BHTd.dtype)
    first, second = x_BHTd.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def sequence_losses(logits_BTV: Tensor, targets_BT: Tensor, z_loss: float = 0.0) -> tuple[Tensor, Tensor]:
    """What is trained on and what is measured, both in nats summed over each sequence (B,).

    Measured is the cross-entropy; trained on, in addition, `z_loss` times log(Z) squared.
    """
    logits = logits_BTV.float()
    measured = F.cross_entropy(logits.flatten(0, 1), targets_BT.flatten(), reduction="none")
    trained = measured + z_loss * logits.logsumexp(-1).square().flatten() if z_loss else measured
    return trained.view(targets_BT.shape).sum(-1), measured.view(targets_BT.shape).sum(-1)
