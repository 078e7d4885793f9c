"""The parts of a run: model, optimiser, loss, tracker."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from shapleymix.errors import UsageError
from shapleymix_irds.distributed import World
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import Corpus
from shapleymix_irds.train.data.evaluate import spread, windows_of
from shapleymix_irds.train.data.sampler import passes
from shapleymix_irds.train.distributed import mesh_of, wrap
from shapleymix_irds.train.model import Decoder, sequence_losses
from shapleymix_irds.train.optimisers import Optimiser, make_optimiser
from shapleymix_irds.train.plan import plan_of
from shapleymix_irds.train.shapes import ModelConfig
from shapleymix_irds.train.speed import Speed, flops_of_a_token, peak_flops


@dataclass(frozen=True)
class Parts:
    """A model ready to train."""

    model: nn.Module
    optimiser: Optimiser
    shape: ModelConfig
    autocast: torch.dtype | None
    device: torch.device

    @property
    def N(self) -> int:
        """Parameters without embeddings."""
        return self.shape.non_embedding

    @property
    def vocabulary(self) -> int:
        return self.shape.vocab


class Losses:
    """Loss of each sequence: what is trained on, and what is measured."""

    def __init__(self, model: nn.Module, z_loss: float, autocast: torch.dtype | None) -> None:
        self.model, self.z_loss, self.autocast = model, z_loss, autocast

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with self._precision(x.device):
            logits = self.model(x)
        return sequence_losses(logits, y, self.z_loss)

    def measured(self, x: Tensor, y: Tensor) -> Tensor:
        """Only what is measured."""
        with self._precision(x.device):
            return sequence_losses(self.model(x), y)[1]

    def _precision(self, device: torch.device) -> Any:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.autocast)


def make_parts(config: TrainConfig, vocabulary: int, world: World, end_token: int | None = None) -> Parts:
    """Build, initialise and wrap the model; the weights depend on the seed alone.

    With the token that ends a document, documents are masked from each other.
    """
    shape = config.shape(vocabulary)
    if shape.vocab < vocabulary:
        raise UsageError(f"--vocab {shape.vocab} is below the tokenizer's {vocabulary}")
    if config.batch < world.size:
        raise UsageError(f"--batch {config.batch} is below the number of ranks, {world.size}")
    count = passes(config.batch, config.micro_batch, world.size)
    if count > config.batch // world.size:
        message = f"--micro-batch {config.micro_batch} makes {count} passes, and some rank has fewer sequences"
        raise UsageError(message, hint=f"a --batch that {world.size} ranks divide, or a larger --micro-batch")
    sharded = config.parallel != "ddp" and world.size > 1
    with torch.device("meta" if sharded else world.device):  # a sharded model is never whole on one rank
        decoder = Decoder(shape, recompute=config.recompute, end_token=end_token)
    if config.compile:
        decoder.compile()
    bf16 = config.precision == "bf16" or (config.precision == "auto" and world.device.type == "cuda")
    mesh = mesh_of(world, config.parallel, config.shard_size) if sharded else None
    model = wrap(decoder, decoder.blocks, world, mesh, bf16=bf16)
    if sharded:
        model.to_empty(device=world.device)
    decoder.initialise(config.seed)
    autocast = torch.bfloat16 if bf16 else None
    optimiser = make_optimiser(model, config)
    return Parts(model, optimiser, shape, autocast, world.device)


def speed_of(config: TrainConfig, parts: Parts, world: World) -> Speed:
    """What measures the speed of this run."""
    peak = peak_flops(parts.device, parts.autocast is torch.bfloat16, config.peak_tflops)
    return Speed(flops_of_a_token(parts.shape, config.seq), peak * world.size)


def make_tracker(config: TrainConfig, corpus: Corpus, parts: Parts, world: World) -> Any:
    """The IRDS tracker of this run."""
    from shapleymix_irds.tracker import IRDS, Options

    options = Options(
        seed=config.seed,
        val_sequences=config.irds_val,
        total_steps=config.steps,
        measure_sequences=config.irds_measure,
        pass_tokens=min(8192, config.pass_sequences(world.size) * config.seq),
        unseen_limit=config.steps + 1,  # `check_shares` has seen to it that each language comes
    )
    return IRDS(
        parts.model,
        corpus.languages,
        val=None if config.irds_fresh else validation(corpus, config.irds_pool),
        every=plan_of(config, len(corpus.languages), world.size).every,
        engine=cast(Any, config.irds_engine),
        order=cast(Any, int(config.irds_order)),
        parameter_groups=None if config.lr_embedding == 1 else parts.optimiser.groups,
        out=config.out,
        options=options,
    )


def validation(corpus: Corpus, most: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Validation sequences of each language, the same on every rank; those in use alone go to the device."""
    return {
        language: windows_of(stream, spread(stream, most))
        for language, stream in zip(corpus.languages, corpus.val, strict=True)
    }
