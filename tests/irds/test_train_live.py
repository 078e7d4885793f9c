"""The live view: the matrix as it grows, folded to the terminal's width."""

from __future__ import annotations

import io
import math
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

pytest.importorskip("torch")

from rich.cells import cell_len
from rich.console import Console
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.launch import shown_by
from shapleymix_irds.train.showing.heat import DARK, LIGHT, NEGATIVE, NOTHING, POSITIVE, HeatTable, colour, ink
from shapleymix_irds.train.showing.live import LiveView
from shapleymix_irds.train.showing.telemetry import JsonLines, Lines, Metrics

from tests.irds.training import QUICK, SCRIPT, environment, measured


def drawn(count: int, width: int, **more: object) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(HeatTable(measured(count, **more)))
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_four_languages_at_80_columns_have_all_their_standard_errors() -> None:
    assert drawn(4, 80) == [
        "Shapley values so far in nats, calibrated to the loss drops last measured",
        "                    l0          l1          l2          l3",
        "l0          1.22 ±0.05  0.03 ±0.10 -0.08 ±0.01 -0.09 ±0.09",
        "l1          0.31 ±0.03  1.36 ±0.04  0.20 ±0.08  0.26 ±0.04",
        "l2          0.17 ±0.05  0.37 ±0.00  1.31 ±0.08 -0.10 ±0.05",
        "l3          0.33 ±0.03 -0.08 ±0.08  0.26 ±0.03  0.99 ±0.05",
        "efficiency       0.086       0.054        0.03       0.042",
        "29 evaluations, 1 step of 5; +12.7% time",
    ]


def test_twelve_languages_at_80_columns_tell_their_standard_errors_in_a_line() -> None:
    lines = drawn(12, 80)
    assert lines[1].split() == [f"l{k}" for k in range(12)]
    assert lines[2].startswith("l0   1.22  0.03 -0.08")
    assert lines[14].startswith("standard errors 0.00 to 0.10; efficiency 0.0")
    assert len(lines) == 16


def test_twelve_languages_at_160_columns_have_all_their_standard_errors() -> None:
    lines = drawn(12, 160)
    assert lines[2].startswith("l0          1.22 ±0.05")
    assert lines[14].startswith("efficiency")


@pytest.mark.parametrize("width", [80, 120])
def test_more_languages_are_told_by_their_largest_transfers(width: int) -> None:
    lines, found = drawn(20, width), measured(20)
    assert lines[1].startswith("own 0.9")
    assert lines[2] == "largest of 380 transfers"
    first = found.largest(1)[0]
    off = np.where(np.eye(20) > 0, -1.0, found.values)
    assert first.value == off.max()
    assert lines[3].startswith(f"{first.source} > {first.target}")
    assert f"{first.value:.2f} ±{first.stderr:.2f}" in lines[3]
    assert len(lines) == 14


@pytest.mark.parametrize("count", [1, 2, 5, 12, 13, 50, 200])
@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_no_line_is_wider_than_the_terminal(count: int, width: int) -> None:
    nothing = np.full((count, count), np.nan)
    for more in ({}, {"calibrated": False, "stderr": nothing, "overhead": math.nan, "efficiency": nothing[0]}):
        assert max(map(cell_len, drawn(count, width, **more))) <= width


def test_what_is_not_known_yet_is_not_shown() -> None:
    nothing = np.full((2, 2), np.nan)
    more = {"calibrated": False, "stderr": nothing, "efficiency": nothing[0], "overhead": math.nan, "evaluations": 1}
    assert drawn(2, 80, **more, fresh=True) == [
        "Shapley values so far in nats, as summed, not calibrated",
        "              l0    l1",
        "l0          1.22  0.03",
        "l1         -0.08  0.91",
        "1 evaluation, 1 step of 5, without validation text; added time not known yet",
    ]


def test_small_values_keep_three_digits() -> None:
    small = measured(2, values=np.array([[0.0123, -0.001], [0.002, 0.03]]), stderr=np.full((2, 2), 0.001))
    assert small.number(0.0123) == "0.0123"
    assert measured(2, values=np.zeros((2, 2))).number(0.0) == "0.00"


def test_colours_go_from_blue_to_red_and_can_be_read() -> None:
    assert [colour(-1), colour(0), colour(1)] == [NEGATIVE, NOTHING, POSITIVE]
    assert [ink(NEGATIVE), ink(NOTHING), ink(POSITIVE)] == [LIGHT, DARK, LIGHT]
    shades = measured(2, values=np.array([[4.0, -1.0], [0.0, 1.0]])).shades
    assert shades.tolist() == [[1.0, -0.5], [0.0, 0.5]]


@pytest.mark.parametrize(("colours", "codes"), [("truecolor", 16), ("256", 16), ("standard", 0)])
def test_shades_are_for_terminals_that_can_tell_them_apart(colours: Literal["256"], codes: int) -> None:
    stream = io.StringIO()
    Console(file=stream, width=80, force_terminal=True, color_system=colours).print(HeatTable(measured(4)))
    assert stream.getvalue().count(";48;") == codes


def test_the_view_has_a_bar_the_metrics_and_the_matrix() -> None:
    stream = io.StringIO()
    view = LiveView(9, 3, Console(file=stream, width=100, force_terminal=True, color_system=None))
    metrics = Metrics(9, 900, 1e-3, 0.7, {"en": 2.5}, 12_345.6)
    view.step(metrics)
    view.show(metrics, measured(4))
    view.close()
    last = stream.getvalue().rsplit("9/9", 1)[1]
    assert "D 900 | 12,346 tokens/s | loss en 2.500" in last
    assert "l0          1.22 ±0.05  0.03 ±0.10" in last
    assert "+12.7% time" in last


def test_on_a_terminal_the_matrix_grows(tmp_path: Path) -> None:
    reading, writing = pty.openpty()
    settings = {**environment(), "COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"}
    command = [sys.executable, str(SCRIPT), *QUICK, "--out", str(tmp_path)]
    text = b""
    with subprocess.Popen(command, env=settings, stderr=writing) as run:
        os.close(writing)
        while select.select([reading], [], [], 120)[0]:
            try:
                text += os.read(reading, 65536)
            except OSError:  # the terminal's other side is closed
                break
    os.close(reading)
    told = text.decode()
    assert run.returncode == 0, told
    assert told.count("Shapley values so far in nats") >= 2
    assert "12/12" in told
    assert "\x1b[38;" in told  # colours
    assert told.rstrip().splitlines()[-1].startswith("IRDS: 6 evaluations, 1 step of 2")


@pytest.mark.parametrize(
    ("terminal", "live", "kind"), [(True, True, LiveView), (True, False, Lines), (False, True, Lines)]
)
def test_the_view_is_for_terminals_and_can_be_left_out(
    terminal: bool, live: bool, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    sinks = shown_by(TrainConfig(out=str(tmp_path), live=live), 0)
    for sink in sinks:
        sink.close()
    assert [type(sink) for sink in sinks] == [JsonLines, kind]
