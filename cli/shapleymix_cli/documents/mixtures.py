"""Optimal mixtures as JSON and as a table: one is the document in which it is saved; several are a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shapleymix_cli.documents.writing import provenance, save, save_or_tabulate, with_provenance

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.mixing.grids import MixtureGrid
    from shapleymix.mixing.mixtures import Mixture
    from shapleymix_cli.console import Output


def grid_made(out: Output, found: Sequence[Mixture], law: str) -> MixtureGrid:
    """The mixtures as one result, each with the call and the inputs in its provenance."""
    from shapleymix.mixing.grids import grid_of

    return grid_of(law, [with_provenance(out, one) for one in found], provenance(out))


def mixtures_document(grid: MixtureGrid) -> dict[str, Json]:
    """The one mixture as `-o` writes it; of several budgets the grid, with the mixtures in `entries[]`."""
    return grid.entries[0].to_document() if len(grid.entries) == 1 else grid.to_document()


def write_mixtures(out: Output, grid: MixtureGrid, path: str, force: bool) -> None:
    """The document with `.json`; else a table with a row a number: `N, D, kind, name, value, low, high`."""
    if len(grid.entries) == 1 and path.lower().endswith(".json"):
        save(out, grid.entries[0], path, force)
    else:
        save_or_tabulate(out, grid, path, force)
