"""One optimiser step over the global batch: this rank's gradients, the losses of all, the update."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from shapleymix.errors import DataError
from shapleymix_irds.distributed import World
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.corpus import Corpus
from shapleymix_irds.train.distributed import gradient_sync
from shapleymix_irds.train.evaluate import windows_of
from shapleymix_irds.train.sampler import Sampler, share_of_rank
from shapleymix_irds.train.setup import Losses, Parts

UNSOUND = "a lower --lr or a longer --warmup; the last checkpoint is sound"


class Shown(NamedTuple):
    """What the last step has to show: loss sums and tokens by language (2, K), learning rate, gradient norm."""

    sums: Tensor = torch.zeros(2, 0)
    lr: float = math.nan
    norm: float = math.nan


class Stepper:
    """Takes the next batch of the data and makes a step of it."""

    def __init__(
        self,
        config: TrainConfig,
        corpus: Corpus,
        sampler: Sampler,
        parts: Parts,
        losses: Losses,
        tracker: Any,
        world: World,
    ) -> None:
        self.config, self.corpus, self.sampler, self.world = config, corpus, sampler, world
        self.model, self.optimiser, self.losses, self.tracker = parts.model, parts.optimiser, losses, tracker

    def take(self, step: int, asked: int) -> tuple[Shown, int]:
        """One optimiser step over the global batch; `asked` is the signal that this rank got, what comes back the
        one that any rank got.

        Raises
        ------
        DataError
            If a loss or the gradient is not finite.
        """
        config = self.config
        languages, places = self.sampler.take(config.batch)
        mine = share_of_rank(config.batch, self.world.rank, self.world.size)
        sums = self._backward(step, languages[mine], places[mine])
        sums, stop = self._agree(step, sums, asked)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)  # type: ignore[operator]
        self._check_gradient(step, norm, sums)
        lr = config.learning_rate(step)
        if self.tracker is not None:
            self.tracker.commit(lr=lr, grad_norm=norm, max_norm=config.clip)
        self.optimiser.set_rate(lr)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return Shown(sums, lr, norm), stop

    def _backward(self, step: int, languages: np.ndarray, places: np.ndarray) -> Tensor:
        """Gradients of this rank's share; its loss sums and tokens by language, (2, K)."""
        order = np.argsort(languages, kind="stable")
        size = self.config.micro_batch or len(order)
        pieces = [order[start : start + size] for start in range(0, len(order), size)]
        if self.config.irds_fresh:  # languages stand in for each other's validation where they meet
            pieces = [order[start :: len(pieces)] for start in range(len(pieces))]
        sums = torch.zeros(2, len(self.corpus.languages), dtype=torch.float64)
        for number, piece in enumerate(pieces):
            x, y = self._batch(languages[piece], places[piece])
            lang = torch.from_numpy(languages[piece]).to(x.device)
            with gradient_sync(self.model, last=number == len(pieces) - 1):
                losses = self._one_backward(step, x, y, lang)
            sums[0].index_add_(0, lang.cpu(), losses.double().cpu())
            sums[1] += torch.bincount(lang.cpu(), minlength=sums.shape[1]) * x.shape[1]
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

    def _batch(self, languages: np.ndarray, places: np.ndarray) -> tuple[Tensor, Tensor]:
        windows = [
            windows_of(self.corpus.train[language], places[at : at + 1]) for at, language in enumerate(languages)
        ]
        x, y = (torch.cat(rows).to(self.world.device) for rows in zip(*windows, strict=True))
        return x, y

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
