"""torchtitan 0.3 on one rank and on two: weights of its plain trainer, phi of the naive reference."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torchtitan")

from ranks import check, found_by


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_trainer_trains_as_ever(ranks: int, tmp_path: Path) -> None:
    check(found_by(ranks, Path(__file__).with_name("torchtitan_runs.py"), tmp_path), 1e-5)  # in single precision
