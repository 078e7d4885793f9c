"""Speed figures: closed forms, a clock that the test holds, and what a run shows of them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train import speed  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.shapes import MODELS, ModelConfig  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tests.irds.training import train  # noqa: E402


def test_speed_is_that_of_steps_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 2.0, 100.0, 102.0, 200.0, 201.0])
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(clock))
    found = speed.Speed(flops=4.0, peak=1000.0)
    for _ in range(2):
        with found.step(50):
            pass
    assert found.read() == speed.Pace(25.0, 0.1)
    assert found.read() == speed.Pace(0.0, 0.0)
    with found.step(150):
        pass
    assert found.read() == speed.Pace(150.0, 0.6)
    assert found.whole() == speed.Pace(50.0, 0.2)


def test_flops_are_those_that_pytorch_counts() -> None:
    """But for norms, and for the half of attention that causality spares: its FLOPs grow with the length."""
    shape, B, T = ModelConfig(2, 64, 168, 4, 256), 3, 32
    decoder = Decoder(shape)
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        decoder(torch.zeros(B, T, dtype=torch.long)).sum().backward()
    norms = shape.layers * 2 * shape.hidden + shape.hidden
    expected = B * T * (speed.flops_of_a_token(shape, 2 * T) - 6 * norms)
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.01)


def test_flops_of_the_paper_s_largest_model_are_about_six_times_its_weights() -> None:
    shape = MODELS["3171M"]
    ratio = speed.flops_of_a_token(shape, 4096) / (6 * (shape.non_embedding + shape.vocab * shape.hidden))
    assert 1.0 < ratio < 1.15


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.0),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A100 80GB PCIe", 312.0),
        ("NVIDIA B200", 2250.0),
        ("NVIDIA GeForce GTX 1080", math.nan),
    ],
)
def test_peaks_of_gpus_go_by_name(name: str, peak: float) -> None:
    assert speed.known_peak(name) == pytest.approx(peak, nan_ok=True)


def test_a_cpu_has_the_peak_that_is_stated() -> None:
    cpu = torch.device("cpu")
    assert math.isnan(speed.peak_flops(cpu, True, None))
    assert speed.peak_flops(cpu, False, 0.5) == 5e11
    assert 1e7 < speed.peak_memory(cpu) < 1e13


def test_a_run_shows_its_speed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--no-irds", "--peak-tflops", "0.01") == 0
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    flops = speed.flops_of_a_token(ModelConfig(1, 16, 24, 2, 256), 32)
    assert last["mfu"] == pytest.approx(last["tokens_per_second"] * flops / 1e10)
    assert last["peak_memory"] > 1e7
    told = capfd.readouterr().err
    assert "trained at " in told
    assert "tokens/s, MFU " in told
    assert train(tmp_path / "run", "--no-irds", "--peak-tflops", "0.01") == 0
    assert "trained at" not in capfd.readouterr().err
