"""Transfer matrices, and how alike two are, on the screen."""

from __future__ import annotations

from shapleymix.tables.similarity import Similarity
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_cli.views.numbers import each, fixed
from shapleymix_cli.views.shapley import normalised_matrix, raw_matrix
from shapleymix_cli.views.tables import Part, heading, table

HEADERS = ("cosine", "Pearson", "cosine off diagonal", "Pearson off diagonal")


def matrix_view(values: TransferMatrix) -> list[Part]:
    """Raw values where there are any, normalised ones, and what they were calibrated with."""
    parts: list[Part] = []
    if values.sv is not None:
        parts += [heading("Shapley values in nats (row: source, column: target)"), *raw_matrix(values), ""]
    parts += normalised_matrix(values)
    scales = values.provenance.get("calibration")
    if scales:
        listed = ", ".join(f"{name} x {scale:.4g}" for name, scale in scales.items())
        parts += ["", f"Calibrated to the measured loss drops: {listed}."]
    return parts


def similarity_view(found: Similarity, names: tuple[str, str]) -> list[Part]:
    """How alike two matrices are, over all entries and by target."""
    rows = [["normalised", *_overall(found)]]
    if found.raw is not None:
        rows.append(["raw", *_overall(found.raw)])
    return [
        heading(f"{names[0]} against {names[1]}"),
        table(["values", *HEADERS], rows),
        "",
        heading("Normalised values, by target"),
        table(["target", *HEADERS], _by_target(found)),
    ]


def _overall(found: Similarity) -> list[str]:
    return each((found.cosine, found.pearson, found.cosine_off_diagonal, found.pearson_off_diagonal))


def _by_target(found: Similarity) -> list[list[str]]:
    columns = (
        found.cosine_by_target,
        found.pearson_by_target,
        found.cosine_off_diagonal_by_target,
        found.pearson_off_diagonal_by_target,
    )
    return [[name, *(fixed(float(column[place])) for column in columns)] for place, name in enumerate(found.targets)]
