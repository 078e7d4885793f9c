"""The lines of Lightning's page run as they stand, and what its logger writes is what the page's command reads."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")
pytest.importorskip("tensorboard")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from irds_models import batch, sequence_losses
from lightning.pytorch import Trainer
from lightning_runs import PLAIN, Net, loader

import shapleymix as sm
from shapleymix.tables.transfer_reading import read_transfer

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).resolve().parents[3] / "adapters" / "docs" / "lightning.md"
LINES, LOGGER = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
LANGUAGES = ("en", "de")


def part(language: int, seed: int, count: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of one language."""
    x, y, _ = batch((count, 0, 0, 0) if language == 0 else (0, count, 0, 0), seed=seed, masked=False)
    return x, y


def mixed(seed: int) -> dict[str, Any]:
    """A batch of both languages."""
    x, y, lang = batch((2, 2, 0, 0), seed=seed, masked=False)
    return {"x": x, "y": y, "lang": lang}


def test_the_lines_measure_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    validation = {name: part(k, 50 + k) for k, name in enumerate(LANGUAGES)}
    names = {"validation": validation, "module": Net(PLAIN), "batches": loader([mixed(n) for n in range(160)])}
    exec(LINES, names)
    assert read_transfer(tmp_path / "phi/sv_raw.csv").sources == LANGUAGES
    assert names["irds"].tracker.ledger.count == 4


class Proxy(Net):
    """A proxy run that logs as the page says."""

    def __init__(self) -> None:
        super().__init__(PLAIN)
        self.tokens_seen = 0
        self.losses: list[dict[str, float]] = []

    def training_step(self, batch: dict[str, Any], number: int) -> Any:
        self.tokens_seen += batch["y"].numel()
        return super().training_step(batch, number)

    def validation_step(self, batch: Any, number: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        loss = sequence_losses(self(x), y).sum() / y.numel()
        if dataloader_idx == 0:
            self.losses.append({})
        self.losses[-1][LANGUAGES[dataloader_idx]] = float(loss)
        self.log(f"val/loss_{LANGUAGES[dataloader_idx]}", loss, add_dataloader_idx=False)

    def on_validation_epoch_end(self) -> None:
        self.log("tokens", float(self.tokens_seen))


def test_the_log_is_imported_by_the_command_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held_out = [loader([part(k, 60 + k)]) for k in range(2)]
    truth: dict[str, list[dict[str, float]]] = {}
    for place, name in enumerate(("mix-01", "mix-02")):
        names: dict[str, Any] = {}
        exec(LOGGER.replace("mix-01", name), names)
        quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
        trainer = Trainer(
            max_steps=10,
            val_check_interval=5,
            num_sanity_val_steps=0,
            logger=names["logger"],
            accelerator="cpu",
            enable_checkpointing=False,
            **quiet,
        )
        proxy = Proxy()
        trainer.fit(proxy, loader([mixed(100 * place + n) for n in range(20)]), held_out)
        truth[name] = proxy.losses
    (tmp_path / "design.csv").write_text("run,N,p_en,p_de\nmix-01,97600,.5,.5\nmix-02,97600,.25,.75\n")
    log = sm.read_runs("logs", map="loss=val/loss_{lang}", join="design.csv").aligned(LANGUAGES, LANGUAGES)
    found = {
        run: [dict(zip(LANGUAGES, log.loss[row].tolist(), strict=True)) for row, of in enumerate(log.runs) if of == run]
        for run in dict.fromkeys(log.runs)
    }
    assert found.keys() == truth.keys()
    for name, losses in truth.items():
        for one, other in zip(found[name], losses, strict=True):
            assert one == pytest.approx(other, rel=1e-6)
