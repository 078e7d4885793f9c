"""How fast a run is: tokens a second, the share of the devices' peak that the model takes, and peak memory."""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from shapleymix_irds.train.shapes import ModelConfig

# TFLOP/s of dense bf16 matrix products, from the makers' data sheets; the first name that a device's holds counts.
PEAKS = {
    "GB200": 2500.0,
    "B200": 2250.0,
    "H200": 989.0,
    "GH200": 989.0,
    "H100 NVL": 835.0,
    "H100 PCIe": 756.0,
    "H100": 989.0,
    "A100": 312.0,
    "A800": 312.0,
    "H800": 989.0,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "A10G": 70.0,
    "A10": 125.0,
    "A40": 150.0,
    "MI300X": 1307.0,
    "MI250X": 383.0,
}


def flops_of_a_token(shape: ModelConfig, length: int) -> float:
    """Of forward and backward pass: 6 for each weight of a matrix product (the output embedding's, too), and 6 x layers
    x hidden x length for causal attention. What is computed again or measured counts none."""
    products = shape.non_embedding + shape.vocab * shape.hidden
    return 6.0 * products + 6.0 * shape.layers * shape.hidden * length


def peak_flops(device: torch.device, bf16: bool, stated: float | None) -> float:
    """FLOP/s that a device can do at most: as stated in TFLOP/s, or as is known of the GPU; NaN if it is not known."""
    if stated is not None:
        return stated * 1e12
    if device.type != "cuda" or not bf16:
        return math.nan
    return known_peak(torch.cuda.get_device_name(device)) * 1e12


def known_peak(name: str) -> float:
    """TFLOP/s of a GPU by its name; NaN if it is not known."""
    words = name.replace("-", " ").split()
    return next((peak for key, peak in PEAKS.items() if _within(key.split(), words)), math.nan)


def _within(key: list[str], words: list[str]) -> bool:
    return all(part in words for part in key)


def peak_memory(device: torch.device) -> int:
    """Bytes that this process has held at most: of the GPU, or of the machine where it trains on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True)
class Pace:
    """Tokens a second over all ranks, and model-FLOP utilisation (NaN where the peak is not known)."""

    tokens_per_second: float
    mfu: float


class Speed:
    """Measures the time of steps; what comes between steps does not count.

    Parameters
    ----------
    flops : float
        Of a token, or NaN.
    peak : float
        FLOP/s of all devices together, or NaN.
    """

    def __init__(self, flops: float = math.nan, peak: float = math.nan) -> None:
        self.flops, self.peak = flops, peak
        self._since, self._whole = [0.0, 0.0], [0.0, 0.0]  # seconds and tokens

    @contextlib.contextmanager
    def step(self, tokens: int) -> Iterator[None]:
        """What is done within is a step of so many tokens."""
        begun = time.perf_counter()
        yield
        seconds = time.perf_counter() - begun
        for sums in (self._since, self._whole):
            sums[0] += seconds
            sums[1] += tokens

    def read(self) -> Pace:
        """Of the steps since the last time that this was asked."""
        pace, self._since = self._pace(*self._since), [0.0, 0.0]
        return pace

    def whole(self) -> Pace:
        """Of all steps of this process."""
        return self._pace(*self._whole)

    def _pace(self, seconds: float, tokens: float) -> Pace:
        rate = tokens / max(seconds, 1e-9)
        return Pace(rate, rate * self.flops / self.peak)


def speed_parts(pace: Pace, memory: float) -> list[str]:
    """What is known of a speed, in words."""
    parts = [f"{pace.tokens_per_second:,.0f} tokens/s"]
    if math.isfinite(pace.mfu):
        parts.append(f"MFU {pace.mfu:.1%}")
    if math.isfinite(memory):
        parts.append(f"{memory / 1e9:.2f} GB")
    return parts
