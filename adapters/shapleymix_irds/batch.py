"""Batches: the language of each sequence or token, and the validation sequences that ranks divide among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shapleymix.errors import did_you_mean
from shapleymix_irds.errors import LanguageError, TrackerError
from shapleymix_irds.schedule import Options
from shapleymix_irds.world import World

Inputs = Tensor | Mapping[str, Tensor]  # of a model: sequences first
Sequences = tuple[Inputs, Tensor]
LossFn = Callable[[Any, Tensor], "Tensor | tuple[Tensor, Tensor]"]  # of inputs (one tensor, or several by name), labels


def trained(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is trained on."""
    return losses[0] if isinstance(losses, tuple) else losses


def plain(losses: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss that is measured."""
    return losses[1] if isinstance(losses, tuple) else losses


def checked(loss_fn: LossFn, place: str) -> LossFn:
    """The loss function, made to refuse a result that is not the loss of each sequence."""

    def call(x: Inputs, y: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        both = loss_fn(x, y)
        for losses in both if isinstance(both, tuple) else (both,):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            if shape != (len(y),):
                hint = 'take the token loss with reduction="none" and sum it over each sequence'
                raise TrackerError(f"{place}: loss_fn gave {shape}, expected shape ({len(y)},)", hint=hint)
        return both

    return call


@dataclass(frozen=True)
class Piece:
    """Sequences of one shape that pass at a time.

    Attributes
    ----------
    x, y : Inputs and tensor
        Sequences and their labels, (B, ...).
    languages : tensor (B,)
        Their languages.
    weights : tensor (B,)
        1, or 0 for sequences that only keep this rank in step with the others.
    tokens : tensor (B,)
        Tokens with a label, float64 on the CPU.
    """

    x: Inputs
    y: Tensor
    languages: Tensor
    weights: Tensor
    tokens: Tensor

    def add(self, sums: Tensor, losses: Tensor) -> None:
        """Add losses (B,) and tokens to those by language, (2, K) in float64 on the CPU."""
        own = torch.stack([losses.detach().double().cpu(), self.tokens]) * self.weights
        sums.index_add_(1, self.languages.cpu(), own)


def rows(x: Inputs) -> int:
    """Number of sequences."""
    return len(x) if isinstance(x, Tensor) else min(len(value) for value in x.values())


def length(x: Inputs) -> int | None:
    """Tokens of a sequence, if the first input that has sequences of tokens tells."""
    values = [x] if isinstance(x, Tensor) else list(x.values())
    return next((value.shape[1] for value in values if value.dim() >= 2), None)


def labelled(y: Tensor, ignore: int) -> Tensor:
    """Tokens with a label in each sequence, (B,) in float64 on the CPU."""
    return (y != ignore).sum(tuple(range(1, y.dim()))).to("cpu", torch.float64)


def language_indices(lang: Tensor | Sequence[str], languages: Sequence[str], place: str, seen: bool = True) -> Tensor:
    """Indices (B,), or (B, S) where each token has a label, on the CPU; a tensor that nobody looks at stays as it is,
    since its device would be waited for.

    Raises
    ------
    LanguageError
        If a label is no language of the run.
    TrackerError
        If `lang` is no list of labels.
    """
    if isinstance(lang, Tensor):
        if lang.dim() not in (1, 2) or lang.is_floating_point():
            kind = f"shape {tuple(lang.shape)} and type {lang.dtype}"
            raise TrackerError(f"{place}: lang has {kind}, expected a number or a name for each sequence or token")
        if not seen:
            return lang
        indices = lang.detach().to("cpu", torch.long)
        bad = indices[(indices < 0) | (indices >= len(languages))]
        if len(bad):
            raise LanguageError(f"{place}: language index {int(bad[0])} is none of the {len(languages)} languages")
        return indices
    known = {index: index for index in range(len(languages))} | {name: index for index, name in enumerate(languages)}
    for name in lang:
        if name not in known:
            raise LanguageError(f"{place}: unknown language {name!r}", hint=did_you_mean(str(name), languages))
    return torch.tensor([known[name] for name in lang], dtype=torch.long)


def halves(languages: Tensor, count: int, turn: int) -> Tensor:
    """Labels 2 k and 2 k + 1 in turn for the sequences of language k, or for runs of tokens of it.

    `turn` says which comes first, so that a language that comes once a rank is in either half now and then.
    """
    flat = languages.flatten()
    begins = torch.ones_like(flat)
    if languages.dim() == 2:
        begins[1:] = (flat[1:] != flat[:-1]).long()
        begins[:: languages.shape[1]] = 1
    hot = torch.nn.functional.one_hot(flat, count) * begins[:, None]
    before = hot.cumsum(0).gather(1, flat[:, None])[:, 0] - 1
    return (2 * flat + (before + turn) % 2).view(languages.shape)


def sample_of(x: Inputs, y: Tensor, ignore: int, device: torch.device) -> Piece:
    """A few sequences, in a number that other axes seldom have; some come again where there are fewer."""
    count = 7 if length(x) == 5 else 5
    which = torch.arange(count) % len(y)
    chosen, ones = y[which.to(y.device)].to(device), torch.ones(count, dtype=torch.float64)
    languages = torch.zeros(count, dtype=torch.long, device=device)
    return Piece(_pick(x, which, device), chosen, languages, ones, labelled(chosen, ignore))


class ValidationSet:
    """Validation sequences of each language; what an evaluation sees rotates through them.

    Raises
    ------
    LanguageError
        If a language is not in `val`, or one there is no language of the run.
    TrackerError
        If there are no sequences of a language, or not as many labels.
    """

    def __init__(self, val: Mapping[str, Sequences], languages: Sequence[str], options: Options) -> None:
        if wrong := set(val) ^ set(languages):
            told = ", ".join(repr(name) for name in sorted(wrong))
            raise LanguageError(f"languages and those of the validation sequences differ by {told}")
        for name in languages:
            if not rows(val[name][0]) == len(val[name][1]) > 0:
                raise TrackerError(f"validation x and y of language {name!r} are empty, or differ in length")
        self.parts, self.options = [val[name] for name in languages], options

    @property
    def length(self) -> int | None:
        """Tokens of a sequence of the first language."""
        return length(self.parts[0][0])

    def tokens(self, ranks: int) -> float:
        """Tokens of one evaluation on the rank, of so many, that has most: the others wait for it."""
        counts = [min(self._count(ranks), rows(x)) for x, _ in self.parts]
        tokens = sum(count * y[0].numel() for count, (_, y) in zip(counts, self.parts, strict=True))
        return tokens / sum(counts) * -(-sum(counts) // ranks)

    def sample(self, device: torch.device) -> Piece:
        """A few sequences to look at the model with."""
        return sample_of(*self.parts[0], self.options.ignore_index, device)

    def share(self, evaluation: int, world: World) -> list[Piece]:
        """This rank's sequences of an evaluation; all ranks get as many pieces.

        Ranks divide the sequences; where there are more ranks than sequences there are as many more of them as leave
        no rank two.
        """
        count = self._count(world.size)
        picks = [self._rotated(rows(x), evaluation * count, count, k) for k, (x, _) in enumerate(self.parts)]
        return self._share(picks, world)

    def fixed(self, count: int, world: World) -> list[Piece]:
        """This rank's share of the first `count` sequences of each language, always the same."""
        return self._share([torch.arange(min(count, rows(x))) for x, _ in self.parts], world)

    def _count(self, ranks: int) -> int:
        return max(self.options.val_sequences, ranks // len(self.parts))

    def _rotated(self, size: int, position: int, wanted: int, language: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.options.seed * 1_000_003 + language) % 2**63)
        order = torch.randperm(size, generator=generator)
        return order[(position + torch.arange(min(wanted, size))) % size]

    def _share(self, picks: list[Tensor], world: World) -> list[Piece]:
        every = [(k, number) for k, which in enumerate(picks) for number in which.tolist()]
        cuts = [len(every) * r // world.size for r in range(world.size + 1)]
        cut = [self._cut(every[cuts[r] : cuts[r + 1]]) for r in range(world.size)]
        mine = [self._piece(part, 1.0, world.device) for part in cut[world.rank]]
        spare = max(len(parts) for parts in cut) - len(mine)
        return mine + [self._piece(every[:1], 0.0, world.device)] * spare

    def _cut(self, chosen: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Pieces of at most `pass_tokens` tokens, or one sequence, each of sequences of one shape."""
        pieces: list[list[tuple[int, int]]] = []
        for entry in chosen:
            shape = self._shape(entry[0])
            most = max(1, self.options.pass_tokens // max(1, math.prod(shape[0])))
            if pieces and len(pieces[-1]) < most and self._shape(pieces[-1][0][0]) == shape:
                pieces[-1].append(entry)
            else:
                pieces.append([entry])
        return pieces

    def _shape(self, language: int) -> list[torch.Size]:
        x, y = self.parts[language]
        return [value.shape[1:] for value in (y, *([x] if isinstance(x, Tensor) else x.values()))]

    def _piece(self, chosen: list[tuple[int, int]], weight: float, device: torch.device) -> Piece:
        owners, numbers = torch.tensor(chosen).unbind(1)
        parts = [(self.parts[k], numbers[owners == k]) for k in torch.unique(owners).tolist()]
        y = torch.cat([y[which.to(y.device)].to(device) for (_, y), which in parts])
        weights = torch.full((len(y),), weight, dtype=torch.float64)
        x = _joined([_pick(x, which, device) for (x, _), which in parts])
        return Piece(x, y, owners.to(device), weights, labelled(y, self.options.ignore_index))


def _pick(x: Inputs, which: Tensor, device: torch.device) -> Inputs:
    """Some of the sequences, on a device."""
    if isinstance(x, Tensor):
        return x[which.to(x.device)].to(device)
    return {name: value[which.to(value.device)].to(device) for name, value in x.items()}


def _joined(parts: list[Any]) -> Inputs:
    if isinstance(parts[0], Tensor):
        return torch.cat(parts)
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
