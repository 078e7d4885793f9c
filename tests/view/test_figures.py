"""Figures: they show the records' numbers, are the same bytes each time, and can be read."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from shapleymix_view import plot
from shapleymix_view.canvas import luminance, readable_on
from shapleymix_view.figures import DRAWN, draw

import shapleymix as sm
from shapleymix.errors import UsageError

pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def records(real_fit: sm.Fit, mixture: sm.Mixture, fixtures: Path) -> dict[str, tuple[Any, ...]]:
    """What each figure is drawn of."""
    log = fixtures / "multilingual5_runs.csv"
    matrix = sm.shapley_values(fixtures / "multilingual5_coalitions.csv")
    return {
        "agreement": (matrix, matrix), "compare": (sm.compare(log, ["effective-data", "chinchilla"], folds=3),),
        "design": (sm.design(4, log),),
        "downstream": (sm.calibrate_scores(log, fixtures / "multilingual5_scores.csv"),), "fit": (real_fit, log),
        "frontier": (sm.frontier(real_fit, 97_600, "2M", "en:rest", points=4),),
        "learning-curve": (sm.learning_curve(log, "chinchilla", folds=3),), "mixture": (mixture,),
        "transfer": (matrix, matrix),
    }  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_every_figure_is_the_same_each_time_and_says_what_it_shows(name: str, records):
    one, other = (draw(name, *records[name]) for _ in range(2))
    first, again, anew = one.to_bytes("svg"), one.to_bytes("svg"), other.to_bytes("svg")
    assert first == again
    assert first == anew
    title = ElementTree.fromstring(first).find(f"{SVG}title")
    assert (title.text, len({len(column) for column in one.columns().values()})) == (one.caption, 1)


def test_figures_are_saved_by_the_name_and_never_over_another_file(mixture, tmp_path: Path):
    figure = plot(mixture)
    for kind, head in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        figure.save(tmp_path / f"figure.{kind}")
        assert (tmp_path / f"figure.{kind}").read_bytes().startswith(head)
        assert figure.to_bytes(kind) == figure.to_bytes(kind)
    with pytest.raises(UsageError, match="exist"):
        figure.save(tmp_path / "figure.svg")
    with pytest.raises(UsageError, match="format"):
        figure.save(tmp_path / "figure.jpg")


def test_numbers_are_the_records(records):
    mixture = records["mixture"][0]
    table = plot(mixture).columns()
    assert dict(zip(table["source"], table["p"], strict=True)) == mixture.mixture
    assert list(table["p"]) == sorted(table["p"], reverse=True)
    matrix = records["transfer"][0]
    np.testing.assert_array_equal(plot(matrix).columns()["value"], matrix.sv.ravel())
    fit, log = records["fit"]
    rows = sm.read_runs(log)
    found = draw("fit", fit, log, against="prediction").columns()
    said = fit.predict(rows.p, rows.N, rows.D).losses
    for name, target, x in zip(found["run"], found["target"], found["x"], strict=True):
        there = np.array(rows.runs) == name
        assert x in said[there, fit.targets.index(target)]


def test_many_sources_lie_in_order_and_small_ones_fold(mixture):
    p = np.array([0.3, 0.2, 0.25, 0.15, 0.06, *[0.04 / 19] * 19])
    names = tuple(f"language_{i:02d}" for i in range(24))
    blank, none = np.full(24, np.nan), np.zeros(24)
    many = replace(
        mixture, sources=names, p=p, p_low=blank, p_high=blank, caps=none + 1, floors=none, available=blank,
        epochs=blank, max_epochs=blank, min_tokens=none, baselines=(), what_if=(), binding=(),
    )  # fmt: skip
    found = plot(many)
    assert list(found.columns()["source"]) == [names[i] for i in (0, 2, 1, 3, 4)] + ["19 others"]
    np.testing.assert_allclose(found.columns()["p"][-1], 0.04)
    axes = found.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(found.columns()["source"])
    room = axes.get_position()
    assert room.width > 0.6, "the bars have most of the figure"


def test_sources_fold_into_sums_of_their_parents(nested: sm.Mixture):
    """By naive sums: 24 children of 3 parents, whose names have no slashes."""
    found = plot(nested).columns()
    bars = dict(zip(found["source"], found["p"], strict=True))
    assert len(bars) == 3 * 6
    for parent in ("en", "de", "fi"):
        children = {name: p for name, p in nested.mixture.items() if name.startswith(parent)}
        assert bars[f"{parent}, in all"] == pytest.approx(sum(children.values()))
        shown = {name: p for name, p in bars.items() if name in children}
        assert shown == dict(sorted(children.items(), key=lambda one: -one[1])[:4])
        assert bars[f"4 others of {parent}"] == pytest.approx(sum(children.values()) - sum(shown.values()))
    rng, names = np.random.default_rng(0), [name.replace("-", "/") for name in nested.sources]
    matrix = sm.TransferMatrix.from_sv(rng.normal(size=(24, 24)), names, names)
    folded = plot(matrix).columns()
    assert len(folded["value"]) == 9
    for source, target, value in zip(*(folded[key] for key in ("source", "target", "value")), strict=True):
        rows, columns = ([i for i, name in enumerate(names) if name.startswith(one)] for one in (source, target))
        assert value == pytest.approx(sum(matrix.sv[i, j] for i in rows for j in columns) / 8)
    assert len(plot(matrix, matrix).columns()["value"]) == 24 * 24, "two are compared source by source"


def test_a_fit_of_many_targets_has_logarithmic_axes_one_unit_and_texts(nested_fit, tmp_path: Path):
    """Losses in bits a byte are those in nats by the bytes of a token; each target has a panel, and texts are texts."""
    rng, names = np.random.default_rng(2), nested_fit.sources
    p = rng.dirichlet(np.ones(24), 12)
    log = {"run": [f"new-{i}" for i in range(12)], "N": [3e7] * 12, "D": [3e9] * 12}
    log |= {f"p_{name}": p[:, i] for i, name in enumerate(names)} | {
        f"loss_{j}": rng.uniform(2, 3, 12) for j in range(3)
    }
    size = [2.0, 3.0, 4.0]
    table = {"language": nested_fit.targets, "bytes_per_token": size}
    nats, bits = plot(nested_fit, log), plot(nested_fit, log, unit="bpb", languages=table)
    per = np.array([size[nested_fit.targets.index(one)] for one in nats.columns()["target"]]) * np.log(2)
    for name in ("loss", "low", "high"):
        np.testing.assert_allclose(bits.columns()[name], np.array(nats.columns()[name]) / per)
    np.testing.assert_array_equal(bits.columns()["x"], nats.columns()["x"])
    assert [axes.get_xscale() for axes in bits.figure.axes] == ["log"] * 3
    texts = {"".join(one.itertext()) for one in ElementTree.fromstring(bits.to_bytes("svg")).iter(f"{SVG}text")}
    assert {"Theta", "loss, bits a byte", *nested_fit.targets} <= texts


def test_what_has_no_figure_is_named(records):
    with pytest.raises(UsageError, match="has no figure"):
        plot("mixture.json")
    with pytest.raises(UsageError, match="is of a fit"):
        draw("fit", records["mixture"][0])
    with pytest.raises(UsageError, match="other things"):
        draw("mixture", *records["fit"][:0], records["mixture"][0], against="theta")


def test_texts_on_colours_can_be_read():
    for rgb in np.random.default_rng(0).random((200, 3)):
        text = 0.0 if readable_on(rgb) == "#000000" else 1.0
        light, dark = max(luminance(rgb), text), min(luminance(rgb), text)
        assert (light + 0.05) / (dark + 0.05) >= 4.5
