"""What all figures have: where a figure goes, its caption on the screen, its numbers as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix.errors import UsageError
from shapleymix_cli import options
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.plotting.pictures import Picture

output = options.output("the figure, as .png, .svg or .pdf")


def require_place(out: Output, name: str | None) -> None:
    """Refuse, before anything is computed, a figure that goes nowhere, and a name that no figure can have."""
    from shapleymix.plotting.canvas import required
    from shapleymix.plotting.pictures import format_of

    if name is not None:
        format_of(name)
    elif not out.as_json:
        raise UsageError("nothing says where to draw", hint="give -o FIGURE.png, or --json for the numbers alone")
    required()


def show(out: Output, found: Picture, name: str | None, force: bool) -> None:
    """Write the figure, and print its caption, or the numbers that are drawn."""
    out.warn(found.notices)
    if name is not None:
        found.save(name, force=force)
        out.note([f"wrote {name}"])
    document = {"kind": "figure", "figure": found.name, "caption": found.caption, "numbers": found.columns()}
    out.emit(lambda: document, lambda: [found.caption])


def names_of(given: str | None) -> list[str] | None:
    """Names with commas between."""
    return None if given is None else [name.strip() for name in given.split(",")]
