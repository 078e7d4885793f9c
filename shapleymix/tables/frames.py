"""Results as data frames: one tidy table each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polars import DataFrame

Cell = str | float | int | bool | None
Columns = Mapping[str, Sequence[Cell]]


class Tabular:
    """Mixin for results that have one tidy table."""

    def columns(self) -> Columns:
        """The table's columns by name, each with one value per row."""
        raise NotImplementedError

    def to_polars(self) -> DataFrame:
        """The table as a Polars frame; `.to_pandas()` of it is the pandas one."""
        from polars import DataFrame

        return DataFrame({name: list(values) for name, values in self.columns().items()}, strict=False)
