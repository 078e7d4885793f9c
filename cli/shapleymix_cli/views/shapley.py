"""Shapley values on the screen."""

from __future__ import annotations

from shapleymix.records import FloatArray
from shapleymix.tables.transfer import TransferMatrix
from shapleymix_cli.views.numbers import each, fixed, size
from shapleymix_cli.views.tables import Part, heading, matrix

ROUNDING = 1e-9


def shapley_view(values: TransferMatrix, verbose: bool) -> list[Part]:
    """The raw and the normalised matrix, and how far efficiency is from holding."""
    known = values.provenance
    kind = "Exact" if known["method"] == "exact" else f"Estimated ({known['method']})"
    game = f"N = {size(known['N'])}, D = {size(known['D'])}"
    used = f"{known['coalitions']} of {known['coalitions_of']} coalitions"
    parts: list[Part] = [heading(f"{kind} Shapley values in nats ({game}, {used})"), *raw_matrix(values), ""]
    parts += normalised_matrix(values)
    return [*parts, "", _efficiency(known["efficiency_residual_max"], verbose)]


def raw_matrix(values: TransferMatrix) -> list[Part]:
    """Raw values, with standard errors where there are any, and the column sums."""
    assert values.sv is not None
    cells = [_with_errors(row, errors) for row, errors in zip(values.sv, _errors(values), strict=True)]
    total = each(values.sv.sum(axis=0))
    return matrix("source", [*values.sources, "sum"], values.targets, [*cells, total])


def normalised_matrix(values: TransferMatrix) -> list[Part]:
    """Normalised values under their heading."""
    title = heading("Normalised, exp(SV - column maximum)")
    return [title, *matrix("source", values.sources, values.targets, [each(row) for row in values.nsv])]


def _errors(values: TransferMatrix) -> list[FloatArray | None]:
    return [None] * len(values.sources) if values.stderr is None else list(values.stderr)


def _with_errors(row: FloatArray, errors: FloatArray | None) -> list[str]:
    if errors is None:
        return each(row)
    return [f"{fixed(value)} ±{fixed(error)}" for value, error in zip(row, errors, strict=True)]


def _efficiency(residual: float, verbose: bool) -> str:
    if residual <= ROUNDING and not verbose:
        return "Efficiency holds to rounding: each column sums to the whole loss drop."
    return f"Efficiency: columns sum to the whole loss drop within {residual:.1e} nats."
