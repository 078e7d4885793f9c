"""Numbers as figures and captions write them."""

from __future__ import annotations

LARGE = 1000.0
"""From here on a number is written by its leading digits, not with digits after its point."""


def decimals(value: float, digits: int = 3, *, signed: bool = False) -> str:
    """A number to so many digits after its point, or, where it is large, to four digits in all."""
    sign = "+" if signed else ""
    return f"{value:{sign}.4g}" if abs(value) >= LARGE else f"{value:{sign}z.{digits}f}"
