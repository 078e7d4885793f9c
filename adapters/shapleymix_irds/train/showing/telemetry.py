"""What a run shows and keeps: its metrics, as plain lines and in metrics.jsonl."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shapleymix.files import atomic_write
from shapleymix_irds.train.disk import disk_errors
from shapleymix_irds.train.showing.measured import Measured, ratio_range
from shapleymix_irds.train.speed import Pace, speed_parts
from shapleymix_irds.train.telling import say

SELDOM = 12  # times the time between lines passes between those of the matrix


@dataclass(frozen=True)
class Metrics:
    """Numbers of one step."""

    step: int
    D: int
    lr: float
    grad_norm: float
    loss: dict[str, float]
    tokens_per_second: float
    mfu: float = math.nan
    peak_memory: float = math.nan
    irds_overhead: float = math.nan
    irds_fresh: bool = False
    efficiency: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it: what is not known is null."""
        return {key: _finite(value) for key, value in vars(self).items()}

    def scalars(self) -> dict[str, float]:
        """Flat names and numbers, for loggers."""
        flat = {"lr": self.lr, "grad_norm": self.grad_norm, "tokens_per_second": self.tokens_per_second}
        flat |= {"mfu": self.mfu, "peak_memory": self.peak_memory, "irds_overhead": self.irds_overhead}
        flat |= {f"loss/{name}": value for name, value in self.loss.items()}
        flat |= {f"efficiency/{name}": value for name, value in self.efficiency.items()}
        return {name: value for name, value in flat.items() if math.isfinite(value)}

    def line(self) -> str:
        """For a terminal."""
        losses = " ".join(f"{name} {value:.3f}" for name, value in self.loss.items() if math.isfinite(value))
        speed = speed_parts(Pace(self.tokens_per_second, self.mfu), self.peak_memory)
        parts = [f"D {self.D:,}", *speed, f"loss {losses}"]
        if math.isfinite(self.irds_overhead):
            parts.append(f"IRDS {'without validation text ' if self.irds_fresh else ''}{self.irds_overhead:+.1%}")
        if ratios := ratio_range(self.efficiency.values()):
            parts.append(f"efficiency {ratios}")
        return " | ".join(parts)


def irds_line(
    evaluations: int,
    every: int,
    overhead: float,
    efficiency: Iterable[float],
    fallback: str | None,
    *,
    fresh: bool = False,
) -> str:
    """What the measuring of a whole run came to; `fallback` says what took passes of its own."""
    time = f"{overhead:+.1%} time" if math.isfinite(overhead) else "added time not known"
    ratios = ratio_range(efficiency) or "not known"
    engine = f"; {fallback}" if fallback else ""
    of = ", without validation text" if fresh else ""
    return f"IRDS: {evaluations} evaluations, 1 step of {every}{of}; {time}; efficiency {ratios}{engine}"


class Sink(Protocol):
    """Somewhere that metrics go, and the matrix as it grows: `show` comes after `step`, once there is one."""

    def step(self, metrics: Metrics) -> None: ...

    def show(self, metrics: Metrics, measured: Measured) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """metrics.jsonl; lines after the step that a run resumes from are cut."""

    def __init__(self, path: Path, resumed: int) -> None:
        self.path = path
        with disk_errors(path):
            lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
            kept = [line for line in lines if _step_of(line) <= resumed]
            if kept != lines:
                atomic_write(path, b"".join(kept), force=True)
            self._stream = path.open("ab", buffering=0)  # nothing waits that could fail again when it is closed

    def step(self, metrics: Metrics) -> None:
        with disk_errors(self.path):
            self._stream.write((json.dumps(metrics.document()) + "\n").encode())

    def show(self, metrics: Metrics, measured: Measured) -> None:
        """Numbers of steps only: the log of evaluations has the matrix."""

    def close(self) -> None:
        self._stream.close()


class Lines:
    """Plain lines, not more often than every few seconds, for a log file."""

    def __init__(self, steps: int, seconds: float = 5.0) -> None:
        self.steps = steps
        self.seconds = seconds
        self._last, self._shown = -math.inf, time.monotonic()

    def step(self, metrics: Metrics) -> None:
        if time.monotonic() - self._last >= self.seconds or metrics.step == self.steps:
            self._last = time.monotonic()
            say(f"step {metrics.step}/{self.steps} | {metrics.line()}")

    def show(self, metrics: Metrics, measured: Measured) -> None:
        if time.monotonic() - self._shown >= SELDOM * self.seconds or metrics.step == self.steps:
            self._shown = time.monotonic()
            say(measured.line)

    def close(self) -> None:
        """Every line has been written."""


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _step_of(line: bytes) -> float:
    """The step of a line; a line that was cut by a kill counts as never reached."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
