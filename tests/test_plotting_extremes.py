"""Figures of matrices whose numbers are as large, as small or as alike as they go."""

from __future__ import annotations

import numpy as np
import pytest

import shapleymix as sm
from shapleymix.errors import DataError

pytest.importorskip("matplotlib")
DRAWN = [sm.plot_transfer, sm.plot_agreement]
LARGEST = float(np.finfo(float).max)


def matrices(unit: float, stderr: float | None = None) -> list[sm.TransferMatrix]:
    """Two matrices whose largest value is that."""
    rng, found = np.random.default_rng(0), []
    for _ in range(2):
        values = rng.uniform(-1, 1, (3, 3))
        errors = None if stderr is None else np.full((3, 3), stderr)
        names = ["x", "y", "z"]
        found.append(sm.TransferMatrix.from_sv(values / np.abs(values).max() * unit, names, names, stderr=errors))
    return found


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize("unit", [1e-300, 1e306])
def test_numbers_are_drawn_as_far_as_axes_go(draw, unit: float) -> None:
    """Fault: the caption held 'Pearson nan' where it has no value, and overflowed where values were large."""
    found = draw(*matrices(unit, stderr=unit / 10))
    plain = draw(*matrices(1.0))
    assert (
        found.caption.split("Cosine")[1].split(" in nats")[0] == plain.caption.split("Cosine")[1].split(" in nats")[0]
    )
    assert "nan" not in found.caption
    if unit < 1:
        assert "Pearson undefined of the normalised values" in found.caption, "all are 1"


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize(("unit", "stderr"), [(LARGEST, None), (1e307, 1.0), (1.0, 1e307)])
def test_numbers_beyond_any_axis_are_refused(draw, unit: float, stderr: float | None) -> None:
    """Fault: these ended in an internal fault of matplotlib."""
    with pytest.raises(DataError, match="nats is too large to draw"):
        draw(*matrices(unit, stderr))
    assert "Cosine" in draw(*matrices(unit, stderr), values="normalized").caption
