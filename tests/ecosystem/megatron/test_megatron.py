"""megatron-core 0.16 on one rank and on two, of data and of tensors: training as ever, phi of the naive reference."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("megatron.core")

from ranks import check, found_by


def test_runs_train_as_without_the_tracker(tmp_path: Path) -> None:
    """Two tensor-parallel ranks see the data of one rank, and give its values."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    script = Path(__file__).with_name("megatron_runs.py")
    alone, together = (found_by(ranks, script, folder) for ranks, folder in enumerate(folders, start=1))
    for rank in together:
        rank["tensor parallel"]["truth"] = alone[0]["gpt"]["truth"]
    check([*alone, *together], 1e-6)  # Megatron's norms have single precision
