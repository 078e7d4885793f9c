"""lm-eval's result files: golden ones that lm-eval 0.4.13 wrote (see `tests/ecosystem/lm_eval`), and damaged copies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm

GOLDEN = Path(__file__).parent / "golden/lm_eval"
RUNS = ("r0", "r1", "r2", "r3")


@pytest.fixture
def log() -> sm.RunLog:
    p = np.linspace(0.2, 0.8, 4)
    columns = {"run": list(RUNS), "N": [1e8] * 4, "D": [1e9] * 4, "p_en": p, "p_de": 1 - p}
    return sm.read_runs(columns | {"loss_en": [3.1, 2.9, 2.6, 2.5], "loss_de": [2.4, 2.6, 2.7, 3.0]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "out"))


def changed(folder: Path, change: Callable[[dict], object], run: str = "r1") -> Path:
    """The folder with the newest file of a run changed."""
    path = sorted((folder / f"checkpoints__{run}").glob("*.json"))[-1]
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_the_scores_are_those_of_the_files(log):
    found = sm.calibrate_scores(log, str(GOLDEN), shots=2)
    assert set(found.labels) <= {"cloze/en", "cloze/de"}
    (one,) = (one for one in found.calibrations if one.label == "cloze/en")
    told = []
    for run in RUNS:
        path = sorted((GOLDEN / f"checkpoints__{run}").glob("*.json"))[-1]
        told.append(json.loads(path.read_text(encoding="utf-8"))["results"]["cloze_en"]["acc,none"])
    assert one.scores.tolist() == [min(told), max(told)]
    assert one.rows == 4
    line = np.polyfit(one.shape.value(log.loss[:, 0]), told, 1) if not one.shape.bent else None
    np.testing.assert_allclose([one.a, one.b], line, rtol=1e-8)


def test_other_numbers_of_examples_are_not_mixed(log):
    with pytest.raises(sm.DataError, match=r"cloze/(de|en) was evaluated with 0 and 2 examples\n  hint: .*shots=5"):
        sm.calibrate_scores(log, str(GOLDEN))
    with pytest.raises(sm.DataError, match="nothing was evaluated with 5 examples"):
        sm.calibrate_scores(log, str(GOLDEN), shots=5)


def test_the_latest_of_two_evaluations_counts(log, folder):
    again = shutil.copy(next((folder / "checkpoints__r1").glob("*.json")), folder / "checkpoints__r1/results_9.json")
    content = json.loads(Path(again).read_text(encoding="utf-8"))
    content["date"] += 100
    content["results"]["cloze_en"]["acc,none"] = 0.987
    Path(again).write_text(json.dumps(content), encoding="utf-8")
    found = sm.calibrate_scores(log, str(folder), shots=2)
    assert found.calibration("cloze/en").scores[1] == 0.987
    assert "2 evaluations were done again later: the latest counts" in found.notices


def test_a_model_that_is_no_run(log, folder):
    shutil.move(folder / "checkpoints__r1", folder / "final")
    sorted((folder / "checkpoints__r0").glob("*.json"))[0].unlink()
    path = next((folder / "final").glob("*.json"))
    content = json.loads(path.read_text(encoding="utf-8")) | {"model_name": "ckpt/run-r1-step9"}
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(
        sm.DataError, match=r"names no run of the log: the model is 'ckpt/run-r1-step9'\n  hint: .*\{run\}"
    ):
        sm.calibrate_scores(log, str(folder), shots=2)
    with pytest.raises(sm.DataError, match="neither its model nor its path is like"):
        sm.calibrate_scores(log, str(folder), shots=2, run_pattern="ckpt/run-{run}-step*")
    shutil.rmtree(folder / "final")
    found = sm.calibrate_scores(log, str(folder), shots=2, run_pattern="checkpoints/{run}")
    assert found.calibration("cloze/en").rows == 3


def test_tokens_in_the_name_of_the_model(folder):
    sorted((folder / "checkpoints__r0").glob("*.json"))[0].unlink()
    for place, run in enumerate(RUNS):
        changed(folder, lambda content, n=place: content.update(model_name=f"ckpt/a-{(n + 1) * 250}M"), run)
    columns = {"run": ["a"] * 4, "N": [1e8] * 4, "D": [2.5e8, 5e8, 7.5e8, 1e9], "p_en": [0.5] * 4, "p_de": [0.5] * 4}
    log = sm.read_runs(columns | {"loss_en": [3.1, 2.9, 2.6, 2.5], "loss_de": [2.4, 2.6, 2.7, 3.0]})
    with pytest.raises(sm.FitError, match="1 of the 3 runs of different mixtures"):
        # All four checkpoints are found, and are one run.
        sm.calibrate_scores(log, str(folder), shots=2, run_pattern="ckpt/{run}-{D}")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda c: c["results"]["cloze_en"].update({"acc,none": 35.6}), r"acc,none = 35.6, expected a score between"),
        (lambda c: c["results"]["cloze_en"].update({"acc,strict": 0.5}), "has acc,none and acc,strict"),
        (lambda c: c["higher_is_better"]["cloze_en"].update(acc=False), "less acc is better"),
        (lambda c: c.pop("results"), "is no file of lm-eval's results"),
    ],
)
def test_faults_have_their_file(log, folder, change, match):
    with pytest.raises(sm.DataError, match=match) as caught:
        sm.calibrate_scores(log, str(changed(folder, change)), shots=2)
    assert "checkpoints__r1" in str(caught.value)


def test_what_is_left_out_is_told(log, folder):
    def more(content):
        content["results"]["mmlu"] = {"acc,none": 0.3}
        content["results"]["gsm8k_en"] = {"exact_match,strict-match": 0.3}
        content["n-shot"] |= {"mmlu": 2, "gsm8k_en": 2}
        content["config"]["limit"] = 4

    found = sm.calibrate_scores(log, str(changed(folder, more)), shots=2)
    told = "\n".join(found.notices)
    assert "left out for no known language: mmlu" in told
    assert "left out for want of the metric 'acc': gsm8k_en" in told
    assert "evaluated on a part of the task alone (limit): cloze/de, cloze/en" in told
    with pytest.raises(sm.DataError, match="no task has the metric 'f1'"):
        sm.calibrate_scores(log, str(folder), shots=2, metric="f1")


def test_a_folder_without_results(log, tmp_path):
    with pytest.raises(sm.DataError, match=r"holds no results_\*.json\n  hint: give the --output_path"):
        sm.calibrate_scores(log, str(tmp_path))
    (tmp_path / "results_1.json").write_text("{broken")
    with pytest.raises(sm.DataError, match="is not valid JSON"):
        sm.calibrate_scores(log, str(tmp_path))
