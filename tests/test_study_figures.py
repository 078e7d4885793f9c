"""The study's figures: drawn where their data are there, named where not, and small in the repository."""

from __future__ import annotations

from pathlib import Path

import figures
import numpy as np
import pytest
from figures import FIGURES, draw_all, held_out
from logs import HERE, NotYetError, Study

pytest.importorskip("matplotlib")
KEPT = sorted((HERE / "figures").glob("*"))
NAMES = {draw.__name__.replace("_", "-") for draw in FIGURES}


def test_what_is_kept_is_small_and_drawn_by_the_report():
    assert {path.suffix for path in KEPT} == {".png"}
    assert {path.stem for path in KEPT} <= NAMES
    assert [path.name for path in KEPT if path.stat().st_size > 200_000] == []


def test_figures_without_data_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    draw_all(Study(tmp_path / "none"), tmp_path / "figures")
    told = capsys.readouterr().out
    assert list((tmp_path / "figures").iterdir()) == []
    assert all(f"{name}: `" in told for name in NAMES)
    assert "is not there yet" in told


def test_whole_mixtures_and_the_largest_size_are_held_out():
    log = held_out(Study().log)
    assert log.split is not None
    aside = np.array([one == "held-out" for one in log.split])
    assert aside[log.N > 300_000].all()
    smaller = log.N < 300_000
    keys = np.array(log.mixture_keys)
    assert not set(keys[aside & smaller]) & set(keys[~aside])
    assert 0.1 < aside[smaller].mean() < 0.3


def test_the_matrices_of_a_figure_are_those_of_the_tables():
    study = Study()
    try:
        found = figures.agreement(study)
    except NotYetError as missing:
        pytest.skip(str(missing))
    sv, in_run = study.sv.sv, study.irds(figures.IN_RUN).calibrated().sv
    assert sv is not None
    assert in_run is not None
    np.testing.assert_array_equal(found.columns()["x"], sv.ravel())
    np.testing.assert_array_equal(found.columns()["y"], in_run.ravel())
    assert f"Pearson {study.sv.compare(study.irds(figures.IN_RUN).calibrated()).raw.pearson:.3f}" in found.caption
