"""lm-eval: the folders that it writes are read as scores of runs, with the numbers that it prints.

The golden files of `tests/golden/lm_eval` were made so, of runs r0 to r3, each with `--num_fewshot 2` and r0 without.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lm_eval")

from shapleymix_io.stores import read_scores

import shapleymix as sm

TASK = """task: cloze_{lang}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {lang}.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list:
  - metric: acc
  - metric: acc_norm
"""
GROUP = """group: cloze
task: [cloze_en, cloze_de]
aggregate_metric_list:
  - metric: acc
    weight_by_size: true
"""
LANGUAGES, RUNS, ITEMS = ("en", "de"), ("r0", "r1", "r2"), 12


def test_the_folder_that_lm_eval_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text(GROUP, encoding="utf-8")
    for lang in LANGUAGES:
        (tmp_path / f"cloze_{lang}.yaml").write_text(TASK.format(lang=lang), encoding="utf-8")
        rows = [{"q": f"{lang} {i}", "choices": ["a", "b", "c", "d"], "gold": i % 4} for i in range(ITEMS)]
        (tmp_path / f"{lang}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for seed, run in enumerate(RUNS):
        words = ["--model", "dummy", "--model_args", f"pretrained=checkpoints/{run}", "--tasks", "cloze"]
        words += ["--include_path", ".", "--output_path", "out", "--seed", str(seed)]
        subprocess.run([sys.executable, "-m", "lm_eval", *words], cwd=tmp_path, check=True, capture_output=True)
    columns = {"run": list(RUNS), "N": [1e8] * 3, "D": [1e9] * 3, "p_en": [0.2, 0.5, 0.7], "p_de": [0.8, 0.5, 0.3]}
    log = sm.read_runs(columns | {"loss_en": [3.0, 2.7, 2.5], "loss_de": [2.5, 2.6, 2.9]})
    table = read_scores(tmp_path / "out")
    found = sm.calibrate_scores(log, table.frame.select(table.columns))
    for path in (tmp_path / "out").rglob("results_*.json"):
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        for one in found.calibrations:
            assert np.isclose(one.scores, results[f"cloze_{one.target}"]["acc,none"]).any()
    assert {*found.labels, *found.left_out} == {"cloze/en", "cloze/de"}
