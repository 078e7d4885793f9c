"""The step between `backward` and `commit`: sums over its calls, then over ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shapleymix_irds.accounts.ledger import Array
from shapleymix_irds.batch import Batch, group_sums
from shapleymix_irds.distributed import World, scalar
from shapleymix_irds.engines.base import Outcome
from shapleymix_irds.errors import NonFiniteError, TrackerError


class Sums(NamedTuple):
    """Gram (K, K), cover (K, K), tokens (K,) and validation losses (K,) of a step."""

    gram: Array
    cover: Array
    tokens: Array
    val_losses: Array


@dataclass
class Pending:
    """One step of the training loop.

    Attributes
    ----------
    total, given : float, optional, and bool
        Tokens of the step over all ranks and calls; whether the caller gave them.
    calls : int
        Number of calls of `backward` so far.
    """

    step: int
    evaluated: bool
    total: float
    given: bool
    calls: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)

    def add(self, outcome: Outcome, batch: Batch, languages: int) -> None:
        """Book a call."""
        self.outcomes.append(outcome)
        self.tokens.append(batch.tokens.view(languages, -1).sum(1))
        sums = group_sums(outcome.losses.double().cpu(), batch.bounds)
        self.losses.append(sums.view(languages, -1).sum(1))

    def check_call(self, step: int, tokens: int | None) -> None:
        """Whether another call of `backward` goes on with this step.

        Raises
        ------
        TrackerError
            If it is of another step, or divides by other tokens than the calls before.
        """
        if self.step != step:
            hint = "call `commit` after each step's last `backward`"
            raise TrackerError(f"backward of step {step}, but step {self.step} is not committed", hint=hint)
        if tokens is None or not self.given:
            hint = "give the tokens of the whole step, over ranks and calls, in each of its calls"
            raise TrackerError(f"step {step}: backward is called again, but not always with `tokens`", hint=hint)
        if tokens != self.total:
            raise TrackerError(f"step {step}: backward with tokens={tokens} after one with {self.total:.0f}")

    def close(
        self,
        second: Tensor | None,
        world: World,
        device: torch.device,
        languages: Sequence[str],
        any_divisor: bool = False,
    ) -> Sums:
        """The sums of the step over its calls and all ranks.

        Parameters
        ----------
        second : tensor, optional
            Products of second order (K, K), which take the place of the calls' own.
        any_divisor : bool
            Whether the step may be divided by another number than that of its tokens.

        Raises
        ------
        TrackerError
            If ranks divide by different numbers, or by one that is not that of the step's tokens.
        NonFiniteError
            On every rank, naming the step, the language and the rank where it happened.
        """
        gram = torch.stack([o.gram for o in self.outcomes]).sum(0) if second is None else second
        k = len(gram)
        cover = torch.stack([o.cover for o in self.outcomes]).sum(0)
        tokens, losses = torch.stack(self.tokens).sum(0), torch.stack(self.losses).sum(0)
        known = [o.val_losses for o in self.outcomes if o.val_losses is not None]
        val = torch.stack(known).mean(0) if known else torch.zeros(k, dtype=torch.float64)
        divisor = torch.tensor([self.total, self.total**2], dtype=torch.float64) / world.size
        payload = torch.cat([gram.flatten() / world.size, cover.flatten(), tokens, val / world.size, losses, divisor])
        whole = world.sum(payload.to(device)).cpu()
        if not torch.isfinite(whole).all():
            flags = torch.cat([losses, val, gram.flatten()]).to(device)
            raise NonFiniteError(_explain(self.step, world.gather(flags), languages), hint=_HINT)
        pieces = [piece.numpy() for piece in torch.split(whole, [k * k, k * k, k, k, k, 2])]
        self._check_divisor(pieces[2], pieces[5], any_divisor)
        val_losses = pieces[3] if known else np.full(k, np.nan)
        return Sums(pieces[0].reshape(k, k), pieces[1].reshape(k, k), pieces[2], val_losses)

    def _check_divisor(self, tokens: Array, moments: Array, any_divisor: bool) -> None:
        """Every rank has divided by the tokens of all; `moments` are the mean and the mean square over ranks."""
        mean, square = moments
        if square - mean**2 > 1e-9 * square:
            hint = "sum the tokens over ranks and calls, and give each rank the sum"
            raise TrackerError(f"step {self.step}: ranks give different tokens=, {mean:.0f} in the mean", hint=hint)
        counted = float(tokens.sum())
        if not any_divisor and abs(self.total / counted - 1.0) > FAR:
            hint = "sum the tokens over ranks and calls; if another divisor is meant, Options(any_divisor=True)"
            told = f"tokens={self.total:.0f}, but its calls have {counted:.0f} labelled tokens on all ranks"
            raise TrackerError(f"step {self.step}: backward has {told}", hint=hint)


FAR = 0.25  # ways of counting differ by less, such as the first token of each sequence


def learning_rate(lr: float, step: int) -> float:
    """The learning rate of a step.

    Raises
    ------
    TrackerError
        If it is not finite, or negative.
    """
    if not 0 <= float(lr) < math.inf:
        raise TrackerError(f"step {step}: commit has lr={float(lr)}, expected 0 or more")
    return float(lr)


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


_HINT = "resume from the last checkpoint with a lower learning rate, or look at the sequences of this step"


def _explain(step: int, flags: list[Tensor], languages: Sequence[str]) -> str:
    """Where a number is not finite, by the numbers of each rank."""
    k = len(languages)
    parts = [torch.split(~torch.isfinite(values.cpu()), [k, k, k * k]) for values in flags]
    for kind, what in enumerate(("training loss", "validation loss")):
        for rank, bad in enumerate(parts):
            if bad[kind].any():
                name = languages[int(bad[kind].nonzero()[0])]
                return f"step {step}, rank {rank}: the {what} of {name!r} is not finite"
    for rank, bad in enumerate(parts):
        if bad[2].any():
            i, j = divmod(int(bad[2].nonzero()[0]), k)
            pair = f"{languages[i]!r} (training) and {languages[j]!r} (validation)"
            return f"step {step}, rank {rank}: the product of the gradients of {pair} is not finite"
    return f"step {step}: a sum over ranks is not finite"
