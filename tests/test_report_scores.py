"""`report` with the scores of tasks: beside losses, or in their place where a mixture was chosen by scores."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_tools import Run, runner
from report_tools import FIXTURES, LANGUAGES, RUNS, data_of, small_fit

import shapleymix as sm
from shapleymix.downstream.calibrations import formula
from shapleymix.mixing.mixtures import Mixture


@pytest.fixture(scope="module")
def fit() -> sm.Fit:
    return small_fit()


@pytest.fixture(scope="module")
def saved(fit: sm.Fit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "fit.json"
    fit.save(path)
    return path


@pytest.fixture(scope="module")
def mixture(fit: sm.Fit) -> Mixture:
    return sm.optimize(fit, 97_600, "8M", languages=LANGUAGES, caps={"ja": 0.2}, weights="en=2,de=1,fr=1,zh=1,ja=3")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def tasks() -> sm.Downstream:
    return sm.calibrate_scores(RUNS, FIXTURES / "multilingual5_scores.csv", chance=0.25, transform="sigmoid")


@pytest.fixture(scope="module")
def chosen_by_scores(fit, tasks) -> Mixture:
    return sm.optimize(sm.scored_fit(fit, tasks), 97_600, "1M", caps={"zh": 0.3})


def text_of(page: str) -> str:
    """What a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_a_mixture_chosen_by_scores_is_shown_and_not_moved(fit, tasks, chosen_by_scores):
    found = sm.report(fit, chosen_by_scores, downstream=tasks)
    assert found.notices == (
        "nothing to move: the sliders move losses only, and the mixture was chosen by scores of tasks",
    )
    assert "page-data" not in found.html
    page = text_of(found.html)
    assert f"Objective (mean score, {chosen_by_scores.weights_origin}): {1 - chosen_by_scores.objective:.4f}" in page
    assert "is better by more than" in page
    assert "nats that one run saves" not in page
    for one, (name, score) in zip(tasks.calibrations, chosen_by_scores.scores.items(), strict=True):
        low, high = (
            1 - ends[tasks.labels.index(name)] for ends in (chosen_by_scores.losses_high, chosen_by_scores.losses_low)
        )
        told = f"{name} {score:.3f} {low:.3f} .. {high:.3f} {formula(one)} {one.held_out:.4f} {one.held_out_R2:.3f}"
        assert told in page


def test_without_its_calibration_a_mixture_chosen_by_scores_says_what_is_missing(fit, chosen_by_scores):
    found = sm.report(fit, chosen_by_scores)
    assert any("(not downstream)" in notice for notice in found.notices)
    assert "Predicted scores, by task" in found.html


def test_tasks_beside_a_mixture_that_was_chosen_by_losses(fit, mixture, tasks):
    """The page still moves, and its scores are those of `predict`."""
    found = sm.report(fit, mixture, downstream=tasks)
    assert found.notices == ()
    assert data_of(found.html)
    predicted = sm.scored_fit(fit, tasks).predict(mixture)
    assert f"choice/en {predicted.scores[0, 0]:.3f} " in text_of(found.html)
    assert "What tasks score" in sm.report(fit, downstream=tasks).html


def test_another_calibration_than_that_of_the_mixture_is_refused(fit, chosen_by_scores, tasks):
    other = sm.calibrate_scores(RUNS, FIXTURES / "multilingual5_scores.csv", transform="exp")
    with pytest.raises(sm.UsageError, match="other scores than downstream"):
        sm.report(fit, chosen_by_scores, downstream=other)
    fewer = replace(tasks, calibrations=tasks.calibrations[:2])
    with pytest.raises(sm.UsageError, match="other tasks than those of downstream"):
        sm.report(fit, chosen_by_scores, downstream=fewer)


def test_tasks_at_the_terminal(run, saved, chosen_by_scores, tasks, tmp_path):
    chosen_by_scores.save(tmp_path / "mix.json")
    tasks.save(tmp_path / "tasks.json")
    words = ("report", saved, "--mixture", tmp_path / "mix.json", "-o", tmp_path / "page.html")
    assert run(*words, "--downstream", tmp_path / "tasks.json").code == 0
    assert "What tasks score" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "(without --downstream)" in run(*words, "--force").err
