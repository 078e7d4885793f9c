"""The step between its calls and `commit`: sums over calls, then over ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shapleymix_irds.accounts.ledger import Array
from shapleymix_irds.distributed import World, scalar
from shapleymix_irds.engines.base import combine_halves
from shapleymix_irds.engines.observer import Observer
from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.rates import Rates


class Sums(NamedTuple):
    """Gram (K, K), cover (K, K), tokens (K,) and validation losses (K,) of a step."""

    gram: Array
    cover: Array
    tokens: Array
    val_losses: Array


@dataclass(frozen=True)
class Call:
    """One call of a step.

    Attributes
    ----------
    indices, counts : tensor (B,) or (B, S)
        Language and tokens with a label of each sequence, or of each token.
    tokens, total : int, optional, and float
        Tokens of the step as given, and as reckoned with.
    length : int, optional
        S, if known.
    labelled : bool
        Whether the counts are known to be those of tokens with a label.
    mean : bool
        Whether the loss is the mean over this call's own tokens, and the step's the mean over calls and ranks.
    """

    step: int
    indices: Tensor
    counts: Tensor
    tokens: int | None
    total: float
    length: int | None
    labelled: bool = True
    mean: bool = False


@dataclass
class Pending:
    """One step of the training loop.

    Attributes
    ----------
    total, given : float, optional, and bool
        Tokens of the step over all ranks and calls; whether the caller gave them.
    tokens, parts : tensor (G,)
        Training tokens of this rank by group: a language, or half of one where there is no validation set; and what
        part they are of what the loss is a mean of, summed over calls.
    losses : tensor (K,)
        Summed training losses by language, where they are known.
    labelled, mean : bool
        As of its calls.
    calls : int
        Number of calls so far.
    """

    step: int
    evaluated: bool
    total: float
    given: bool
    tokens: Tensor
    losses: Tensor
    labelled: bool = True
    mean: bool = False
    calls: int = field(default=0, init=False)
    parts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.parts = torch.zeros_like(self.tokens)

    def count(self, groups: Tensor, counts: Tensor) -> None:
        """A call of an evaluated step has ended; the group and number of each of its tokens."""
        own = torch.zeros_like(self.tokens).index_add_(0, groups.flatten().cpu(), counts.flatten())
        self.tokens += own
        self.parts += own / (own.sum() if self.mean else self.total)

    def restart(self, call: Call) -> None:
        """Forget the calls before this one."""
        self.calls, self.total = 1, call.total
        self.given, self.mean = call.tokens is not None, call.mean
        for values in (self.tokens, self.parts, self.losses):
            values.zero_()

    def check_call(self, step: int, tokens: int | None) -> None:
        """Whether another call goes on with this step.

        Raises
        ------
        TrackerError
            If it is of another step, or divides by other tokens than the calls before.
        """
        if self.step != step:
            hint = "call `commit` after each step's last `backward`"
            raise TrackerError(f"backward of step {step}, but step {self.step} is not committed", hint=hint)
        if tokens is None and self.mean:
            return
        if tokens is None or not self.given:
            hint = "give the tokens of the whole step, over ranks and calls, in each of its calls"
            raise TrackerError(f"step {step}: backward is called again, but not always with `tokens`", hint=hint)
        if tokens != self.total:
            raise TrackerError(f"step {step}: backward with tokens={tokens} after one with {self.total:.0f}")


@dataclass(frozen=True)
class Numbers:
    """What ranks add up at a step's end; K languages, G groups, n numbers of a sketch, float64.

    Attributes
    ----------
    train, val : tensor (G, n) and (K, n)
        Sketches; G = 2 K and no `val` where halves of languages are measured on each other.
    tokens, parts, losses : tensor (G,), (G,) and (K,)
        Of training.
    val_losses, val_tokens : tensor (K,)
        Of validation.
    divisor : tensor (2,)
        The number of tokens that a rank divides by, and its square.
    """

    train: Tensor
    val: Tensor
    tokens: Tensor
    parts: Tensor
    losses: Tensor
    val_losses: Tensor
    val_tokens: Tensor
    divisor: Tensor

    @classmethod
    def of_rank(cls, pending: Pending, observer: Observer, factors: Tensor | None = None) -> Numbers:
        """This rank's own; numbers whose factor is 0 are left out, whatever they are."""
        device, count = observer.device, len(pending.tokens)
        train, found = observer.flat(observer.train, count), observer.validated
        none = torch.zeros(0, dtype=torch.float64, device=device)
        val, val_losses, val_tokens = none, none, none
        divisor = torch.tensor([pending.total, pending.total**2], dtype=torch.float64, device=device)
        if found is not None:
            val = observer.flat(found.sketches, observer.languages)
            val_losses, val_tokens = found.losses.to(device), found.tokens.to(device)
        if factors is not None and bool((factors == 0).any()):
            kept = factors.to(device) != 0
            train, val = torch.where(kept, train, 0.0), val if found is None else torch.where(kept, val, 0.0)
        parts = pending.parts / (observer.coverage.world.size * pending.calls if pending.mean else 1)
        tokens, losses = pending.tokens.to(device), pending.losses.to(device)
        return cls(train, val, tokens, parts.to(device), losses, val_losses, val_tokens, divisor)

    def over(self, world: World) -> Numbers:
        """Summed over ranks, in one message."""
        parts = [getattr(self, each.name) for each in fields(self)]
        whole = world.sum(torch.cat([part.flatten() for part in parts]))
        pieces = torch.split(whole, [part.numel() for part in parts])
        return Numbers(*(piece.view(part.shape).cpu() for piece, part in zip(pieces, parts, strict=True)))

    def finite(self) -> bool:
        parts = (self.train, self.val, self.losses, self.val_losses)
        return all(bool(torch.isfinite(part).all()) for part in parts)

    def flags(self) -> Tensor:
        """For each language: whether its training loss, validation loss, and its gradients on both sides are bad."""
        languages = len(self.losses)
        bad_train = ~torch.isfinite(self.train).all(1).view(languages, -1).all(1)
        empty = torch.zeros_like(bad_train)
        bad_val = ~torch.isfinite(self.val).all(1) if self.val.numel() else empty
        bad_loss = ~torch.isfinite(self.val_losses) if self.val_losses.numel() else empty
        return torch.stack([~torch.isfinite(self.losses), bad_loss, bad_train, bad_val]).double()


def close(
    pending: Pending,
    observer: Observer,
    world: World,
    languages: Sequence[str],
    rates: Rates,
    any_divisor: bool = False,
) -> Sums:
    """The sums of the step over its calls and all ranks; products are in terms of the largest rate.

    Parameters
    ----------
    any_divisor : bool
        Whether the step may be divided by another number than that of its tokens.

    Raises
    ------
    TrackerError
        If ranks divide by different numbers, or by one that is not that of the step's tokens.
    NonFiniteError
        On every rank, naming the step, the language and the rank where it happened.
    """
    factors = observer.layout.factors(rates.shares)
    own = Numbers.of_rank(pending, observer, factors)
    total = own.over(world)
    if not total.finite():
        rows = world.gather(own.flags().to(observer.device).flatten())
        raise NonFiniteError(_explain(pending.step, rows, languages), hint=_HINT)
    check_divisor(pending, total, world, any_divisor)
    scale = 1.0 / (world.size * rates.grad_scale)
    k = len(languages)
    if len(total.tokens) == 2 * k:
        train = total.train * scale
        gram, cover = combine_halves(train @ _times(train, factors).T, total.tokens, total.parts)
        unknown = np.full(k, np.nan)
        return Sums(gram.numpy(), cover.numpy(), total.tokens.view(k, 2).sum(1).numpy(), unknown)
    counts = total.val_tokens.clamp(min=1)
    gram = _times(total.train, factors) @ (total.val / counts[:, None]).T * scale
    cover = total.tokens[:, None] * (total.val_tokens > 0)
    return Sums(gram.numpy(), cover.numpy(), total.tokens.numpy(), (total.val_losses / counts).numpy())


def _times(sketches: Tensor, factors: Tensor | None) -> Tensor:
    return sketches if factors is None else sketches * factors


def over_parts(take: Callable[[], Sums], parts: World, step: int) -> Sums:
    """The sums of ranks that hold parts of the same layers: products add up, all else is the same on each.

    Raises
    ------
    NonFiniteError
        On every rank.
    """
    sums, error = None, None
    try:
        sums = take()
    except NonFiniteError as caught:
        error = caught
    if parts.any(error is not None) or sums is None:
        raise error or NonFiniteError(f"step {step}: a gradient in another part of a layer is not finite", hint=_HINT)
    gram = torch.as_tensor(sums.gram).to(parts.device)
    return sums._replace(gram=parts.sum(gram).cpu().numpy())


def check_divisor(pending: Pending, total: Numbers, world: World, any_divisor: bool) -> None:
    """Every rank has divided by the tokens of all, if not each by its own."""
    if pending.mean:
        return
    mean, square = (total.divisor / world.size).tolist()
    if square - mean**2 > 1e-9 * square:
        hint = "sum the tokens over ranks and calls, and give each rank the sum"
        raise TrackerError(f"step {pending.step}: ranks give different tokens=, {mean:.0f} in the mean", hint=hint)
    counted = float(total.tokens.sum())
    if pending.labelled and not any_divisor and abs(pending.total / counted - 1.0) > FAR:
        hint = "sum the tokens over ranks and calls; if another divisor is meant, Options(any_divisor=True)"
        told = f"tokens={pending.total:.0f}, but its calls have {counted:.0f} labelled tokens on all ranks"
        raise TrackerError(f"step {pending.step}: backward has {told}", hint=hint)


FAR = 0.25  # ways of counting differ by less, such as the first token of each sequence


def clip_coefficient(grad_norm: float | Tensor | None, max_norm: float | None, step: int) -> float:
    """The coefficient by which `clip_grad_norm_` multiplied the gradients.

    Raises
    ------
    TrackerError
        If only one of the two is given, or one of them cannot be.
    """
    if (grad_norm is None) != (max_norm is None):
        raise TrackerError(f"step {step}: commit needs both grad_norm and max_norm, or neither")
    norm = scalar(grad_norm)
    if norm is None or max_norm is None:
        return 1.0
    if not max_norm > 0:
        raise TrackerError(f"step {step}: commit has max_norm={max_norm}, expected more than 0")
    if not math.isfinite(norm):
        raise NonFiniteError(f"step {step}: grad_norm is {norm}", hint=_HINT)
    if norm < 0:
        raise TrackerError(f"step {step}: commit has grad_norm={norm}, expected 0 or more")
    return min(1.0, max_norm / (norm + 1e-6))


_HINT = (
    "resume from the last checkpoint with a lower learning rate, or look at the sequences of this step; "
    "where a GradScaler skips it, call `skip` in place of `commit`"
)


def _explain(step: int, rows: list[Tensor], languages: Sequence[str]) -> str:
    """Where a number is not finite, by the flags of each rank."""
    flags = [row.cpu().view(len(_BAD), len(languages)) > 0 for row in rows]
    for kind, what in enumerate(_BAD):
        for rank, bad in enumerate(flags):
            if bad[kind].any():
                return f"step {step}, rank {rank}: {what.format(languages[int(bad[kind].nonzero()[0])])} is not finite"
    return f"step {step}: a sum over ranks is not finite"


_BAD = (
    "the training loss of {!r}",
    "the validation loss of {!r}",
    "the gradient of the training sequences of {!r}",
    "the gradient of the validation loss of {!r}",
)
