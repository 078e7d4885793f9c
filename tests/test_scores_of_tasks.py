"""Scores on tasks: lines against SciPy and the paper, faults at their place, and mixtures chosen through them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.stats import linregress

import shapleymix as sm
from shapleymix.laws.task_curves import TRANSFORMS
from shapleymix.scores import ScoredRuns, lines_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
HELLASWAG = (4.030, 0.098)
"""The ShapleyLaw paper's fit of HellaSwag in English: s = a exp(-l) + b."""


def points(seed: int = 0, rows: int = 9, noise: float = 0.004, chance: float = 0.25) -> ScoredRuns:
    rng = np.random.default_rng(seed)
    loss = rng.uniform(2.2, 3.4, rows)
    score = HELLASWAG[0] * np.exp(-loss) + HELLASWAG[1] + noise * rng.standard_normal(rows)
    return ScoredRuns("hellaswag", "en", loss, score, np.arange(rows), chance)


def log_of(loss: np.ndarray) -> sm.RunLog:
    p = np.linspace(0.1, 0.9, len(loss))
    runs = [f"r{row}" for row in range(len(loss))]
    return sm.read_runs(
        {"run": runs, "N": [1e8] * len(p), "D": [1e9] * len(p), "p_en": p, "p_de": 1 - p, "loss_en": loss}
    )


def test_the_papers_line_is_found_again(tmp_path: Path) -> None:
    loss = np.linspace(2.2, 3.2, 7)
    score = HELLASWAG[0] * np.exp(-loss) + HELLASWAG[1]
    table = {"run": [f"r{i}" for i in range(7)], "task": ["hellaswag_en"] * 7, "score": score}
    found = sm.calibrate_scores(log_of(loss), table)
    (one,) = found.calibrations
    assert (one.label, one.transform) == ("hellaswag/en", "exp")
    np.testing.assert_allclose([one.a, one.b], HELLASWAG, rtol=1e-9)
    assert 1 - found.curves.errors(np.array([2.7474]))[0] == pytest.approx(0.3563, abs=1e-4)
    found.save(tmp_path / "tasks.json")
    assert sm.Downstream.load(tmp_path / "tasks.json") == found


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name != "sigmoid"])
def test_a_line_is_that_of_scipy_and_its_held_out_error_that_of_leaving_out(name: str) -> None:
    data = points()
    line, misses = lines_of(data)[name]
    g = TRANSFORMS[name].value(data.loss)
    known = linregress(g, data.score)
    np.testing.assert_allclose([line.a, line.b], [known.slope, known.intercept], rtol=1e-10)
    left = [linregress(np.delete(g, row), np.delete(data.score, row)) for row in range(len(g))]
    expected = [s - (one.slope * x + one.intercept) for s, x, one in zip(data.score, g, left, strict=True)]
    np.testing.assert_allclose(misses, expected, rtol=1e-8)


def test_a_sigmoid_is_that_of_scipy() -> None:
    data = points(3, noise=0.01, chance=0.2)
    line, _ = lines_of(data)["sigmoid"]
    found, _ = curve_fit(
        lambda loss, a, b: 0.2 + 0.8 / (1 + np.exp(a * loss - b)), data.loss, data.score, p0=[2.0, 3.0]
    )
    np.testing.assert_allclose([line.a, line.b], found, rtol=1e-5)


def test_rows_of_one_mixture_are_held_out_together_and_count_once() -> None:
    data = points(rows=6)
    twice = ScoredRuns(*(np.repeat(one, 2) if isinstance(one, np.ndarray) else one for one in data))
    lines = [lines_of(one)["exp"][0].held_out for one in (data, twice)]
    assert lines[0] == pytest.approx(lines[1], rel=1e-9)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"run": "nobody"}, "run"), ({"score": "1.7"}, "score"), ({"task": "hellaswag"}, "task"),
        ({"score": "x"}, "score"),
    ],
)  # fmt: skip
def test_faults_have_their_place(tmp_path: Path, change: dict[str, str], column: str) -> None:
    rows = [{"run": f"r{i}", "task": "hellaswag_en", "score": f"{0.3 + i / 50}"} for i in range(5)]
    rows[2] |= change
    lines = ["run,task,score", *(",".join(row.values()) for row in rows)]
    (tmp_path / "scores.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(sm.DataError) as error:
        sm.calibrate_scores(log_of(np.linspace(2, 3, 5)), str(tmp_path / "scores.csv"))
    assert (error.value.location.line, error.value.location.column) == (4, column)


def test_drawn_lines_spread_as_their_covariance_and_keep_their_sign() -> None:
    tasks = sm.calibrate_scores(FIXTURES / "multilingual5_runs.csv", FIXTURES / "multilingual5_scores.csv")
    drawn = tasks.draw(4000)
    assert (np.sign(drawn.a) == np.sign(tasks.curves.a)).all()
    for t, one in enumerate(tasks.calibrations):
        wide = one.covariance[0, 0] * one.dof / (one.dof - 2)
        assert drawn.a[:, t].var() == pytest.approx(wide, rel=0.2)


def test_a_straight_line_in_the_loss_chooses_what_the_losses_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    log = sm.read_runs(FIXTURES / "multilingual5_runs.csv")
    fit = sm.fit(log, law="learned-base", bootstrap=0, folds=0)
    monkeypatch.setattr("shapleymix.scores.TRANSFORMS", {"minus": TRANSFORMS["minus"]})
    tasks = sm.calibrate_scores(log, FIXTURES / "multilingual5_scores.csv")
    monkeypatch.undo()
    weights = tasks.weights()
    by_loss: dict[str, float] = {}
    for one in tasks.calibrations:
        by_loss[one.target] = by_loss.get(one.target, 0.0) + weights[one.label] * one.a
    by_scores = sm.optimize(fit, 97600, "2M", downstream=tasks)
    assert by_scores.measure == "error"
    np.testing.assert_allclose(by_scores.p, sm.optimize(fit, 97600, "2M", weights=by_loss).p, atol=1e-4)


def test_weights_of_a_task_are_shared_by_its_targets() -> None:
    tasks = sm.calibrate_scores(FIXTURES / "multilingual5_runs.csv", FIXTURES / "multilingual5_scores.csv")
    found = tasks.weights("cloze=1")
    assert sum(found.values()) == pytest.approx(1)
    assert all(found[one.label] == 0 for one in tasks.calibrations if one.task != "cloze")
    with pytest.raises(sm.UsageError):
        tasks.weights("nothing=1")
