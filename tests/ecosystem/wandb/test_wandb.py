"""Weights & Biases: the package takes what a run logs, offline, and a run that continues under its id."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("wandb")

from shapleymix_irds.train.showing.loggers import WeightsAndBiases
from shapleymix_irds.train.showing.telemetry import Metrics
from training import measured


def test_a_run_is_logged_offline_and_continues_under_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for step in (3, 6):
        metrics = Metrics(step, 100 * step, 1e-3, 0.7, {"en": 2.5}, 12_345.6)
        sink = WeightsAndBiases("project", "name", {"lr": 1}, tmp_path, 9, anew=False)
        sink.step(metrics)
        sink.show(metrics, measured(4))
        sink.close()
    runs = [folder.name for folder in (tmp_path / "wandb").glob("offline-run-*")]
    assert runs
    assert len({name.rsplit("-", 1)[1] for name in runs}) == 1
    assert list((tmp_path / "wandb").rglob("*.png"))
    assert list((tmp_path / "wandb").rglob("*.table.json"))
