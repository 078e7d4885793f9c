"""One way to draw any result: by what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from shapleymix.errors import UsageError, described
from shapleymix_view.canvas import Picture
from shapleymix_view.fits import plot_compare, plot_downstream, plot_fit, plot_learning_curve
from shapleymix_view.matrices import plot_agreement, plot_transfer
from shapleymix_view.mixtures import plot_design, plot_frontier, plot_mixture

DRAWN: Mapping[str, tuple[str, Callable[..., Picture]]] = {
    "agreement": ("transfer", plot_agreement),
    "compare": ("comparison", plot_compare),
    "design": ("design", plot_design),
    "downstream": ("downstream", plot_downstream),
    "fit": ("fit", plot_fit),
    "frontier": ("frontier", plot_frontier),
    "learning-curve": ("learning-curve", plot_learning_curve),
    "mixture": ("mixture", plot_mixture),
    "transfer": ("transfer", plot_transfer),
}
"""What `shapleymix plot` draws: the kind of the record that it takes, and who draws it."""


def draw(figure: str, *records: Any, **keywords: Any) -> Picture:
    """A figure by its name, of the records that it takes.

    Raises
    ------
    UsageError
        If the first record is of another kind, or the figure takes other things.
    """
    kind, function = DRAWN[figure]
    for one in records if kind == "transfer" else records[:1]:
        if getattr(type(one), "kind", None) != kind:
            raise UsageError(f"figure {figure!r} is of a {kind}, not of {described(one)}")
    try:
        signature(function).bind(*records, **keywords)
    except TypeError as error:
        takes = ", ".join(signature(function).parameters)
        raise UsageError(f"figure {figure!r} takes other things ({error})", hint=f"it takes {takes}") from error
    return function(*records, **keywords)


def plot(result: Any, *others: Any, **keywords: Any) -> Picture:
    """A figure of a result: a fit (with its log), a mixture, a matrix (or two), a comparison, a frontier, ...

    Raises
    ------
    UsageError
        If nothing draws such a result.
    """
    kind = getattr(type(result), "kind", None)
    found = next((name for name, (wanted, _) in DRAWN.items() if kind == wanted and name != "agreement"), None)
    if found is None:
        hint = f"figures are drawn of {', '.join(sorted({wanted for wanted, _ in DRAWN.values()}))}"
        raise UsageError(f"{described(result)} has no figure", hint=hint)
    return draw(found, result, *others, **keywords)
