"""The step between its calls and `commit`: sums over calls, then over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from shapleymix_irds.engine import Engine
from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.following import Rates
from shapleymix_irds.ledger import Evaluation


@dataclass
class Call:
    """One call of a step.

    Attributes
    ----------
    place : str
        The step and the rank, as errors name them.
    indices, counts : tensor (B,) or (B, S)
        Language and tokens with a label of each sequence, or of each token.
    tokens, total : int or tensor, optional, and float or tensor
        Tokens of the step as given, and as reckoned with.
    length : int, optional
        S, if known.
    mean : bool
        Whether the loss is the mean over this call's own tokens, and the step's the mean over calls and ranks.
    """

    step: int
    place: str
    indices: Tensor
    counts: Tensor
    tokens: int | Tensor | None
    total: float | Tensor
    length: int | None
    mean: bool = False

    def __post_init__(self) -> None:
        if self.counts.shape != self.indices.shape:
            told = f"lang has shape {tuple(self.indices.shape)}, and tokens with a label {tuple(self.counts.shape)}"
            raise TrackerError(f"{self.place}: {told}")


@dataclass
class Pending:
    """One step of the training loop, begun with a call.

    Attributes
    ----------
    total : float or tensor
        Tokens of the step over all ranks and calls.
    tokens : tensor (G,)
        Training tokens of this rank by group: a language, or half of one where there is no validation set.
    calls : int
        Number of calls so far.
    """

    first: Call
    evaluated: bool
    groups: int

    def __post_init__(self) -> None:
        self.step, self.calls = self.first.step, 0
        self.total: float | Tensor = 0.0
        self.tokens = torch.zeros(self.groups, dtype=torch.float64)

    def add(self, call: Call) -> None:
        """A call begins.

        Raises
        ------
        TrackerError
            If the step is evaluated and has no token.
        """
        self.calls += 1
        self.total = call.total + (self.total if call.mean else 0.0)
        if self.evaluated and not self.total > 0:
            raise TrackerError(f"{call.place}: no token of the step has a label")

    def check_call(self, step: int, tokens: int | Tensor | None) -> None:
        """Whether another call goes on with this step.

        Raises
        ------
        TrackerError
            If it is of another step, or divides by other tokens than the calls before.
        """
        if self.step != step:
            hint = "commit each step after its last backward pass, or `drop` it where the optimiser does not take it"
            raise TrackerError(f"backward of step {step}, but step {self.step} is not committed", hint=hint)
        first = self.first
        if (tokens is None and not first.mean) or not (tokens is first.tokens or tokens == first.tokens):
            hint = "give the tokens of the whole step, over ranks and calls, in each of its calls"
            given = f"tokens={tokens} after one with tokens={first.tokens}"
            raise TrackerError(f"step {step}: backward is called again with {given}", hint=hint)


def own_numbers(pending: Pending, engine: Engine, shares: Mapping[str, float]) -> dict[str, Tensor]:
    """What ranks add up at a step's end; K languages, G groups, float64.

    `gram` (G, K or G) has products of this rank's training gradients with those of all ranks' validation losses, or
    training gradients where there is no validation set, each parameter's times its share; those whose share is 0 are
    left out, whatever they are. `tokens` (G,) are of training, `val_losses` and `val_tokens` (K,) of validation;
    `divisor` is the number of tokens that a rank divides by, and its square.
    """
    found, count = engine.validated, engine.groups if engine.validated is None else len(engine.languages)
    gram = torch.zeros(engine.groups, count, dtype=torch.float64, device=engine.world.device)
    train, zero = engine.train, gram.new_zeros((), dtype=engine.dtype)
    if found is None:
        none = {name: zero.expand(count, each.numbers) for name, each in engine.projections.items()}
        train = {name: train.get(name, each) for name, each in none.items()}
        train = {name: train[name] @ each.T for name, each in engine.world.sum_all(train).items()}
    for name, own in train.items():
        if shares[name]:
            gram += shares[name] * own
    val = {} if found is None else {"val_losses": found.sums[0], "val_tokens": found.sums[1]}
    divisor = torch.tensor([float(pending.total), float(pending.total) ** 2], dtype=torch.float64)
    return {"gram": gram, **val, "tokens": pending.tokens, "divisor": divisor}


def fault_of(numbers: dict[str, Tensor], languages: tuple[str, ...]) -> str | None:
    """Which number is not finite, if one is, and of which language: a gradient spoils its whole row or column."""
    wrong = ~torch.isfinite(numbers["gram"])
    found = {
        "the validation loss": ~torch.isfinite(numbers.get("val_losses", torch.zeros(1))),
        "the gradient of the training sequences": wrong.all(1),
        "the gradient of the validation loss": wrong.any(0),
    }
    for what, bad in found.items():
        if bad.any():
            return f"{what} of {languages[int(bad.nonzero()[0]) * len(languages) // len(bad)]!r} is not finite"
    return None


def close(pending: Pending, engine: Engine, rates: Rates, weight: float) -> Evaluation:
    """The step as it is booked: sums over its calls and all ranks; products are in terms of the largest rate.

    Parameters
    ----------
    weight : float
        The number of steps that it stands for.

    Raises
    ------
    TrackerError
        If ranks divide by different numbers.
    NonFiniteError
        On every rank, naming the step and the language.
    """
    world, parts, K = engine.world, engine.arrangement.tensor_parallel, len(engine.languages)
    own = {name: each.to(world.device) for name, each in own_numbers(pending, engine, rates.shares).items()}
    total = {name: each.cpu() for name, each in world.sum_all(own).items()}
    fault = fault_of(total, engine.languages)
    if fault is not None if parts is None else parts.any(fault is not None):
        told = fault or "a gradient in another part of a layer is not finite"
        raise NonFiniteError(f"step {pending.step}: {told}", hint=_HINT)
    mean, square = (total["divisor"] / world.size).tolist()
    if not pending.first.mean and square - mean**2 > 1e-9 * square:
        hint = "sum the tokens over ranks and calls, and give each rank the sum"
        raise TrackerError(f"step {pending.step}: ranks give different tokens=, {mean:.0f} in the mean", hint=hint)
    scale = 1.0 / (engine.divisor * rates.grad_scale)
    gram, tokens = total["gram"] * scale, total["tokens"]
    if engine.validation is None:
        gram = combine_halves(gram * scale, tokens, mean)
        tokens, losses = tokens.view(K, 2).sum(1), torch.full((K,), torch.nan, dtype=torch.float64)
    else:
        counts = total["val_tokens"].clamp(min=1)
        gram = torch.where(total["val_tokens"] > 0, gram / counts, torch.nan)
        losses = total["val_losses"] / counts
    if parts is not None:  # products of parts of layers add up, all else is the same on each rank
        gram = parts.sum(gram.to(parts.device)).cpu()
    return Evaluation(pending.step, weight, rates.lr, rates.clip, gram.numpy(), tokens.numpy(), losses.numpy())


def combine_halves(gram: Tensor, tokens: Tensor, total: float) -> Tensor:
    """Validation-free products: language j's own fresh training gradient stands for its validation gradient.

    Parameters
    ----------
    gram : tensor (2K, 2K)
        Products of the scaled gradients of halves of languages.
    tokens : tensor (2K,)
        Tokens of the halves.
    total : float
        Tokens of the step, of whose mean loss they are: times total over tokens, gradients are those of mean losses.

    Returns
    -------
    tensor
        Products (K, K), NaN where there is no estimate. On the diagonal one half of the language is measured on the
        other: with the same sequences on both sides it would be several times too large.
    """
    n = tokens.view(-1, 2)
    blocks = gram.view(len(n), 2, len(n), 2)
    means = torch.where(n.sum(1) > 0, total / n.sum(1), torch.nan)
    products = blocks.sum((1, 3)) * means
    crossed = torch.diagonal(blocks[:, 0, :, 1]) * (total / n).sum(1)
    products.diagonal().copy_(torch.where((n > 0).all(1), crossed, torch.nan))
    return products


_HINT = "resume from the last checkpoint with a lower learning rate, or look at the sequences of this step"
