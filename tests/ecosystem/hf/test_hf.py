"""transformers and TRL on one rank and on two: the weights of the plain trainer, the values of the naive reference."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")

from ranks import check, found_by

SCRIPT = Path(__file__).with_name("runs.py")


@pytest.mark.parametrize("ranks", [1, 2])
def test_trainers_train_as_without_the_tracker(ranks: int, tmp_path: Path) -> None:
    check(found_by(ranks, SCRIPT, tmp_path), 1e-4)  # in float32
