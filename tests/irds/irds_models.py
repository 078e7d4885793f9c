"""Small models, batches, and the naive reference: one backward pass a language and a validation language."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from shapleymix_irds import IRDS, Options
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LANGUAGES = ("en", "de", "fr", "zh")
VOCAB, LENGTH, WIDTH = 23, 7, 12
OPTIONS = Options(val_sequences=3, measure_sequences=1)


class Block(nn.Module):
    """Norm, attention, norm, SwiGLU, as in a Llama-style decoder, with a bias and a LayerNorm for more cover."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.gate, self.up = nn.Linear(width, 20, bias=False), nn.Linear(width, 20, bias=False)
        self.down = nn.Linear(20, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """A raw decoder, untied; `checkpointed` recomputes each block in the backward pass."""

    def __init__(self, checkpointed: bool = False, width: int = WIDTH, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=0)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCAB, bias=False)
        self.checkpointed = checkpointed

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


class Tied(Decoder):
    """Input and output embedding are one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embed.weight


class Shifted(Decoder):
    """Bare parameters are added at each position and multiplied, and one is in the angles by which positions turn."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH))
        self.scale, self.turn = nn.Parameter(torch.randn(1, WIDTH)), nn.Parameter(torch.randn(WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        x = (self.embed(ids) + self.positions) * self.scale * torch.cos(torch.arange(LENGTH)[:, None] * self.turn)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).flatten(0, 1)).unflatten(0, ids.shape)


def make_model(seed: int = 0, **options: Any) -> Decoder:
    torch.manual_seed(seed)
    return Decoder(**options)


def sequence_losses(logits: Tensor, y: Tensor) -> Tensor:
    """Summed token loss of each sequence (B,); labels of -100 carry none."""
    flat = F.cross_entropy(
        logits.flatten(0, 1).to(torch.promote_types(logits.dtype, torch.float32)),
        y.flatten(),
        reduction="none",
        ignore_index=-100,
    )
    return flat.view(y.shape).sum(1)


def loss_of(model: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: sequence_losses(model(x), y)


def batch(counts: tuple[int, ...], seed: int = 1, masked: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """x, y, lang with so many sequences a language, shuffled; some labels masked."""
    generator = torch.Generator().manual_seed(seed)
    total = sum(counts)
    tokens = torch.randint(0, VOCAB, (total, LENGTH + 1), generator=generator)
    lang = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    lang = lang[torch.randperm(total, generator=generator)]
    x, y = tokens[:, :-1], tokens[:, 1:].clone()
    if masked:
        y[torch.rand(y.shape, generator=generator) < 0.2] = -100
    return x, y, lang


def validation(count: int = 3, seed: int = 99) -> dict[str, tuple[Tensor, Tensor]]:
    """Validation sequences of each language."""
    x, y, lang = batch((count,) * len(LANGUAGES), seed)
    return {name: (x[lang == k], y[lang == k]) for k, name in enumerate(LANGUAGES)}


def gradient(model: nn.Module, loss: Tensor) -> list[Tensor]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]


def dot(a: list[Tensor], b: list[Tensor]) -> float:
    return sum(float((u.double() * v.double()).sum()) for u, v in zip(a, b, strict=True))


def sketched(grads: list[Tensor], model: nn.Module, sides: dict[str, Any]) -> list[Tensor]:
    """What a tracker knows of whole gradients, by the sides of its last evaluation."""
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return [sides[name].sketch(grad) for name, grad in zip(names, grads, strict=True)]


def mean_losses(model: nn.Module, loss_fn: Any, val: dict[str, tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Mean validation loss a token of each language."""
    return [loss_fn(x, y).sum() / (y != -100).sum() for x, y in val.values()]


def training_parts(
    model: nn.Module, loss_fn: Any, x: Tensor, y: Tensor, lang: Tensor, tokens: float, k: int
) -> list[list[Tensor]]:
    """g_i: the gradient of language i's part of the mean training loss, one backward pass each."""
    parts = []
    for i in range(k):
        mine = lang == i
        zero = [torch.zeros_like(p) for p in model.parameters() if p.requires_grad]
        parts.append(gradient(model, loss_fn(x[mine], y[mine]).sum() / tokens) if mine.any() else zero)
    return parts


def naive_gram(
    model: nn.Module, loss_fn: Any, x: Tensor, y: Tensor, lang: Tensor, val: dict[str, tuple[Tensor, Tensor]]
) -> Tensor:
    """(K, K) <h_j, g_i> by K + K separate backward passes."""
    tokens = float((y != -100).sum())
    g = training_parts(model, loss_fn, x, y, lang, tokens, len(val))
    h = [gradient(model, loss) for loss in mean_losses(model, loss_fn, val)]
    return torch.tensor([[dot(g_i, h_j) for h_j in h] for g_i in g], dtype=torch.float64)


def relative(a: Any, b: Any) -> float:
    """Largest difference over the largest value."""
    a, b = (torch.as_tensor(values, dtype=torch.float64).detach() for values in (a, b))
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-300))


def tracker_of(model: Any, val: Any, **settings: Any) -> IRDS:
    """A tracker that evaluates every step."""
    return IRDS(model, LANGUAGES, val=val, **({"every": 1, "options": OPTIONS} | settings))


def compared(
    tracker: IRDS, x: Tensor, y: Tensor, lang: Tensor, step: int = 0, val: Any = None, plain: Any = None
) -> tuple[float, float]:
    """Errors of the gradient and of phi on one step, against the naive reference (on the same model as it was before,
    `plain`)."""
    model, loss_fn = tracker.model, loss_of(tracker.model)
    before = torch.as_tensor(tracker.ledger.phi).clone()
    truth = naive_gram(plain or model, loss_of(plain or model), x, y, lang, val or validation())
    expected = gradient(plain or model, loss_of(plain or model)(x, y).sum() / (y != -100).sum())
    model.zero_grad()
    tracker.backward(loss_fn, x, y, lang, step=step)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters() if p.requires_grad]
    tracker.commit(lr=1.0)
    error = max(relative(a, b) for a, b in zip(grads, expected, strict=True))
    return error, relative(torch.as_tensor(tracker.ledger.phi) - before, truth)
