"""Sizes of decoders: the named ones, and the learning rate that suits a size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from shapleymix.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a decoder.

    Raises
    ------
    UsageError
        If a size is below 1, or the hidden size cannot be split into heads.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    vocab: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise UsageError(f"--{name} {size} is below 1")
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            message = f"--hidden {self.hidden} cannot be split into {self.heads} heads of an even size"
            raise UsageError(message, hint="choose --hidden as a multiple of 2 x --heads")

    @property
    def non_embedding(self) -> int:
        """N of a run log: parameters without the input and output embeddings."""
        h = self.hidden
        return self.layers * (4 * h * h + 3 * h * self.ffn + 2 * h) + h


PAPER_VOCABULARY = 99_487
BYTE_VOCABULARY = 256

# The first five: ShapleyLaw paper, table of model configurations (ffn sizes of llm-jp); the rest suit a CPU.
MODELS = {
    "50M": ModelConfig(12, 512, 2048, 8, PAPER_VOCABULARY),
    "243M": ModelConfig(16, 1024, 3584, 8, PAPER_VOCABULARY),
    "684M": ModelConfig(20, 1536, 5376, 8, PAPER_VOCABULARY),
    "1460M": ModelConfig(24, 2048, 7168, 16, PAPER_VOCABULARY),
    "3171M": ModelConfig(28, 3072, 8192, 24, PAPER_VOCABULARY),
    "tiny": ModelConfig(2, 32, 80, 4, BYTE_VOCABULARY),
    "mini": ModelConfig(2, 64, 168, 4, BYTE_VOCABULARY),
    "small": ModelConfig(4, 256, 768, 8, BYTE_VOCABULARY),
}


def model_config(name: str, **sizes: int | None) -> ModelConfig:
    """The named configuration with the given sizes in place of its own.

    Raises
    ------
    UsageError
        If the name is unknown or the sizes do not fit together.
    """
    if name not in MODELS:
        raise UsageError(f"unknown model {name!r}", hint=did_you_mean(name, MODELS))
    return replace(MODELS[name], **{key: size for key, size in sizes.items() if size is not None})


LARGEST_RATE, SMALLEST_RATE = 6e-3, 3e-4  # for `tiny`, which is our own, and for 3171M, which is the paper's
SLOPE = math.log(LARGEST_RATE / SMALLEST_RATE) / math.log(MODELS["3171M"].non_embedding / MODELS["tiny"].non_embedding)


def peak_rate(N: int) -> float:
    """The learning rate of a decoder with N parameters without embeddings, where none is given, in two digits.

    A power of N through the rates of `tiny` and of the paper's 3171M, and not above the first; the exponent is -0.25.
    Other models: GPT-3's (Brown et al. 2020, table 2.1) are 0.5 to 0.9 times as large from 125M to 2.7B; TinyLlama
    (Zhang et al. 2024) has 4e-4 at 1.1B, as here.
    """
    return float(f"{min(LARGEST_RATE, SMALLEST_RATE * (MODELS['3171M'].non_embedding / N) ** SLOPE):.2g}")
