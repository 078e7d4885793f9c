"""Exported charts of W&B, and the lines of TensorBoard's `add_scalars`: metrics of one run in several places."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.tables.panels import is_panel

GOLDEN = Path(__file__).with_name("golden")
DESIGN = GOLDEN / "design.csv"
RUNS = {"mix-01": (3.5, 3.25), "mix - 02": (3.75, 2.5)}
HOW: dict[str, Any] = {
    "map": {"loss": "eval/loss/{lang}", "D": "Step", "tokens_per_step": "10k"},
    "join": {"run": list(RUNS), "N": [1e6, 1e6], "p_en": [0.5, 0.25], "p_de": [0.5, 0.75]},
}


def write_chart(path: Path, *langs: str, steps: tuple[int, ...] = (100, 200), x: str = "Step", more: float = 0) -> Path:
    """As W&B's page writes it: all quoted, empty where a run has no value; the second run begins at step 200."""
    names = [f"{run} - {metric}" for run in RUNS for metric in ("_step", *(f"eval/loss/{lang}" for lang in langs))]
    rows: list[list[object]] = []
    for step in steps:
        row: list[object] = [step]
        for place, losses in enumerate(RUNS.values()):
            values = [step, *(losses[("en", "de").index(lang)] - step / 1000 + more for lang in langs)]
            row += [one if step >= 200 or not place else "" for one in values for _ in range(3)]
        rows.append(row)
    with open(path, "w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream, quoting=csv.QUOTE_ALL)
        table.writerow([x, *(f"{name}{end}" for name in names for end in ("", "__MIN", "__MAX"))])
        table.writerows(rows)
    return path


def is_right(log: sm.RunLog) -> bool:
    wanted = [("mix-01", 1e6, [3.4, 3.15]), ("mix-01", 2e6, [3.3, 3.05]), ("mix - 02", 2e6, [3.55, 2.3])]
    found = zip(log.runs, log.D.tolist(), log.aligned(("en", "de"), ("en", "de")).loss.tolist(), strict=True)
    return [(run, D, pytest.approx(losses)) for run, D, losses in wanted] == list(found)


def test_charts_of_each_language_are_one_log(tmp_path: Path) -> None:
    """In either order, as one chart of both, and by a map file; every file counts."""
    en, de = (write_chart(tmp_path / f"{lang}.csv", lang) for lang in ("en", "de"))
    for charts in ([en, de], [de, en], [write_chart(tmp_path / "both.csv", "en", "de")], [en, de, en]):
        assert is_right(sm.read_runs(charts, **HOW))
    assert [one.file for one in sm.read_runs([en, de], **HOW).files[:2]] == [str(en), str(de)]
    sm.write_runs(sm.read_runs([en, de], **HOW), tmp_path / "log.csv")
    assert is_right(sm.read_runs(tmp_path / "log.csv"))


def test_charts_that_disagree(tmp_path: Path) -> None:
    """Of other steps, or of one metric with two values; a fault names its own file and line."""
    en, other = write_chart(tmp_path / "en.csv", "en"), write_chart(tmp_path / "other.csv", "en", more=1)
    with pytest.raises(DataError, match=r"other.csv:2 \[eval/loss/en\]: .* of one run and step"):
        sm.read_runs([en, other], **HOW)
    with pytest.raises(DataError, match=r"is a chart over 'tokens', .*en.csv is over 'Step'"):
        sm.read_runs([en, write_chart(tmp_path / "x.csv", "de", x="tokens")], **HOW)
    de = write_chart(tmp_path / "de.csv", "de")
    de.write_text(de.read_text().replace('"3.05"', '"x"'))
    with pytest.raises(DataError, match=r"de.csv:3 \[eval/loss/de\]: loss_de is not a number: 'x'"):
        sm.read_runs([en, de], **HOW)


def test_what_is_no_chart() -> None:
    assert not is_panel(["Step", "a - x"])
    assert not is_panel(["run", "N"])
    assert not is_panel(["Step", "a - x", "a - x__MIN", "a - x__MAX", "y"])
    assert not is_panel(["only"])
    assert is_panel(["Step", "a - x", "a - x__MIN", "a - x__MAX"])


def test_a_chart_is_told_with_the_command_that_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run: Run = runner(capsys)
    for lang in ("en", "de"):
        write_chart(Path(f"{lang}.csv"), lang)
    error = run("fit en.csv --json").document["error"]
    assert "a chart of Weights & Biases" in error["message"]
    assert "shapleymix import en.csv" in error["hint"]
    shown = run("import en.csv de.csv --show").out.strip().splitlines()[-1]
    assert shown.startswith(
        "shapleymix import en.csv de.csv --map 'D=Step' --map 'loss=eval/loss/{lang}' --map 'N=...'"
    )
    assert run("import en.csv de.csv --write-map charts.toml").code == 0
    filled = Path("charts.toml").read_text().replace('# D = "..."', 'D = "Step"').replace("# N =", "# was N =")
    Path("design.csv").write_text("run,N,p_en,p_de\nmix-01,1M,0.5,0.5\nmix - 02,1M,0.25,0.75\n")
    Path("charts.toml").write_text(f'{filled}join = "design.csv"\ntokens_per_step = "10k"\n')
    assert run("import charts.toml -o log.csv").code == 0
    assert is_right(sm.read_runs("log.csv"))


def test_lines_of_add_scalars_are_metrics_of_their_run() -> None:
    """They were runs of their own, called `mix-01/eval_loss_en`, which no design has."""
    for folder in (GOLDEN / "tensorboard_lines", GOLDEN / "tensorboard_lines/mix-01"):
        log = sm.read_runs(folder, join=DESIGN, map="loss=eval/loss/{lang}").aligned(("en", "de"), ("en", "de"))
        assert log.runs == ("mix-01", "mix-01")
        assert log.D.tolist() == [1e6, 2e6]
        assert log.loss.tolist() == [[3.25, 3.0], [3.0, 2.75]]


@pytest.mark.parametrize("source", ["tensorboard", "tensorboard_lines", "mix-07/checkpoint-4/trainer_state.json"])
def test_what_a_tool_keeps_is_told_without_a_map(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It gave "has no column 'N'" and the names of our columns."""
    error = runner(capsys)("fit", GOLDEN / source, "--json").document["error"]
    assert error["code"] == "other_layout"
    assert "--map 'loss=eval" in error["hint"]
