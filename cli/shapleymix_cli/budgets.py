"""Sizes and token counts that a command works at: those given, or the one that the fit knows."""

from __future__ import annotations

from shapleymix.errors import UsageError


def budget(option: str, given: tuple[float, ...] | None, fitted: list[float]) -> tuple[float, ...]:
    """The sizes that were given; where the log held only one, that one.

    Parameters
    ----------
    option : str
        Name of the option, `-N` or `-D`, for the message.
    fitted : list of float
        Lowest and highest value that was fitted.

    Raises
    ------
    UsageError
        If none is given and the fit covers several.
    """
    if given:
        return given
    low, high = fitted
    if low != high:
        hint = f"the fit covers {option[1:]} from {low:g} to {high:g}"
        raise UsageError(f"missing option {option}", hint=hint)
    return (low,)
