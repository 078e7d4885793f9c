"""The step between `backward` and `commit`: sums over its calls, then over ranks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from shapleymix_irds.batch import Batch, group_sums
from shapleymix_irds.distributed import World, scalar
from shapleymix_irds.engine import Outcome
from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.ledger import Array, Evaluation


@dataclass
class Pending:
    """One step of the training loop.

    Parameters
    ----------
    total
        Tokens of the step over all ranks and calls.
    calls
        Calls of `backward` so far.
    """

    step: int
    evaluated: bool
    total: float = 0.0
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

    def close(self, second: Tensor | None, world: World, device: torch.device) -> tuple[Array, Array, Array, Array]:
        """Gram (K, K), cover (K, K), tokens (K,) and validation losses (K,) of the step, over all ranks.

        Parameters
        ----------
        second
            Products of second order (K, K), which take the place of the calls' own.

        Raises
        ------
        NonFiniteError
            On every rank, naming the step, the language and the rank where it happened.
        """
        gram = torch.stack([o.gram for o in self.outcomes]).sum(0) if second is None else second
        k = len(gram)
        cover = torch.stack([o.cover for o in self.outcomes]).sum(0)
        tokens, losses = torch.stack(self.tokens).sum(0), torch.stack(self.losses).sum(0)
        known = [o.val_losses for o in self.outcomes if o.val_losses is not None]
        val = torch.stack(known).mean(0) if known else torch.zeros(k, dtype=torch.float64)
        payload = torch.cat([gram.flatten() / world.size, cover.flatten(), tokens, val / world.size, losses])
        whole = world.sum(payload.clone().to(device)).cpu()
        if not torch.isfinite(whole).all():
            flags = torch.cat([losses, val, gram.flatten()]).to(device)
            raise _NotFinite(self.step, [part.cpu() for part in world.gather(flags)], k)
        pieces = [piece.numpy() for piece in torch.split(whole, [k * k, k * k, k, k, k])]
        val_losses = pieces[3] if known else np.full(k, np.nan)
        return pieces[0].reshape(k, k), pieces[1].reshape(k, k), pieces[2], val_losses


def clip_coefficient(grad_norm: float | Tensor | None, max_norm: float | None, step: int) -> float:
    """The coefficient by which `clip_grad_norm_` multiplied the gradients."""
    if (grad_norm is None) != (max_norm is None):
        raise TrackerError(f"step {step}: commit needs both grad_norm and max_norm, or neither")
    norm = scalar(grad_norm)
    return 1.0 if norm is None or max_norm is None else min(1.0, max_norm / (norm + 1e-6))


class _NotFinite(Exception):
    """Where a number is not finite; the tracker knows the languages' names."""

    def __init__(self, step: int, flags: list[Tensor], languages: int) -> None:
        super().__init__(step)
        self.step, self.flags, self.languages = step, flags, languages


def close(
    pending: Pending,
    second: Tensor | None,
    world: World,
    device: torch.device,
    languages: tuple[str, ...],
    weight: float,
    lr: float,
    clip: float,
) -> Evaluation:
    """The step as an evaluation.

    Raises
    ------
    NonFiniteError
        Naming the step, the language and the rank.
    """
    try:
        gram, cover, tokens, val_losses = pending.close(second, world, device)
    except _NotFinite as fault:
        raise NonFiniteError(_explain(fault, languages), hint=_HINT) from None
    return Evaluation(pending.step, weight, lr, clip, gram, cover, tokens, val_losses)


_HINT = "resume from the last checkpoint with a lower learning rate, or look at the sequences of this step"


def _explain(fault: _NotFinite, languages: tuple[str, ...]) -> str:
    k = fault.languages
    parts = [torch.split(~torch.isfinite(flags), [k, k, k * k]) for flags in fault.flags]
    for kind, what in enumerate(("training loss", "validation loss")):
        for rank, bad in enumerate(parts):
            if bad[kind].any():
                name = languages[int(bad[kind].nonzero()[0])]
                return f"step {fault.step}, rank {rank}: the {what} of {name!r} is not finite"
    for rank, bad in enumerate(parts):
        if bad[2].any():
            i, j = divmod(int(bad[2].nonzero()[0]), k)
            pair = f"{languages[i]!r} (training) and {languages[j]!r} (validation)"
            return f"step {fault.step}, rank {rank}: the product of the gradients of {pair} is not finite"
    return f"step {fault.step}: a sum over ranks is not finite"
