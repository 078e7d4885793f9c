"""One optimiser step over the global batch: this rank's gradients, the losses of all, the update."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix.errors import DataError
from shapleymix_irds.distributed import World
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import Corpus
from shapleymix_irds.train.data.feed import Sequences
from shapleymix_irds.train.distributed import gradient_sync
from shapleymix_irds.train.setup import Losses, Parts

UNSOUND = "a lower --lr or a longer --warmup; the last checkpoint is sound"


class Shown(NamedTuple):
    """What the last step has to show: loss sums and tokens by language (2, K), learning rate, gradient norm."""

    sums: Tensor = torch.zeros(2, 0)
    lr: float = math.nan
    norm: float = math.nan


class Stepper:
    """Makes steps of batches."""

    def __init__(
        self,
        config: TrainConfig,
        corpus: Corpus,
        parts: Parts,
        losses: Losses,
        tracker: Any,
        world: World,
    ) -> None:
        self.config, self.corpus, self.world = config, corpus, world
        self.model, self.optimiser, self.losses, self.tracker = parts.model, parts.optimiser, losses, tracker

    def take(self, step: int, pieces: list[Sequences], asked: int) -> tuple[Shown, int]:
        """One optimiser step over the global batch, of which `pieces` are this rank's passes; `asked` is the signal
        that this rank got, what comes back the one that any rank got.

        Raises
        ------
        DataError
            If a loss or the gradient is not finite.
        """
        config = self.config
        sums = self._backward(step, pieces)
        sums, stop = self._agree(step, sums, asked)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        self._check_gradient(step, norm, sums)
        lr = config.learning_rate(step)
        self.optimiser.set_rate(lr)
        if self.tracker is not None:
            rates = lr if config.lr_embedding == 1 else self.optimiser.rates
            self.tracker.commit(lr=rates, grad_norm=norm, max_norm=config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return Shown(sums, lr, norm), stop

    def _backward(self, step: int, pieces: list[Sequences]) -> Tensor:
        """Gradients of this rank's share; its loss sums and tokens by language, (2, K)."""
        sums = torch.zeros(2, len(self.corpus.languages), dtype=torch.float64)
        for number, piece in enumerate(pieces):
            x, y, lang = piece.on(self.world.device)
            with gradient_sync(self.model, last=number == len(pieces) - 1):
                losses = self._one_backward(step, x, y, lang)
            sums[0].index_add_(0, piece.languages, losses.double().cpu())
            sums[1] += torch.bincount(piece.languages, minlength=sums.shape[1]) * x.shape[1]
        return sums

    def _one_backward(self, step: int, x: Tensor, y: Tensor, lang: Tensor) -> Tensor:
        """Gradients of a micro-batch; the measured loss of each of its sequences."""
        tokens = self.config.step_tokens
        if self.tracker is not None:
            self.tracker.backward(self.losses, x, y, lang, step=step, tokens=tokens)
            return self.tracker.sequence_losses
        trained, measured = self.losses(x, y)
        (trained.sum() * (self.world.size / tokens)).backward()
        return measured.detach()

    def _agree(self, step: int, sums: Tensor, asked: int) -> tuple[Tensor, int]:
        """Loss sums over all ranks, and the signal that any rank got.

        Raises
        ------
        DataError
            If a loss is not finite, with the step, the language and the rank.
        """
        rows = self.world.table(torch.cat([sums.flatten(), torch.tensor([float(asked)])]))
        bad = torch.nonzero(~torch.isfinite(rows[:, : len(self.corpus.languages)]))
        if len(bad):
            rank, language = bad[0].tolist()
            name = self.corpus.languages[language]
            raise DataError(f"the loss of {name!r} is not finite at step {step} on rank {rank}", hint=UNSOUND)
        return rows[:, :-1].sum(0).view_as(sums), int(rows[:, -1].max())

    def _check_gradient(self, step: int, norm: float, sums: Tensor) -> None:
        """Refuse to ruin the weights; `norm` is that of all ranks' gradient, `sums` are all ranks' loss sums.

        Raises
        ------
        DataError
            If the norm is not finite.
        """
        if math.isfinite(norm):
            return
        losses = zip(self.corpus.languages, (sums[0] / sums[1]).tolist(), strict=True)
        listed = ", ".join(f"{name} {loss:.4g}" for name, loss in losses)
        raise DataError(f"the gradient is not finite at step {step}; the losses are: {listed}", hint=UNSOUND)
