"""`shapleymix downstream`, and `optimize --downstream`, at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_tools import Run, runner

LOG, SCORES = "multilingual5_runs.csv", "multilingual5_scores.csv"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def fitted(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fit and calibrated tasks."""
    import shapleymix as sm

    folder = tmp_path_factory.mktemp("downstream")
    log = sm.read_runs(fixtures / LOG)
    game = sm.shapley_values(sm.read_runs(fixtures / "multilingual5_coalitions.csv"))
    sm.fit(log, law="shapley-tempered", transfer=game, min_own_tokens="20k", bootstrap=10, folds=4).save(
        folder / "fit.json"
    )
    sm.calibrate_scores(log, str(fixtures / SCORES), transform="exp").save(folder / "exp.json")
    return folder


def test_tasks_are_shown_with_held_out_errors_beside_those_in_the_sample(run: Run, fixtures: Path, tmp_path: Path):
    found = run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, "--chance", "0.25")
    assert found.code == 0
    assert "held-out error" in found.out
    assert "exp(-l)" in found.out
    assert "cloze/en: log l is not told from" in found.out
    assert "note: 48 of 76 runs of the log have no scores" in found.err
    document = run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, "--json").document
    assert document["kind"] == "downstream"
    first = document["calibrations"][0]
    assert {"a", "a_low", "R2", "held_out", "held_out_R2", "pearson", "p_value", "tried"} <= set(first)
    assert str(fixtures / SCORES) in document["provenance"]["inputs"]
    table = tmp_path / "d.csv"
    assert run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, "-o", table).code == 0
    assert table.read_text().startswith("task,target,transform,a,a_low,a_high,b,")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--transform", "cubic"), 2, "'cubic' is not one of"),
        (("--chance", "2"), 2, "expected 0 or more and below 1"),
        (("--shots", "5"), 2, "are for the folders that lm-eval writes"),
        (("--task-language", "cloze"), 2, "'cloze' names no task and its language"),
        (("--task-language", "cloze=fi"), 2, "'fi' is no target of the log"),
        (("--chance", "25"), 2, "it is a share of 1, where scores are from 0 to 100 as well: write 0.25"),
        (("--percent",), 1, "at most, as where 1 is the best"),
        (("--chance", "0.99"), 0, "and a guess 0.99 (--chance)"),
    ],
)
def test_wrong_questions(run: Run, fixtures: Path, words: tuple[str, ...], code: int, told: str):
    found = run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, *words)
    assert found.code == code
    assert told in found.err


def test_percent_is_refused_by_the_switch_that_was_typed(run: Run, fixtures: Path):
    found = run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, "--percent")
    assert f"{SCORES}:1 [score]" in found.err
    assert "hint: leave out --percent" in found.err


def test_what_reading_the_log_brought_up_is_told_once(run: Run, fixtures: Path):
    found = run("downstream", fixtures / LOG, "--scores", fixtures / SCORES, "--unit", "bits")
    notes = [line for line in found.err.splitlines() if line.startswith("note: ")]
    assert any("bits" in line for line in notes)
    assert len(notes) == len(set(notes))


def test_a_table_of_another_kind(run: Run, fixtures: Path):
    found = run("downstream", fixtures / LOG, "--scores", fixtures / LOG)
    assert found.code == 1
    assert "has no column 'task'" in found.err
    assert "run,task,target,score" in found.err


def test_a_mixture_for_scores(run: Run, fitted: Path, tmp_path: Path):
    words = ("optimize", fitted / "fit.json", "-N", "97600", "-D", "1M", "--downstream", fitted / "exp.json")
    found = run(*words, "--task-weights", "cloze=1", "--cap", "zh=0.3", "-o", tmp_path / "mix.json")
    assert found.code == 0
    assert "Objective (mean score, given): 0.4" in found.out
    assert "Predicted scores, by task" in found.out
    assert "score that one run gains" in found.out
    assert "nats" not in found.out
    assert "Certificate: no mixture within the bounds is better by more than" in found.out
    document = run(*words, "--json").document
    assert document["measure"] == "error"
    assert document["targets"] == ["choice/en", "choice/zh", "cloze/de", "cloze/en", "cloze/fr"]
    assert str(fitted / "exp.json") in document["provenance"]["inputs"]
    grid = run(*words, "--task-weights", "cloze=1", "-D", "1M,2M")
    assert grid.code == 0
    assert "mean score" in grid.out
    assert "nats" not in grid.out


def test_a_score_above_one_is_said_first_and_refused_under_strict(run: Run, fitted: Path, tmp_path: Path):
    """A line goes on above 1, and the optimum gains by what no task can score."""
    document = json.loads((fitted / "exp.json").read_text())
    steep = next(one for one in document["calibrations"] if one["task"] == "choice" and one["target"] == "zh")
    steep |= {"transform": "minus", "a": 0.6, "b": 3.6, "losses": [0.1, 9.0]}
    (tmp_path / "steep.json").write_text(json.dumps(document))
    words = ("optimize", fitted / "fit.json", "-N", "97600", "-D", "1.5M", "--downstream", tmp_path / "steep.json")
    found = run(*words, "--task-weights", "choice=1")
    assert found.code == 0, found.err
    assert found.out.startswith("The mixture was chosen by scores above 1, which are none, of choice/zh (")
    assert run(*words, "--task-weights", "choice=1", "--json").document["verdict"].startswith("the mixture was chosen")
    assert "scores above 1" not in run(*words, "--task-weights", "cloze=1").out
    asked = f"--mixture uniform -N 97600 -D 1.5M --downstream {tmp_path / 'steep.json'} --strict".split()
    refused = run("predict", fitted / "fit.json", *asked)
    assert (refused.code, "the line of choice/zh gives a score that is none" in refused.err) == (1, True), refused.err
    assert run("predict", fitted / "fit.json", *asked[:-1]).code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--weights", "en=1"), "--weights weighs losses, and --downstream asks for scores"),
        (("--task-weights", "close=1"), "'close', which is no task"),
        (("--task-weights", "cloze=0"), "no task counts"),
        (("--frontier", "cloze/en:rest"), "a trade-off curve is of losses, not of scores"),
        (("--objective", "worst", "--task-weights", "cloze=2,choice=1"), "every task counts alike, or not"),
        (("--method", "clipped"), "is for losses, not for scores"),
    ],
)
def test_what_scores_cannot_have(run: Run, fitted: Path, words: tuple[str, ...], told: str):
    found = run("optimize", fitted / "fit.json", "-N", "97600", "-D", "1M", "--downstream", fitted / "exp.json", *words)
    assert found.code in (1, 2)
    assert told in found.err
    assert "hint:" in found.err


def test_task_weights_alone_do_nothing(run: Run, fitted: Path):
    found = run("optimize", fitted / "fit.json", "-N", "97600", "-D", "1M", "--task-weights", "cloze=1")
    assert found.code == 2
    assert "--task-weights does nothing without --downstream" in found.err
    swapped = run("optimize", fitted / "exp.json", "-N", "97600", "-D", "1M", "--downstream", fitted / "fit.json")
    assert swapped.code == 1
    assert "holds a downstream, expected a fit" in swapped.err


BUDGET = ("-N", "97600", "-D", "1M")


def test_scores_of_given_mixtures(run: Run, fitted: Path, tmp_path: Path):
    words = ("predict", fitted / "fit.json", *BUDGET, "--downstream", fitted / "exp.json", "--mixture", "uniform")
    one = run(*words)
    assert one.code == 0
    assert one.out.splitlines()[1].split() == ["task", "score", "90%", "interval"]
    several = (*words, "--mixture", "most=en=0.6,zh=0.4", "--task-weights", "cloze=1")
    found = run(*several)
    assert "Predicted scores, by task, 90% intervals below" in found.out
    assert "gain: score gained; given" in found.out
    assert "nats" not in found.out
    assert "loss" not in found.out
    document = run(*several, "--json").document
    assert document["measure"] == "score"
    point, candidate = document["predictions"][0], document["comparisons"][0]["candidates"][0]
    assert all(point["low"][task] < point["score"][task] < point["high"][task] for task in point["score"])
    mean = sum(point["score"][f"cloze/{name}"] for name in ("de", "en", "fr")) / 3
    assert candidate["objective"] == pytest.approx(mean, rel=1e-12)
    assert candidate["objective_low"] < candidate["objective"] < candidate["objective_high"]
    assert str(fitted / "exp.json") in document["provenance"]["inputs"]


def test_scores_of_the_points_of_a_table(run: Run, fitted: Path, fixtures: Path, tmp_path: Path):
    goal = tmp_path / "scores.csv"
    words = ("predict", fitted / "fit.json", fixtures / LOG, "--downstream", fitted / "exp.json", "-o", goal)
    found = run(*words)
    assert found.code == 0
    assert "the loss lies outside of what" in found.err
    header = goal.read_text().splitlines()[0].split(",")
    assert [name for name in header if name.startswith("score_")][:2] == ["score_choice/en", "score_choice/zh"]
    assert run(*words, "--force", "--strict").code == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--task-weights", "cloze=1"), "--task-weights does nothing without a second --mixture"),
        (("--weights", "en=1"), "--weights weighs losses, and --downstream asks for scores"),
        (("--task-weights", "close=1", "--mixture", "en=1"), "'close', which is no task"),
    ],
)
def test_wrong_questions_about_scores(run: Run, fitted: Path, words: tuple[str, ...], told: str):
    found = run(
        "predict", fitted / "fit.json", *BUDGET, "--mixture", "uniform", "--downstream", fitted / "exp.json", *words
    )
    assert found.code == 2
    assert told in found.err
