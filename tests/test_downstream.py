"""Calibrated tasks: against SciPy, against brute force, and against what the paper prints."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit
from scipy.stats import linregress, pearsonr
from scipy.stats import t as student_t

import shapleymix as sm
from shapleymix.downstream.lines import correlation, lines_of
from shapleymix.downstream.scores import Points
from shapleymix.downstream.tasks import Task
from shapleymix.downstream.transforms import TRANSFORMS

HELLASWAG = {"a": 4.030, "b": 0.098, "r": -0.997, "p": 8.15e-7}
"""The ShapleyLaw paper's fit of HellaSwag in English: s = a exp(-l) + b, Pearson's r and its p-value."""


def points(loss, score, chance=np.nan, groups=None) -> Points:
    groups = np.arange(len(loss)) if groups is None else np.asarray(groups)
    return Points(Task("hellaswag", "en"), np.asarray(loss, float), np.asarray(score, float), groups, chance)


def noisy(seed=0, rows=9, noise=0.004, chance=0.25) -> Points:
    rng = np.random.default_rng(seed)
    loss = rng.uniform(2.2, 3.4, rows)
    return points(loss, HELLASWAG["a"] * np.exp(-loss) + HELLASWAG["b"] + noise * rng.standard_normal(rows), chance)


def log_of(loss_en, loss_de=None, runs=None) -> sm.RunLog:
    rows = len(loss_en)
    p = np.linspace(0.1, 0.9, rows)
    columns = {"run": runs or [f"r{row}" for row in range(rows)], "N": [1e8] * rows, "D": [1e9] * rows}
    columns |= {"p_en": p, "p_de": 1 - p, "loss_en": loss_en}
    return sm.read_runs(columns | ({} if loss_de is None else {"loss_de": loss_de}))


def test_the_papers_line_is_found_again():
    loss = np.linspace(2.2, 3.2, 7)
    score = HELLASWAG["a"] * np.exp(-loss) + HELLASWAG["b"]
    found = sm.calibrate_scores(
        log_of(loss), {"run": [f"r{i}" for i in range(7)], "task": ["hellaswag_en"] * 7, "score": score}
    )
    (one,) = found.calibrations
    assert (one.label, one.transform) == ("hellaswag/en", "exp")
    np.testing.assert_allclose([one.a, one.b], [HELLASWAG["a"], HELLASWAG["b"]], rtol=1e-9)
    np.testing.assert_allclose([one.R2, one.held_out], [1, 0], atol=1e-12)
    # HellaSwag's mean accuracy of the paper's optimum, .356, is that of a loss of 2.75 nats.
    assert found.score("hellaswag/en", 2.7474) == pytest.approx(0.3563, abs=1e-4)


def test_the_papers_p_value_is_that_of_seven_runs():
    """The paper prints r rounded and does not print n: of all n, seven runs alone give the p beside it."""
    rng = np.random.default_rng(1)

    def p_of(r: float, rows: int) -> float:
        x, y = rng.standard_normal((2, rows))
        x = (x - x.mean()) / x.std()
        y = y - y.mean()
        y -= (y @ x) / rows * x
        found = correlation(points(3 + 0.1 * x, 0.5 + 0.01 * (r * x + np.sqrt(1 - r * r) * y / y.std())))
        assert found.r == pytest.approx(r, abs=1e-9)
        return found.p

    r = HELLASWAG["r"]
    fits = [rows for rows in range(4, 12) if p_of(r - 5e-4, rows) <= HELLASWAG["p"] <= p_of(r + 5e-4, rows)]
    assert fits == [7]


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name != "sigmoid"])
def test_a_line_is_that_of_scipy(name):
    data = noisy()
    line, g = lines_of(data)[name], TRANSFORMS[name].value(data.loss)
    known = linregress(g, data.score)
    np.testing.assert_allclose([line.a, line.b], [known.slope, known.intercept], rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(line.covariance)), [known.stderr, known.intercept_stderr], rtol=1e-8)
    np.testing.assert_allclose(line.R2, known.rvalue**2, rtol=1e-10)
    left = [linregress(np.delete(g, row), np.delete(data.score, row)) for row in range(len(g))]
    misses = [s - (one.slope * x + one.intercept) for s, x, one in zip(data.score, g, left, strict=True)]
    np.testing.assert_allclose(line.misses, misses, atol=1e-12)
    assert line.held_out == pytest.approx(np.sqrt(np.mean(np.square(misses))), rel=1e-9)


def test_a_sigmoid_is_that_of_scipy():
    rng = np.random.default_rng(2)
    loss = np.linspace(1.8, 3.6, 12)

    def curve(at, a, b):
        return 0.25 + 0.75 / (1 + np.exp(a * at - b))

    data = points(loss, curve(loss, 4.0, 11.0) + 0.01 * rng.standard_normal(12), 0.25)
    line = lines_of(data)["sigmoid"]
    known, covariance = curve_fit(curve, loss, data.score, [3.0, 8.0])
    np.testing.assert_allclose([line.a, line.b], known, rtol=1e-5)
    np.testing.assert_allclose(line.covariance, covariance, rtol=1e-3)
    left, _ = curve_fit(curve, loss[1:], data.score[1:], known)
    assert line.misses[0] == pytest.approx(data.score[0] - curve(loss[0], *left), abs=1e-6)


def test_the_derivatives_are_those_of_the_scores():
    loss, h = np.linspace(0.8, 4, 9), 1e-4
    for shape in TRANSFORMS.values():
        at = [shape.score(loss + step, np.asarray(1.3), np.asarray(2.0), np.asarray(0.2)) for step in (-h, 0, h)]
        first, second = shape.slopes(loss, np.asarray(1.3), np.asarray(2.0), np.asarray(0.2))
        np.testing.assert_allclose(first, (at[2] - at[0]) / (2 * h), rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(second, (at[2] - 2 * at[1] + at[0]) / h**2, rtol=1e-4, atol=1e-6)


def test_pearson_is_that_of_scipy_and_checkpoints_are_no_more_runs():
    data = noisy(noise=0.03)
    found, known = correlation(data), pearsonr(data.loss, data.score)
    assert (found.r, found.p) == pytest.approx((known.statistic, known.pvalue))
    twice = points(np.tile(data.loss, 2), np.tile(data.score, 2), groups=np.tile(data.groups, 2))
    assert correlation(twice).p == pytest.approx(known.pvalue)
    one, both = lines_of(data)["exp"], lines_of(twice)["exp"]
    assert both.dof == one.dof
    # Of twice the rows least squares believes twice as much; here as much as of one of each.
    np.testing.assert_allclose(both.covariance, one.covariance * (len(data.loss) - 2) / (len(data.loss) - 1), rtol=1e-9)
    np.testing.assert_allclose(both.held_out, one.held_out, rtol=1e-9)


def test_held_out_errors_choose_and_intervals_hold_what_they_say():
    inside = 0
    for seed in range(200):
        line = lines_of(noisy(seed, rows=7, chance=np.nan))["exp"]
        inside += abs(line.a - HELLASWAG["a"]) <= student_t.ppf(0.95, line.dof) * np.sqrt(line.covariance[0, 0])
    assert 0.84 <= inside / 200 <= 0.95
    lines = lines_of(noisy(noise=1e-4))
    assert min(lines.values(), key=lambda line: line.held_out) is lines["exp"]


def test_scores_of_a_table_with_every_fault(tmp_path):
    (tmp_path / "scores.csv").write_text(
        "run,task,target,score\nr0,cloze,en,35.6\nr9,cloze,en,0.3\nr1,cloze,fr,0.3\nr2,cloze,en,0.3\nr2,cloze,en,0.4\n"
    )
    with pytest.raises(sm.DataError) as caught:
        sm.calibrate_scores(log_of([2.0, 2.5, 3.0]), str(tmp_path / "scores.csv"))
    text = str(caught.value)
    assert "scores.csv:2 [score]: score = 35.6, expected a score between 0 and 1" in text
    assert "give percent=True" in text
    assert "scores.csv:4 [target]: 'fr' is no target of the log" in text
    assert "scores.csv:6 [score]: repeats the score of run 'r2' on cloze/en" in text


def test_a_run_that_the_log_has_not():
    scores = {"run": ["r0", "r1", "r22"], "task": ["cloze_en"] * 3, "score": [0.3, 0.4, 0.5]}
    with pytest.raises(sm.DataError, match=r"the log has no run 'r22'\n  hint: did you mean 'r2'"):
        sm.calibrate_scores(log_of([2.0, 2.5, 3.0]), scores)


def test_a_name_without_a_language_is_asked_for():
    scores = {"run": ["r0", "r1", "r2"], "task": ["hellaswag"] * 3, "score": [0.5, 0.4, 0.3]}
    with pytest.raises(sm.DataError, match="no target is known of hellaswag"):
        sm.calibrate_scores(log_of([2.0, 2.5, 3.0]), scores)
    found = sm.calibrate_scores(log_of([2.0, 2.5, 3.0]), scores, task_language="hellaswag=en")
    assert found.labels == ("hellaswag/en",)


def test_what_cannot_be_calibrated_is_left_out_with_its_reason():
    log = log_of([2.0, 2.5, 3.0, 3.3], [2.0, None, None, 3.0])
    runs = [f"r{i}" for i in range(4)]
    scores = {
        "run": runs * 3,
        "task": ["same_en"] * 4 + ["few_de"] * 4 + ["good_en"] * 4,
        "score": [0.5] * 4 + [0.5, 0.4, 0.3, 0.2] + [0.5, 0.4, 0.33, 0.29],
    }
    found = sm.calibrate_scores(log, scores)
    assert found.labels == ("good/en",)
    assert found.left_out == {
        "same/en": "the score is the same in all runs",
        "few/de": "2 of the 3 runs of different mixtures, with loss and score, that a line needs",
    }
    with pytest.raises(sm.FitError, match=r"no task can be calibrated: same/en.*\n.*says nothing of mixtures"):
        sm.calibrate_scores(log, {"run": runs, "task": ["same_en"] * 4, "score": [0.5] * 4})


def test_scores_from_0_to_100_are_not_those_from_0_to_1():
    """Divided by 100 once more, scores give a line as good, and every prediction is a hundredth."""
    log = log_of([2.0, 2.5, 3.0, 3.3])
    table = {"run": [f"r{i}" for i in range(4)], "task": ["t_en"] * 4, "score": [50, 40, 33, 29.0]}
    plain = sm.calibrate_scores(log, table, percent=True)
    assert plain.calibrations[0].scores.tolist() == [0.29, 0.5]
    with pytest.raises(sm.DataError, match=r"score.*0.5 at most, as where 1 is the best"):
        sm.calibrate_scores(log, {**table, "score": [0.5, 0.4, 0.33, 0.29]}, percent=True)
    with pytest.raises(sm.DataError, match=r"chance.*0.25 at most, as where 1 is the best"):
        sm.calibrate_scores(log, {**table, "chance": [0.25] * 4}, percent=True)
    assert sm.calibrate_scores(log, {**table, "chance": [25] * 4}, percent=True).calibrations[0].chance == 0.25


def test_a_guess_better_than_every_run_is_told():
    data = noisy(rows=8)
    table = {"run": [f"r{i}" for i in range(8)], "task": ["h_en"] * 8, "score": data.score}
    with pytest.warns(sm.ShapleyMixWarning, match=r"h/en: no run scores more than .*, and a guess 0.9 \(chance\)"):
        sm.calibrate_scores(log_of(data.loss), table, chance=0.9)


def test_three_mixtures_tell_no_held_out_R2():
    """Lines through two points: one less a ratio of squares in the thousands is no number to print."""
    scores = {"run": ["r0", "r1", "r2"], "task": ["t_en"] * 3, "score": [0.5, 0.4, 0.399]}
    with pytest.warns(sm.ShapleyMixWarning, match="rests on 3 mixtures"):
        found = sm.calibrate_scores(log_of([2.0, 2.5, 2.51]), scores)
    assert np.isnan(found.calibrations[0].held_out_R2)
    assert "not told" in found.summary()
    assert sm.Downstream.from_document(found.to_document()).summary() == found.summary()


def test_a_saved_calibration_is_read_back_bit_for_bit(tmp_path):
    data = noisy(rows=8)
    found = sm.calibrate_scores(
        log_of(data.loss),
        {"run": [f"r{i}" for i in range(8)], "task": ["h_en"] * 8, "score": data.score},
        chance="0.25",
    )
    found.save(tmp_path / "d.json")
    assert sm.Downstream.load(tmp_path / "d.json").to_document() == found.to_document()


def test_a_score_that_rises_with_the_loss_is_told():
    loss = np.linspace(2, 3, 7)
    with pytest.warns(sm.ShapleyMixWarning, match="h/en scores higher where the loss is higher"):
        sm.calibrate_scores(
            log_of(loss), {"run": [f"r{i}" for i in range(7)], "task": ["h_en"] * 7, "score": 0.1 * loss}
        )
