"""Results as data frames: one tidy table each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from shapleymix.display import Column

if TYPE_CHECKING:
    from polars import DataFrame

Cell = str | float | int | bool | None
Columns = Mapping[str, Column]


class Tabular:
    """Mixin for results that have one tidy table."""

    def columns(self) -> Columns:
        """The table's columns by name, each with one value per row."""
        raise NotImplementedError

    def to_polars(self) -> DataFrame:
        """The table as a Polars frame.

        For pandas, `pandas.DataFrame(result.columns())` needs nothing else; Polars' own `.to_pandas()` needs pyarrow
        as well, which is not installed with this package.
        """
        from polars import DataFrame

        return DataFrame({name: list(map(_bare, values)) for name, values in self.columns().items()}, strict=False)


def _bare(value: object) -> object:
    """A number as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
