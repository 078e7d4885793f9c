"""Optimal mixtures as JSON: one is the document in which it is saved; several stand in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapleymix.files import Json
    from shapleymix.mixing.mixtures import Mixture


def mixtures_document(found: Sequence[Mixture], law: str) -> dict[str, Json]:
    """The one mixture as `-o` writes it, or `scales[]` with one for each pair of N and D."""
    documents = [one.to_document() for one in found]
    return documents[0] if len(documents) == 1 else {"kind": "mixtures", "law": law, "scales": documents}
