"""Cells that hold a mapping as Python or JSON writes it, as `runs_df.to_csv` of W&B's own example leaves them."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

from shapleymix.tables.cells import Cells
from shapleymix.tables.json_tables import rows_of

MOST = 1_000_000
"""Characters of a cell that is opened; a run's whole config has thousands."""
_NO_NUMBER = ("nan", "inf")


def unfolded(cells: Cells, origin: str) -> Cells:
    """The cells with a column for each key of the mappings, such as `config.mix.en`.

    Only literals are read: nothing in a cell is run. A column of which a cell is none stays as it is.

    Raises
    ------
    DataError
        If a key has the name of a column that is there already.
    """
    opened = {name: found for name, column in cells.columns.items() if (found := _mappings(column)) is not None}
    if not opened:
        return cells
    records = [
        {name: opened[name][row] if name in opened else cells.columns[name][row] for name in cells.columns}
        for row in range(len(cells.lines))
    ]
    told = f"the columns {', '.join(opened)} hold mappings: each key is a column"
    return replace(cells, columns=rows_of(records, cells.lines, origin).columns, notices=(*cells.notices, told))


def _mappings(column: list[object]) -> list[dict[str, object]] | None:
    """The mappings of a column; None if it holds anything else, or nothing."""
    texts = [cell.strip() if isinstance(cell, str) else "" for cell in column]
    if not any(texts) or any(text and not (text[0] == "{" and text[-1] == "}") for text in texts):
        return None
    found = [_mapping(text) if text else {} for text in texts]
    kept = [one for one in found if one is not None]
    return kept if len(kept) == len(found) else None


def _mapping(text: str) -> dict[str, object] | None:
    """A mapping of a cell, of names to literals; None if it is no such thing."""
    if len(text) > MOST:
        return None
    try:
        found = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        found = _literal(text)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        return None
    return {str(key): value for key, value in found.items()}


def _literal(text: str) -> object:
    """A literal of Python, in which `nan` and `inf` are empty cells; None if it is none."""
    try:
        return ast.literal_eval(_Numbers().visit(ast.parse(text, mode="eval")))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


class _Numbers(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(None), node) if node.id in _NO_NUMBER else node
