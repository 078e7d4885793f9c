"""Sort a batch by language, and know its groups: languages, or their halves in validation-free mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shapleymix.errors import did_you_mean
from shapleymix_irds.distributed import World
from shapleymix_irds.errors import LanguageError, TrackerError


@dataclass(frozen=True)
class Batch:
    """Sequences of one rank, sorted by group.

    Attributes
    ----------
    x, y : tensor (B, S)
        Sequences and their labels.
    bounds : list of int
        First sequence of each group, and B at the end.
    tokens : tensor
        Tokens with a label in each group, float64 on the CPU.
    """

    x: Tensor
    y: Tensor
    bounds: list[int]
    tokens: Tensor

    def part(self, group: int) -> slice:
        """The rows of a group."""
        return slice(self.bounds[group], self.bounds[group + 1])

    @property
    def groups(self) -> int:
        return len(self.bounds) - 1


def language_indices(lang: Tensor | Sequence[str], languages: Sequence[str], step: int, rank: int) -> Tensor:
    """Indices (B,) on the CPU.

    Raises
    ------
    LanguageError
        If a label is no language of the run.
    TrackerError
        If `lang` is no list of labels.
    """
    place = f"step {step}, rank {rank}"
    if isinstance(lang, Tensor):
        if lang.dim() != 1 or lang.is_floating_point() or lang.is_complex() or lang.dtype == torch.bool:
            kind = f"shape {tuple(lang.shape)} and type {lang.dtype}"
            raise TrackerError(f"{place}: lang has {kind}, expected a whole number or a name for each sequence")
        indices = lang.detach().to("cpu", torch.long)
        bad = (indices < 0) | (indices >= len(languages))
        if bool(bad.any()):
            index = int(indices[bad][0])
            raise LanguageError(f"{place}: language index {index} is none of the {len(languages)} languages")
        return indices
    known = {name: index for index, name in enumerate(languages)}
    for name in lang:
        if name not in known:
            raise LanguageError(f"{place}: unknown language {name!r}", hint=did_you_mean(str(name), languages))
    return torch.tensor([known[name] for name in lang], dtype=torch.long)


def labelled(y: Tensor, ignore: int) -> Tensor:
    """Tokens with a label in each sequence, (B,)."""
    return (y != ignore).sum(tuple(range(1, y.dim())))


def total_tokens(y: Tensor, given: int | None, ignore: int, world: World, place: str) -> float:
    """N, the tokens of a step over ranks and calls: as given, or those of this call over ranks."""
    total = float(world.sum(labelled(y, ignore).sum().double()) if given is None else given)
    if not total > 0:
        raise TrackerError(f"{place}: no token of the step has a label")
    return total


def arrange(x: Tensor, y: Tensor, indices: Tensor, languages: int, ignore: int, halves: bool) -> tuple[Batch, Tensor]:
    """Sort by language; with `halves`, each language is two groups of (nearly) equal size.

    Returns
    -------
    tuple
        The batch, and which of the given sequences each of its sequences is (B,).
    """
    order = torch.argsort(indices, stable=True)
    sizes = torch.bincount(indices, minlength=languages)
    if halves:
        sizes = torch.stack([sizes - sizes // 2, sizes // 2], 1).flatten()
    bounds = [0, *torch.cumsum(sizes, 0).tolist()]
    order = order.to(x.device)
    counts = labelled(y[order], ignore).to("cpu", torch.float64)
    return Batch(x[order], y[order], bounds, group_sums(counts, bounds)), order


def group_sums(values: Tensor, bounds: list[int]) -> Tensor:
    """Sums of values (B,) over each group, (groups,)."""
    return torch.stack([values[bounds[k] : bounds[k + 1]].sum() for k in range(len(bounds) - 1)])


class ValidationSet:
    """Validation sequences of each language; what an evaluation sees rotates through them.

    Raises
    ------
    LanguageError
        If a language has no sequences, or there are sequences of no language of the run.
    """

    def __init__(
        self,
        val: Mapping[str, tuple[Tensor, Tensor]],
        languages: Sequence[str],
        count: int,
        seed: int,
        ignore: int,
    ) -> None:
        _check_validation(val, languages)
        self.languages = tuple(languages)
        self.parts = [val[name] for name in languages]
        self.count, self.seed, self.ignore = count, seed, ignore

    @property
    def tokens(self) -> int:
        """Tokens of one evaluation."""
        return sum(min(self.count, len(x)) * x[0].numel() for x, _ in self.parts)

    def facts(self) -> dict[str, Any]:
        """What the SV matrix says of how validation losses were measured."""
        pool = {name: len(x) for name, (x, _) in zip(self.languages, self.parts, strict=True)}
        return {"validation": "rotating set", "validation_sequences": {"evaluation": self.count, "set": pool}}

    def take(self, evaluation: int, device: torch.device, piece: int = 0, pieces: int = 1) -> Batch:
        """The sequences of an evaluation, or one of so many pieces of them, on `device`; no piece is empty."""
        count = max(self.count, pieces)
        first, last = (evaluation * count + count * edge // pieces for edge in (piece, piece + 1))
        picks = [self._pick(len(x), first, last - first, k) for k, (x, _) in enumerate(self.parts)]
        return self._batch(picks, device)

    def fixed(self, count: int, device: torch.device) -> Batch:
        """The first `count` sequences of each language, always the same."""
        return self._batch([torch.arange(min(count, len(x))) for x, _ in self.parts], device)

    def _pick(self, size: int, position: int, wanted: int, language: int) -> Tensor:
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + language) % 2**63)
        order = torch.randperm(size, generator=generator)
        return order[(position + torch.arange(min(wanted, size))) % size]

    def _batch(self, picks: list[Tensor], device: torch.device) -> Batch:
        pairs = list(zip(self.parts, picks, strict=True))
        x = torch.cat([part[0][pick.to(part[0].device)] for part, pick in pairs]).to(device)
        y = torch.cat([part[1][pick.to(part[1].device)] for part, pick in pairs]).to(device)
        bounds = [0, *torch.cumsum(torch.tensor([len(pick) for pick in picks]), 0).tolist()]
        counts = labelled(y, self.ignore).to("cpu", torch.float64)
        return Batch(x, y, bounds, group_sums(counts, bounds))


def _check_validation(val: Mapping[str, tuple[Tensor, Tensor]], languages: Sequence[str]) -> None:
    for name in val:
        if name not in languages:
            hint = did_you_mean(name, languages)
            raise LanguageError(f"validation sequences of an unknown language {name!r}", hint=hint)
    for name in languages:
        if name not in val or len(val[name][0]) == 0:
            raise LanguageError(f"no validation sequences of language {name!r}")
        if len(val[name][0]) != len(val[name][1]):
            raise TrackerError(f"validation x and y of language {name!r} have different lengths")
