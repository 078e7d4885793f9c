"""Transfer matrices, where they are from, and how alike two are, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix_cli.documents.plain import by_name, by_pair

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.tables.similarity import Similarity
    from shapleymix.tables.transfer import TransferMatrix


def transfer_document(matrix: TransferMatrix) -> dict[str, Json]:
    """The matrix, nested by source, then target, with what is known of its making."""
    return {
        "kind": "transfer",
        "sources": matrix.sources,
        "targets": matrix.targets,
        "sv": by_pair(matrix.sources, matrix.targets, matrix.sv),
        "nsv": by_pair(matrix.sources, matrix.targets, matrix.nsv),
        "stderr": by_pair(matrix.sources, matrix.targets, matrix.stderr),
        "provenance": matrix.provenance,
    }


def similarity_document(found: Similarity) -> dict[str, Json]:
    """The measures over all entries, by target, and of the raw values where both matrices have them."""
    from shapleymix.tables.similarity import MEASURES

    document: dict[str, Json] = {measure: getattr(found, measure) for measure in MEASURES}
    by_target = {measure: getattr(found, f"{measure}_by_target").tolist() for measure in MEASURES}
    document["targets"] = {
        name: {measure: by_target[measure][place] for measure in MEASURES} for place, name in enumerate(found.targets)
    }
    document["raw"] = None if found.raw is None else similarity_document(found.raw)
    return document


def shapley_document(matrix: TransferMatrix) -> dict[str, Json]:
    """`sv`, `nsv` (and `stderr`) nested by source, then target; the largest residual and each target's."""
    known = matrix.provenance
    residual = known["efficiency_residual"]
    return {
        "kind": "shapley",
        "method": known["method"],
        "N": known["N"],
        "D": known["D"],
        "coalitions": known["coalitions"],
        "coalitions_of": known["coalitions_of"],
        "sources": matrix.sources,
        "targets": matrix.targets,
        "sv": by_pair(matrix.sources, matrix.targets, matrix.sv),
        "nsv": by_pair(matrix.sources, matrix.targets, matrix.nsv),
        "stderr": by_pair(matrix.sources, matrix.targets, matrix.stderr),
        "efficiency_residual": known["efficiency_residual_max"],
        "efficiency_residuals": by_name(matrix.targets, [residual[name] for name in matrix.targets]),
        "notices": known.get("notices", []),
    }
