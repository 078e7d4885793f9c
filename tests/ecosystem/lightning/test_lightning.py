"""Lightning 2.6 on one rank and on two: the weights of an untracked run, phi of the naive reference, and a resume."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("lightning")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from lightning_runs import PLAIN, Net, batches_of, callback_of, fit, loader, trainer_of, weights
from ranks import check, found_by


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trainer_trains_as_without_the_callback(ranks: int, tmp_path: Path) -> None:
    check(found_by(ranks, Path(__file__).with_name("lightning_runs.py"), tmp_path), 1e-8)


def test_a_resumed_run_counts_nothing_twice(tmp_path: Path) -> None:
    whole = callback_of(out=tmp_path)
    expected = weights(fit(PLAIN, [whole], max_epochs=2))
    assert (tmp_path / "sv_raw.csv").exists()
    first, second = callback_of(), callback_of()
    trainer = trainer_of(PLAIN, [first])
    trainer.fit(Net(PLAIN), loader(batches_of(0)))
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    found = weights(fit(PLAIN, [second], ckpt_path=str(tmp_path / "half.ckpt"), max_epochs=2))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (second.tracker.ledger.phi == whole.tracker.ledger.phi).all()
