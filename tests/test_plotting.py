"""Figures: what is drawn are the library's numbers, in every format, the same bytes each time, nothing over another."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from plotting_tools import FIXTURES, RUNS, matplotlib, overlaps, texts_of

import shapleymix as sm
from shapleymix.plotting.canvas import in_letters, letters, unshown, wrapped
from shapleymix.plotting.numbers import decimals
from shapleymix.plotting.pictures import Picture
from shapleymix.plotting.points import theta_of

BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def matrix(count: int, names: list[str] | None = None, *, errors: bool = False, seed: int = 0) -> sm.TransferMatrix:
    """Random values with a large diagonal."""
    draw = np.random.default_rng(seed)
    labels = names or [f"l{place}" for place in range(count)]
    values = draw.normal(0, 0.4, (count, count)) + 3 * np.eye(count)
    spread = draw.uniform(0.01, 0.2, (count, count)) if errors else None
    return sm.TransferMatrix.from_sv(values, labels, labels, spread)


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return sm.fit(RUNS, "learned-base", bootstrap=8, folds=2, min_own_tokens=20_000)


@pytest.fixture(scope="module")
def exact() -> sm.TransferMatrix:
    return sm.shapley_values(FIXTURES / "multilingual5_coalitions.csv")


@pytest.fixture(scope="module")
def every(fit: sm.Fit, exact: sm.TransferMatrix) -> dict[str, Callable[[], Picture]]:
    """A picture of each kind, made anew at each call."""
    in_run = sm.read_transfer(FIXTURES / "multilingual5_irds_raw.csv").calibrated()
    return {
        "transfer": lambda: sm.plot_transfer(exact, in_run),
        "agreement": lambda: sm.plot_agreement(exact, in_run),
        "fit": lambda: sm.plot_fit(fit, RUNS, targets=["en", "zh"]),
    }


KINDS = ("transfer", "agreement", "fit")


@pytest.mark.parametrize("kind", KINDS)
def test_every_figure_is_written_in_every_format_with_the_same_bytes(
    every: dict[str, Callable[[], Picture]], kind: str, tmp_path: Path
) -> None:
    first, again = every[kind](), every[kind]()
    for ending, beginning in BEGINNINGS.items():
        path = tmp_path / f"figure.{ending}"
        first.save(path)
        assert path.read_bytes().startswith(beginning)
        assert path.read_bytes() == again.to_bytes(ending)
        with pytest.raises(sm.UsageError, match="exists already"):
            first.save(path)
    assert first.to_bytes("svg") == again.to_bytes("svg"), "saving moves nothing"


@pytest.mark.parametrize(
    ("kind", "off", "size"), [("transfer", 0, 0.95), ("agreement", 4, 0.6)], ids=["numbers", "marks"]
)
def test_a_png_is_small_and_colours_that_stand_for_numbers_stay(
    every: dict[str, Callable[[], Picture]], kind: str, off: int, size: float
) -> None:
    from PIL import Image

    found = every[kind]()
    few, whole = io.BytesIO(found.to_bytes("png")), io.BytesIO()
    found.figure.savefig(whole, format="png", dpi=200)
    one, two = (np.asarray(Image.open(image).convert("RGB"), dtype=int) for image in (few, whole))
    assert one.shape == two.shape
    assert np.abs(one - two).max() <= off
    assert len(few.getvalue()) < size * len(whole.getvalue())


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_cut_off_or_lies_over_another(every: dict[str, Callable[[], Picture]], kind: str) -> None:
    assert overlaps(every[kind]()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_leaves_the_users_settings_alone(every: dict[str, Callable[[], Picture]], kind: str) -> None:
    """Neither does it take them: the bytes are the same under another style."""
    plain = every[kind]().to_bytes("svg")
    with matplotlib.rc_context({"font.size": 21.0, "axes.facecolor": "red", "svg.hashsalt": "mine"}):
        assert every[kind]().to_bytes("svg") == plain
        assert matplotlib.rcParams["font.size"] == 21.0


@pytest.mark.parametrize(("count", "errors"), [(1, True), (6, False), (6, True), (50, False)])
def test_labels_of_any_number_of_languages_stay_apart(count: int, errors: bool) -> None:
    one = matrix(count, [f"language_{place}" for place in range(count)], errors=errors)
    assert overlaps(sm.plot_transfer(one)) == []
    assert overlaps(sm.plot_transfer(one, matrix(count, list(one.sources), seed=1))) == []
    assert overlaps(sm.plot_agreement(one, matrix(count, list(one.sources), seed=1))) == []


def test_every_language_is_named_where_there_is_room_and_every_second_where_not() -> None:
    def rows(count: int) -> list[str]:
        return [label.get_text() for label in sm.plot_transfer(matrix(count)).figure.axes[0].get_yticklabels()]

    assert rows(6) == [f"l{place}" for place in range(6)]
    assert rows(50)[:3] == ["l0", "l2", "l4"]


def test_a_heat_map_holds_the_values_and_the_errors_of_the_matrix() -> None:
    one = matrix(6, errors=True)
    found = sm.plot_transfer(one)
    axes = found.figure.axes[0]
    np.testing.assert_array_equal(axes.images[0].get_array(), one.sv)
    cells = [text.get_text() for text in axes.texts]
    assert cells[1] == f"{one.sv[0, 1]:.2f}\n±{one.stderr[0, 1]:.3f}".replace("-", "−")
    assert len(cells) == 36
    table = found.to_polars()
    assert table["source"][7] == "l1"
    np.testing.assert_array_equal(table["value"].to_numpy().reshape(6, 6), one.sv)
    np.testing.assert_array_equal(table["stderr"].to_numpy().reshape(6, 6), one.stderr)
    off = one.sv[~np.eye(6, dtype=bool)]
    assert axes.images[0].get_clim() == (-np.abs(off).max(), np.abs(off).max()), "colours reach as far as others help"


def test_two_matrices_have_one_order_and_one_scale() -> None:
    one, two = matrix(4, errors=True), matrix(4, errors=True, seed=1)
    turned = two.aligned(two.sources[::-1], two.targets[::-1])
    found = sm.plot_transfer(one, turned, names=["exact", "in-run"])
    left, right = found.figure.axes[:2]
    np.testing.assert_array_equal(right.images[0].get_array(), two.sv)
    for axes, shown in ((left, one), (right, two)):
        errors = [float(text.get_text().split("±")[1]) for text in axes.texts]
        np.testing.assert_allclose(np.reshape(errors, (4, 4)), shown.stderr, atol=5e-4)
    assert left.images[0].get_clim() == right.images[0].get_clim()
    likeness = one.compare(two).raw
    assert likeness is not None
    assert f"Cosine {likeness.cosine:.3f}, Pearson {likeness.pearson:.3f}" in found.caption
    assert f"({likeness.cosine_off_diagonal:.3f} and " in found.caption
    assert f"Cosine {one.compare(two).cosine:.3f}" in found.caption


def test_normalised_values_are_drawn_where_one_matrix_has_no_others() -> None:
    one = matrix(3)
    bare = sm.TransferMatrix(one.sources, one.targets, None, one.nsv)
    found = sm.plot_transfer(one, bare, names=["a", "b"])
    np.testing.assert_array_equal(found.figure.axes[0].images[0].get_array(), one.nsv)
    assert found.figure.axes[0].images[0].get_clim() == (0.0, 1.0)
    with pytest.raises(sm.DataError, match="normalised values alone"):
        sm.plot_transfer(one, bare, values="raw")
    with pytest.raises(sm.UsageError, match="values"):
        sm.plot_transfer(one, values="both")  # type: ignore[arg-type]


def test_targets_that_are_no_sources_have_no_diagonal() -> None:
    values = np.arange(6.0).reshape(2, 3)
    one = sm.TransferMatrix.from_sv(values, ["en", "de"], ["fi", "sv", "no"])
    found = sm.plot_agreement(one, one)
    assert "own" not in " ".join(text.get_text() for text in texts_of(found))
    assert not any(found.columns()["own"])
    assert "diagonal 0" not in sm.plot_transfer(one).caption.replace("off the diagonal", "")


def test_agreement_has_a_point_for_each_pair_and_tells_the_diagonal_apart() -> None:
    one, two = matrix(5, errors=True), matrix(5, errors=True, seed=2)
    found = sm.plot_agreement(one, two)
    drawn = {line.get_marker(): line.get_xydata() for line in found.figure.axes[0].lines if line.get_marker() in "oD"}
    off = one.off_diagonal
    np.testing.assert_array_equal(drawn["o"], np.stack([one.sv[off], two.sv[off]], axis=1))
    np.testing.assert_array_equal(drawn["D"], np.stack([one.sv[~off], two.sv[~off]], axis=1))
    assert [text.get_text() for text in found.figure.axes[0].texts] == list(one.targets)
    np.testing.assert_array_equal(found.columns()["x_stderr"], one.stderr.ravel())
    assert f"{(two.sv - one.sv)[off].mean():+.3f} (another language)" in found.caption


def test_matrices_of_other_languages_are_refused() -> None:
    with pytest.raises(sm.DataError, match="sources"):
        sm.plot_agreement(matrix(3), matrix(4))
    with pytest.raises(sm.UsageError, match="1 names for 2 matrices"):
        sm.plot_agreement(matrix(3), matrix(3, seed=1), names=["exact"])


def test_a_fits_figure_draws_the_runs_the_law_and_its_band(fit: sm.Fit) -> None:
    found = sm.plot_fit(fit, RUNS, targets=["zh"])
    log = sm.read_runs(RUNS)
    own = log.p[:, log.sources.index("zh")] * log.D
    j = fit.targets.index("zh")
    theta = theta_of(fit, log.p, log.N, np.maximum(log.D, 1))[:, j]
    axes = found.figure.axes[0]
    dots = [line for line in axes.lines if line.get_linestyle() == "None"]
    assert len(dots) == 2, "a series for each size"
    for N, line in zip(np.unique(log.N), dots, strict=True):
        D = {23712.0: 1998848.0, 97600.0: 999424.0}[N]
        rows = (log.N == N) & (log.D == D) & (own >= 20_000)
        expected = np.stack([theta[rows], log.loss[rows, j]], axis=1)
        order = np.lexsort(np.round(expected, 9).T)
        drawn = line.get_xydata()
        np.testing.assert_allclose(drawn[np.lexsort(np.round(drawn, 9).T)], expected[order])
    curve = next(line for line in axes.lines if line.get_linestyle() == "-").get_xydata()
    law, N, D = fit.law, 23712.0, 1998848.0
    core = law.core(np.array([N]), np.array([D]))[0, j]
    np.testing.assert_allclose(curve[:, 1], core * curve[:, 0] ** -law.gamma[j], rtol=1e-12)
    assert (np.diff(curve[:, 0]) >= 0).all()
    table = found.to_polars().filter(pl.col("run") == "")
    assert (table["low"] < table["predicted"]).all()
    assert (table["predicted"] < table["high"]).all()


def test_held_out_runs_are_hollow_and_scored_apart(fit: sm.Fit) -> None:
    found = sm.plot_fit(fit, RUNS, FIXTURES / "multilingual5_coalitions.csv", targets=["en"])
    hollow = [line for line in found.figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert len(hollow) == 1
    held = found.to_polars().filter(pl.col("held_out"))
    assert len(hollow[0].get_xdata()) == held.height > 0
    assert "Fitted PE" in found.caption
    assert "; held out within the fitted ranges PE" in found.caption
    assert "; held out beyond them PE" in found.caption


def test_the_caption_scores_what_is_drawn(fit: sm.Fit) -> None:
    found = sm.plot_fit(fit, RUNS, FIXTURES / "multilingual5_coalitions.csv")
    seen = found.to_polars().filter(~pl.col("held_out"), pl.col("run") != "", pl.col("loss").is_not_null())
    missed = (seen["predicted"] - seen["loss"]).to_numpy()
    error = np.abs(missed).sum() / seen["loss"].to_numpy().sum()
    inside = float(((seen["low"] <= seen["loss"]) & (seen["loss"] <= seen["high"])).to_numpy().mean())
    assert f"Fitted PE {error:.2%} on {seen.height} losses, {inside:.0%} within" in found.caption


def test_a_split_column_holds_rows_out(fit: sm.Fit) -> None:
    from dataclasses import replace

    log = sm.read_runs(RUNS)
    split = replace(log, split=tuple("held-out" if N > 5e4 else "fit" for N in log.N))
    table = sm.plot_fit(fit, split, targets=["en"]).to_polars()
    runs = table.filter(pl.col("run") != "")
    assert (runs["held_out"] == (runs["N"] > 5e4)).all()


def test_predictions_stand_for_theta_where_a_law_has_none() -> None:
    fit = sm.fit(RUNS, "hellinger", bootstrap=0, folds=2, min_own_tokens=20_000)
    found = sm.plot_fit(fit, RUNS, targets=["en"])
    runs = found.to_polars()
    np.testing.assert_array_equal(runs["x"].to_numpy(), runs["predicted"].to_numpy())
    with pytest.raises(sm.UsageError, match="'hellinger' has no Theta"):
        sm.plot_fit(fit, RUNS, against="theta")


def test_wrong_questions_of_a_fits_figure(fit: sm.Fit) -> None:
    with pytest.raises(sm.UsageError, match="no target 'xx'"):
        sm.plot_fit(fit, RUNS, targets=["xx"])
    with pytest.raises(sm.UsageError, match="no target is named"):
        sm.plot_fit(fit, RUNS, targets=[])
    with pytest.raises(sm.DataError, match=r"no run has this token count[\s\S]*999.4k, 1.999M"):
        sm.plot_fit(fit, RUNS, D="3M")
    with pytest.raises(sm.UsageError, match="against"):
        sm.plot_fit(fit, RUNS, against="time")  # type: ignore[arg-type]
    with pytest.raises(sm.DataError, match=r"is among the fitted ones as well"):
        sm.plot_fit(fit, RUNS, RUNS)


ODD = ["$x$", "a_b^c", r"\alpha", "中文", "日本語", "한국어", "ไทย", "{}%", "long " * 12, "\x1b[31m"]


def test_odd_names_are_drawn_as_they_are_or_as_numbers_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sm.plot_transfer(matrix(len(ODD), ODD))
        for ending in BEGINNINGS:
            found.to_bytes(ending)
        sm.plot_agreement(matrix(len(ODD), ODD), matrix(len(ODD), ODD, seed=1)).to_bytes("png")
    labels = [label.get_text() for label in found.figure.axes[0].get_yticklabels()]
    assert labels[:3] == ODD[:3], "no mathematics is made of a name"
    assert "\x1b" not in "".join(labels)
    if ord("中") not in letters():
        assert labels[3] == r"\u4e2d\u6587"
        assert "中文 is written \\u4e2d\\u6587" in found.notices[0]


def test_names_that_no_font_has_are_counted() -> None:
    one, two = "\U00013000", "\U00013001"  # hieroglyphs
    assert f"the letters of 1 name: {one} is written \\U00013000" in unshown([one, "a", one])[0]
    assert "the letters of 2 names: " in unshown([one, two])[0]


def test_numbers_without_end_are_written_short() -> None:
    assert [decimals(value) for value in (-0.0001, 0.5, -999.5, 1234.5)] == ["0.000", "0.500", "-999.500", "1234"]
    assert [decimals(value, signed=True) for value in (0.5, 1e300)] == ["+0.500", "+1e+300"]
    large = sm.TransferMatrix.from_sv(np.array([[2e300, -1e300], [1e300, 3e300]]), ["a", "b"], ["a", "b"])
    found = sm.plot_transfer(large)
    assert "diagonal 2e+300 .. 3e+300, off the diagonal -1e+300 .. 1e+300" in found.caption
    assert overlaps(found) == []


def test_two_matrices_with_one_name_are_refused() -> None:
    with pytest.raises(sm.UsageError, match="two matrices have the name a"):
        sm.plot_agreement(matrix(3), matrix(3, seed=1), names=["a", "a"])


def test_words_that_no_font_has_are_numbers() -> None:
    assert in_letters("a$b") == "a$b"
    assert in_letters("\U0010ffff").startswith("\\")


def test_captions_are_broken_between_words() -> None:
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("中文 中文", 5) == ["中文", "中文"]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sm.UsageError, match="names no format of figures"):
        sm.plot_transfer(matrix(2)).save(tmp_path / "figure.jpg")


def test_figures_are_unknown_to_pyplot_and_nothing_is_loaded_before_the_first() -> None:
    code = (
        "import sys; import shapleymix as sm; sm.plot_transfer, sm.plot_fit; assert 'matplotlib' not in sys.modules;"
        "m = sm.TransferMatrix.from_sv([[1.0]], ['en'], ['en']); sm.plot_transfer(m).to_bytes('svg');"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_matplotlib_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(sm.UsageError, match="figures need matplotlib") as raised:
        sm.plot_transfer(matrix(2))
    assert raised.value.hint == "pip install 'matplotlib>=3.10.7'"


def test_a_picture_says_what_it_is() -> None:
    found = sm.plot_transfer(matrix(2))
    assert repr(found).startswith("Picture of transfer")
    assert found._repr_png_().startswith(BEGINNINGS["png"])
