"""What a run shows and keeps: plain lines, and JSON without NaN."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from shapleymix_irds.train.showing import telemetry
from shapleymix_irds.train.showing.telemetry import JsonLines, Lines, Metrics

from shapleymix.errors import UsageError
from tests.irds.training import measured


def metrics(step: int, **more: Any) -> Metrics:
    loss = {"en": 2.5, "de": math.nan}
    return Metrics(step, 100 * step, 1e-3, 0.7, loss, 12_345.6, **more)


def test_what_is_not_known_is_null_and_left_out() -> None:
    document = metrics(3).document()
    assert document["loss"] == {"en": 2.5, "de": None}
    assert document["irds_overhead"] is None
    assert "NaN" not in json.dumps(document)
    assert metrics(3).scalars() == {"lr": 1e-3, "grad_norm": 0.7, "tokens_per_second": 12_345.6, "loss/en": 2.5}


def test_a_line_tells_speed_losses_overhead_and_efficiency() -> None:
    line = metrics(3, mfu=0.4123, peak_memory=3.1e9, irds_overhead=0.031, efficiency={"en": 0.05, "de": 0.07}).line()
    assert (
        line == "D 300 | 12,346 tokens/s | MFU 41.2% | 3.10 GB | loss en 2.500 | IRDS +3.1% | efficiency 0.05 to 0.07"
    )


def test_metrics_after_the_step_of_a_checkpoint_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonLines(path, 0)
    for step in (1, 2, 3, 4):
        sink.step(metrics(step))
    sink.close()
    path.write_text(path.read_text()[:-20])  # a kill within a line
    sink = JsonLines(path, 2)
    sink.step(metrics(3))
    sink.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_cut_of_metrics_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "metrics.jsonl"
    before = b'{"step": 1}\n{"step": 2}\n\xff{"step": 1}\n'
    path.write_bytes(before)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UsageError, match="No space left on device"):
            JsonLines(path, 1)
    assert path.read_bytes() == before
    JsonLines(path, 1).close()
    assert path.read_bytes() == b'{"step": 1}\n'


def test_plain_lines_come_seldom_but_the_last_one_comes(capfd: pytest.CaptureFixture[str]) -> None:
    sink = Lines(steps=9)
    for step in range(1, 10):
        sink.step(metrics(step))
    sink.close()
    assert [line.split(" |")[0] for line in capfd.readouterr().err.splitlines()] == ["step 1/9", "step 9/9"]


def test_plain_lines_tell_of_the_matrix_now_and_then_and_at_the_end(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now[0])
    sink = Lines(steps=10, seconds=1.0)
    for step in range(1, 11):
        now[0] += 5
        sink.show(metrics(step), measured(4))
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 4  # after 15, 30 and 45 seconds, and at the last step
    assert lines[0].startswith("Shapley values so far in nats, calibrated to the loss drops last measured: own 0.99 to")
    assert "largest transfers l2>l1 0.37 ±0.00" in lines[0]
    assert lines[0].endswith("29 evaluations, 1 step of 5; +12.7% time")
