"""Losses and gradients that are not finite, and places that cannot be written, end a run with their names."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train import setup  # noqa: E402

from tests.irds.training import train  # noqa: E402


@pytest.mark.parametrize("irds", ["--irds", "--no-irds"])
def test_a_gradient_that_is_not_finite_stops_before_it_ruins_the_weights(
    irds: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hot = ["--lr", "1e20", "--warmup", "0", irds, "--irds-every", "1"]
    assert train(tmp_path / "run", *hot) == 1
    said = capfd.readouterr().err
    assert "the gradient is not finite at step 1; the losses are: a 5.5" in said
    assert "product" not in said


@pytest.mark.parametrize("more", [["--irds-engine", "exact"], ["--irds-engine", "sketch"], ["--no-irds"]])
def test_a_loss_that_is_not_finite_is_named_before_gradients_and_their_products(
    more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: Any) -> tuple[Any, Any]:
        trained, measured = plain(*arguments)
        bad = torch.ones(len(trained))
        bad[0] = math.nan if torch.is_grad_enabled() else 1.0  # the first sequence that is trained on: language a
        return trained * bad, measured * bad

    plain = setup.sequence_losses
    monkeypatch.setattr(setup, "sequence_losses", broken)
    assert train(tmp_path / "run", "--irds-every", "1", *more) == 1
    assert "the loss of 'a' is not finite at step 0 on rank 0" in capfd.readouterr().err


def test_a_folder_that_cannot_be_written_is_an_error_before_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    assert train(tmp_path / "file") == 2
    assert f"{tmp_path / 'file'}: is a file, expected a folder\n" in capfd.readouterr().err
    assert train(tmp_path / "file" / "run") == 2
    assert f"{tmp_path / 'file'}: is a file, expected a folder of {tmp_path / 'file' / 'run'}" in capfd.readouterr().err
    assert train(Path("/proc/run")) == 2
    assert "/proc/run: cannot be written: " in capfd.readouterr().err
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    assert train(tmp_path / "run") == 2
    said = capfd.readouterr().err
    assert "GB free" in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_metrics_that_a_full_disk_does_not_take_are_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").symlink_to("/dev/full")
    assert train(tmp_path / "run", "--no-irds") == 2
    said = capfd.readouterr().err
    assert "metrics.jsonl: cannot be written: No space left on device" in said
    assert "Traceback" not in said
