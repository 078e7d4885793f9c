"""Runs where other tools keep them; the files of `golden` were written by the tools themselves (see its README)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError, ShapleyMixError, UsageError

GOLDEN = Path(__file__).with_name("golden")
DESIGN = GOLDEN / "design.csv"
LOSSES = {"mix-01": [[4.5, 4.25], [3.5, 3.25]], "mix-02": [[4.75, 3.5], [3.75, 2.5]]}
SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "Hugging Face": (GOLDEN / "mix-07/checkpoint-4/trainer_state.json", {}),
    "Megatron": (
        [GOLDEN / "megatron/mix-01.log", GOLDEN / "megatron/mix-02.log"],
        {"map": {"languages": {"0": "en", "1": "de"}}},
    ),
    "TensorBoard": (GOLDEN / "tensorboard", {"map": {"loss": "eval/loss/{lang}"}}),
    "MLflow's CSV": (
        GOLDEN / "mlflow_experiments.csv",
        {"map": {"run": "tags.mlflow.runName", "D": "metrics.tokens", "loss": "metrics.val/loss_{lang}"}},
    ),
}
LN2 = float(np.log(2))
UNITS = {
    "nats": (lambda loss: loss, {}),
    "bits": (lambda loss: loss * LN2, {"unit": "bits"}),
    "bpb": (lambda loss: loss * LN2 * [4.0, 3.0], {"unit": "bpb", "bytes_per_token": "en=4,de=3"}),
    "perplexity": (np.log, {"unit": "perplexity"}),
    "percent": (lambda loss: loss / 100, {"unit": "percent"}),
}


@pytest.mark.parametrize("ratio_unit", ["fraction", "percent", "weights"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_in_every_unit(source: str, unit: str, ratio_unit: str) -> None:
    """The losses of the tool, the ratios of a table beside it."""
    place, how = SOURCES[source]
    change, asked = UNITS[unit]
    design = pl.read_csv(DESIGN)
    factor = {"fraction": 1.0, "percent": 100.0, "weights": 7.0}[ratio_unit]
    scaled = design.with_columns(pl.col("p_en", "p_de") * factor)
    plain = sm.read_runs(place, join=DESIGN, **how)
    found = sm.read_runs(place, join=scaled, ratio_unit=ratio_unit, **how, **asked)
    assert plain.targets == found.targets == ("en", "de")
    assert np.allclose(found.loss, change(plain.loss))
    assert np.allclose(found.p, plain.p)
    assert (found.runs, found.D.tolist()) == (plain.runs, plain.D.tolist())


def test_the_state_of_a_hugging_face_trainer(tmp_path: Path) -> None:
    place, _ = SOURCES["Hugging Face"]
    log = sm.read_runs(place, join=DESIGN)
    assert log.runs == ("mix-07", "mix-07")
    assert log.D.tolist() == [128, 256]
    assert log.loss == pytest.approx(3.4, abs=0.01)
    assert [Path(one.file).name for one in log.files] == ["trainer_state.json", "design.csv"]
    by_step = sm.read_runs(place, join=DESIGN, map={"tokens_per_step": 64})
    assert by_step.D.tolist() == [128, 256]
    text = place.read_text()
    (tmp_path / "trainer_state.json").write_text(text.replace("eval_en_loss", "x").replace("eval_de_loss", "eval_loss"))
    assert sm.read_runs(tmp_path / "trainer_state.json", map="N=1M").targets == ("loss",)
    (tmp_path / "trainer_state.json").write_text(text.replace("_loss", "_x"))
    with pytest.raises(DataError, match="measured no loss"):
        sm.read_runs(tmp_path / "trainer_state.json")


def test_files_of_one_run_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    """Two runs in `a/out` and `b/out` would both be called `out`, and get one row of the design."""
    for name in ("a", "b"):
        (tmp_path / name / "out").mkdir(parents=True)
        shutil.copy(SOURCES["Hugging Face"][0], tmp_path / name / "out")
    files = [tmp_path / name / "out/trainer_state.json" for name in ("a", "b")]
    log = sm.read_runs(files, map=["N=1M", "p.en=0.5", "p.de=0.5"])
    assert len(set(log.runs)) == 2
    assert all(f"/{name}/" in f"/{run}/" for run, name in zip(log.runs, "aabb", strict=True))


def test_a_log_of_megatron() -> None:
    """Losses of the test set and those after training are left aside; tokens are samples times the length."""
    place, how = SOURCES["Megatron"]
    log = sm.read_runs(place, join=DESIGN, **how)
    assert log.runs == ("mix-01", "mix-01", "mix-02", "mix-02")
    assert log.D.tolist() == [10 * 8 * 2048, 160 * 2048] * 2
    assert log.loss.tolist() == [[3.75, 3.5], [3.5, 3.25], [3.75, 3.7], [3.7, 3.25]]
    with pytest.raises(DataError, match=r"mix-01.log:10 \[validation-0: lm loss\]: loss_0 = 3.75, expected at most"):
        sm.read_runs(place[0], map={"N": 1e6, "p": {"0": 0.5, "1": 0.5}}, unit="bpb", bytes_per_token="0=1000,1=4")
    with pytest.raises(UsageError, match="a log of Megatron"):
        sm.read_runs(place[0], sep=";")


def test_folders_of_tensorboard_events() -> None:
    log = sm.read_runs(GOLDEN / "tensorboard", join=DESIGN, map="loss=eval/loss/{lang}")
    assert log.runs == ("mix-01", "mix-01", "mix-02", "mix-02")
    assert log.D.tolist() == [1e6, 2e6, 1e6, 2e6]
    assert log.loss[:, 0].tolist() == [3.25, 3.0, 3.0, 2.75]
    assert any("left out 4 rows without a loss" in notice for notice in log.notices)
    single = sm.read_runs(GOLDEN / "tensorboard/mix-02", join=DESIGN, map="loss=eval/loss/{lang}")
    assert set(single.runs) == {"mix-02"}


def test_a_csv_that_mlflow_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    place, how = SOURCES["MLflow's CSV"]
    full = {"map": {**how["map"], "N": "params.n_params", "p": "params.w_{lang}"}}
    log = sm.read_runs(place, **full).aligned(("en", "de"))
    assert log.runs == ("mix-02", "mix-01")
    assert log.p.tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert log.loss.tolist() == [[3.75, 2.5], [3.5, 3.25]]


@pytest.fixture
def swarm(tmp_path: Path) -> Path:
    """A pair of tables as olmix reads them."""
    (tmp_path / "ratios.csv").write_text("run,name,index,dclm:art,wiki\na,A,0,0.25,0.75\nb,B,1,1,0\nc,C,2,0,1\n")
    (tmp_path / "metrics.csv").write_text("run,name,index,arc_bpb,mmlu_bpb\nb,B,0,1.25,1\na,A,1,1.5,0.75\n")
    return tmp_path


def test_ratios_and_metrics_of_olmix(swarm: Path) -> None:
    """They are joined by their ids: olmix itself takes them in the order of their rows."""
    known: dict[str, Any] = {"unit": "bpb", "bytes_per_token": 4}
    log = sm.read_runs(swarm, map=["N=30M", "D=3B"], **known)
    assert (log.sources, log.targets) == (("dclm:art", "wiki"), ("arc_bpb", "mmlu_bpb"))
    assert log.runs == ("b", "a")
    assert log.p.tolist() == [[1, 0], [0.25, 0.75]]
    assert np.allclose(log.loss, np.array([[1.25, 1], [1.5, 0.75]]) * 4 * LN2)
    assert any("1 runs have no row" in notice and notice.endswith("c") for notice in log.notices)
    pair = ["N=30M", "D=3B", "p=ratios:{lang}", "loss=metrics:{lang}_bpb", "ignore=name,index,ratios:name,ratios:index"]
    by_flags = sm.read_runs(swarm / "metrics.csv", join=swarm / "ratios.csv", map=pair, **known)
    assert by_flags.targets == ("arc", "mmlu")
    (swarm / "metrics.csv").write_text("run_id,m\nb,1.25\na,x\n")
    with pytest.raises(DataError, match=r"metrics.csv:3 \[m\]: loss_m is not a number: 'x'"):
        sm.read_runs(swarm, map=["N=30M", "D=3B"])


class FakeWandb(ModuleType):
    """What is asked of the package: `Api().runs(path)`."""

    def __init__(self, runs: list[Any]) -> None:
        super().__init__("wandb")
        self.Api = lambda: SimpleNamespace(runs=lambda path: runs if path == "team/mixtures" else 1 / 0)


def wandb_run(name: str, p: tuple[float, float], state: str = "finished") -> SimpleNamespace:
    rows = [{"_step": 50, "train/loss": 3.0}, {"_step": 99, "tokens": 1000000, "eval/loss/en": LOSSES[name][0][0]}]
    rows += [{"_step": 99, "eval": {"loss/de": 1}, "eval/loss/de": LOSSES[name][0][1], "text": "x", "_timestamp": 1.0}]
    config = {"n_params": 97600, "mix": {"en": p[0], "de": p[1]}, "_wandb": {}}
    return SimpleNamespace(id=f"id-{name}", name=name, state=state, config=config, scan_history=lambda: rows)


WANDB: dict[str, Any] = {"map": {"N": "config.n_params", "p": "config.mix.{lang}", "loss": "eval/loss/{lang}"}}


def test_runs_of_wandb_by_its_api(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [wandb_run("mix-01", (0.5, 0.5)), wandb_run("mix-02", (0.25, 0.75), "crashed")]
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(runs))
    log = sm.read_runs("wandb:team/mixtures", **WANDB)
    assert log.runs == ("mix-01", "mix-02")
    assert log.loss.tolist() == [LOSSES["mix-01"][0], LOSSES["mix-02"][0]]
    assert log.p.tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert any("mix-02 (crashed)" in notice for notice in log.notices)
    with pytest.raises(DataError, match="does not hand it out: division by zero"):
        sm.read_runs("wandb:team/other", **WANDB)
    with pytest.raises(UsageError, match="names no project"):
        sm.read_runs("wandb:team", **WANDB)
    runs[1].name = "mix-01"
    assert sm.read_runs("wandb:team/mixtures", **WANDB).runs == ("id-mix-01", "id-mix-02")


def test_a_package_that_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("wandb", "mlflow", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    for source, extra in (("wandb:a/b", "wandb"), ("sqlite:///x.db", "mlflow"), ("http://127.0.0.1:1", "mlflow")):
        with pytest.raises(UsageError, match=f"pip install '{extra}>="):
            sm.read_runs(source)
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0".ljust(600, b"\0"))
    with pytest.raises(UsageError, match="mlflow"):
        sm.read_runs(tmp_path / "mlflow.db")


def test_what_holds_no_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder that holds no runs"):
        sm.read_runs(tmp_path)
    (tmp_path / "run-x.wandb").write_bytes(b"no such thing")
    with pytest.raises(ShapleyMixError):
        sm.read_runs(tmp_path)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("tensorboard", "TensorBoard's events"),
        ("megatron/mix-01.log", "a log of Megatron"),
        ("mix-07/checkpoint-4/trainer_state.json", "the state of a Hugging Face trainer"),
        ("mlflow_experiments.csv", "an export of MLflow"),
    ],
)
def test_what_a_source_holds_is_shown(source: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    run: Run = runner(capsys)
    found = run("import", GOLDEN / source, "--show")
    assert found.code == 0
    assert told in " ".join(found.out.split())
    ids = ("--map", "run=tags.mlflow.runName") if "mlflow" in source else ()
    log = run("import", GOLDEN / source, "--join", DESIGN, *ids, "--show", "--json").document
    assert log["missing"] == []
