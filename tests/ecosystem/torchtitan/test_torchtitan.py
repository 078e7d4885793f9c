"""torchtitan 0.3 on one rank and on two: weights of its plain trainer, phi of the naive reference."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torchtitan")

import shapleymix_io
from ranks import check, found_by


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_trainer_trains_as_ever(ranks: int, tmp_path: Path) -> None:
    check(found_by(ranks, Path(__file__).with_name("torchtitan_runs.py"), tmp_path), 1e-5)  # in single precision


def test_the_validator_of_the_page_logs_a_loss_for_each_language(tmp_path: Path) -> None:
    """At the end of the run the losses are those of its model, and `import` reads them from the folder."""
    (measured,) = found_by(1, Path(__file__).with_name("by_language.py"), tmp_path)
    (tmp_path / "design.csv").write_text("run,N,p_en,p_de\nmix-01,100,0.5,0.5\n")
    log = shapleymix_io.read(tmp_path, {"D": "step*10k", "loss": "loss/{lang}"}, join=tmp_path / "design.csv")
    assert log["run"].unique().to_list() == ["mix-01"]
    last = log.sort("D").tail(1)
    assert [last[f"loss_{name}"].item() for name in measured] == pytest.approx([*measured.values()], rel=1e-5)
