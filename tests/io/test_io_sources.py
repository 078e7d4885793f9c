"""Runs where other tools keep them; the files of `golden` were written by the tools themselves (see its README)."""

import shutil
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from shapleymix_io import read
from shapleymix_io.column_map import ColumnMap
from shapleymix_io.meaning import proposal
from shapleymix_io.reading import imported
from shapleymix_io.stores import _wandb_records, read_scores

import shapleymix as sm
from shapleymix.errors import DataError, ShapleyMixError, UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
LN2 = float(np.log(2))
DESIGN, STATE = GOLDEN / "design.csv", GOLDEN / "mix-07/checkpoint-4/trainer_state.json"
LOGS = [GOLDEN / "megatron/mix-01.log", GOLDEN / "megatron/mix-02.log"]


def log_of(source: Any, map: Any = None, **options: Any) -> sm.RunLog:
    return sm.read_runs(read(source, map, **options), losses="optional")  # some saw a few hundred tokens


def test_the_state_of_a_hugging_face_trainer(tmp_path: Path) -> None:
    log = log_of(STATE, join=DESIGN)
    assert (log.runs, log.D.tolist()) == (("mix-07", "mix-07"), [128, 256])
    assert log.loss == pytest.approx(3.4, abs=0.01)
    assert log_of(STATE, "D=step*64", join=DESIGN).D.tolist() == [128, 256]
    text = STATE.read_text()
    (tmp_path / "trainer_state.json").write_text(text.replace("eval_en_loss", "x").replace("eval_de_loss", "eval_loss"))
    assert log_of(tmp_path / "trainer_state.json", ["N=1M", "p.en=1"]).targets == ("all",)
    (tmp_path / "trainer_state.json").write_text(text.replace("_loss", "_x"))
    with pytest.raises(DataError, match="measured no loss"):
        read(tmp_path / "trainer_state.json")


def test_files_of_one_run_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    """Runs in `a/out` and `b/out` are a and b: what all paths share tells none of them."""
    for name in ("a", "b"):
        (tmp_path / name / "out").mkdir(parents=True)
        shutil.copy(STATE, tmp_path / name / "out")
    files = [tmp_path / name / "out/trainer_state.json" for name in ("a", "b")]
    assert log_of(files, ["N=1M", "p.en=0.5", "p.de=0.5"]).runs == ("a", "a", "b", "b")


def test_a_log_of_megatron() -> None:
    """Losses of the test set and those after training are left aside; tokens are samples times the length."""
    log = log_of(LOGS, ["languages.0=en", "languages.1=de"], join=DESIGN)
    assert log.runs == ("mix-01", "mix-01", "mix-02", "mix-02")
    assert log.D.tolist() == [10 * 8 * 2048, 160 * 2048] * 2
    assert log.loss.tolist() == [[3.75, 3.5], [3.5, 3.25], [3.75, 3.7], [3.7, 3.25]]
    with pytest.raises(DataError) as caught:
        read(LOGS, ["p.0=2", "p.1=0.5"], join=DESIGN)
    places = [(Path(str(one.location.file)).name, one.location.line) for one in caught.value.faults]
    assert places[:3:2] == [("mix-01.log", 10), ("mix-02.log", 10)]


LOSSES = {"tensorboard": "eval/loss/{lang}", "tensorboard_lines": "eval/loss/{lang}", "lightning": "val/loss_{lang}"}


@pytest.mark.parametrize("folder", LOSSES)
def test_folders_of_tensorboard_events(folder: str) -> None:
    """Steps at which no loss was measured say nothing; `add_scalars` makes a folder a line, which is no run."""
    pytest.importorskip("tensorboard")
    found = imported([GOLDEN / folder], ColumnMap.of(f"loss={LOSSES[folder]}"), [DESIGN])
    log = sm.read_runs(found.frame, losses="optional")
    assert set(log.runs) <= {"mix-01", "mix-02"}
    assert set(log.targets) >= {"en", "de"}
    if folder == "tensorboard":
        assert (log.D.tolist(), log.loss[:, 0].tolist()) == ([1e6, 2e6, 1e6, 2e6], [3.25, 3.0, 3.0, 2.75])
        assert any("4 of 8 rows" in notice for notice in found.notices)
        single = log_of(GOLDEN / "tensorboard/mix-02", "loss=eval/loss/{lang}", join=DESIGN)
        assert set(single.runs) == {"mix-02"}


def test_a_csv_that_mlflow_wrote() -> None:
    map = {"run": "tags.mlflow.runName", "D": "metrics.tokens", "loss": "metrics.val/loss_{lang}"}
    log = log_of(GOLDEN / "mlflow_experiments.csv", {**map, "N": "params.n_params", "p": "params.w_{lang}"})
    log = log.align(("en", "de"), ("en", "de"))
    assert (log.runs, log.p.tolist()) == (("mix-02", "mix-01"), [[0.25, 0.75], [0.5, 0.5]])
    assert log.loss.tolist() == [[3.75, 2.5], [3.5, 3.25]]


def test_ratios_and_metrics_of_olmix(tmp_path: Path) -> None:
    """They are joined by their ids: olmix itself takes them in the order of their rows."""
    (tmp_path / "ratios.csv").write_text("run,name,index,dclm:art,wiki\na,A,0,0.25,0.75\nb,B,1,1,0\nc,C,2,0,1\n")
    (tmp_path / "metrics.csv").write_text(",run,name,index,arc_bpb,mmlu_bpb\n7,b,B,0,1.25,1\n8,a,A,1,1.5,0.75\n")
    log = log_of(tmp_path, ["N=30M", "D=3B"])
    assert (log.sources, log.targets) == (("dclm/art", "wiki"), ("arc_bpb", "mmlu_bpb"))
    assert (log.runs, log.p.tolist()) == (("b", "a"), [[1, 0], [0.25, 0.75]])
    assert log.loss[0].tolist() == [1.25 * LN2, LN2], "nats a byte, since the names say bits a byte"
    map = ["N=30M", "D=3B", "loss={lang}_bpb", "p.art=dclm:art", "p.wiki=wiki", "ignore=name,index"]
    by_flags = log_of(tmp_path / "metrics.csv", map, join=tmp_path / "ratios.csv")
    assert (by_flags.sources, by_flags.targets) == (("art", "wiki"), ("arc", "mmlu"))
    (tmp_path / "metrics.csv").write_text("run_id,m\nb,1.25\na,x\n")
    with pytest.raises(DataError, match=r"metrics\.csv:3"):
        read(tmp_path, ["N=30M", "D=3B"])


SWARM = Path(__file__).parents[2] / "fixtures/olmix"
OWN = ["N=30M", "D=3B", "unit=bpb"]


def test_the_configuration_of_a_swarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the files themselves, without a map: means over families, priors, constraints and pull."""
    found = imported([SWARM], ColumnMap.of(None))
    config = yaml.safe_load((SWARM / "fit.yaml").read_text())
    raw, p = pl.read_csv(SWARM / "metrics.csv"), pl.read_csv(SWARM / "ratios.csv")
    named = {name: [one for one in tasks if "qasper" not in one] for name, tasks in config["eval"]["tasks"].items()}
    for name, tasks in named.items():
        np.testing.assert_allclose(found.frame[f"loss_{name}"] / LN2, raw[tasks].to_numpy().mean(axis=1), rtol=1e-12)
    assert found.frame["p_health"].to_list() == pytest.approx(p["health"].to_list(), abs=1e-9)
    swarm = found.swarm
    assert (swarm.tokens, swarm.prior) == (config["priors"]["token_counts"], config["priors"]["relative_sizes"])
    assert (swarm.kl, swarm.bytes_per_token) == (0.05, dict.fromkeys(named, 1.0))
    weights = [float(one.partition("=")[2]) for one in swarm.options["--weights"].split(",")]
    assert weights == pytest.approx([7 / 52, 19 / 52, 26 / 52], abs=1e-6)
    assert (swarm.target, swarm.options["--max-epochs"]) == (6e12, "4")
    monkeypatch.chdir(SWARM)
    assert read(["fit.yaml", "launch.yaml"]).equals(found.frame), "its paths are of the working folder"
    assert (set(found.frame["N"]), set(found.frame["D"]), proposal([SWARM]).entries) == ({30e6}, {3e9}, {})
    for name in ("ratios.csv", "metrics.csv"):
        shutil.copy(name, tmp_path)
    with pytest.raises(DataError, match=" ".join(f"--map {one}" for one in OWN)):  # nothing in the folder says these
        read(tmp_path)
    alone = {**config, "regression": {"aggregate_task_families": False}}
    (tmp_path / "fit.yaml").write_text(yaml.safe_dump(alone))
    given = imported([tmp_path / "fit.yaml"], ColumnMap.of(OWN)).swarm.options["--weights"].split(",")
    shared = {name: float(weight) for name, _, weight in (one.rpartition("=") for one in given)}
    assert shared.keys() == {one for names in named.values() for one in names}
    sums = [sum(shared[one] for one in names) for names in named.values()]
    assert (sums, shared["mmlu"]) == (pytest.approx(weights, abs=1e-5), pytest.approx(weights[2] / 4, abs=1e-6))
    (tmp_path / "fit.yaml").unlink()
    config["priors"] = {"token_counts": {"dclm:health": 7, "wiki": "1/2"}}
    config |= {"max_tokens": 4_000_000_000, "regression": None, "filtering": {"fixed_weight": {"dclm:art": 0.1}}}
    config["filtering"]["obj_weights"] = {"squad:rc::gen2mc": 2}
    (tmp_path / "generate.yaml").write_text("swarm: {seed: 1, variants: 4}\n")
    (tmp_path / "a.yml").write_text(yaml.safe_dump(config))
    launched = '{"config": {"training": {"proxy_model_id": "olmo3_190m"}}, "experiments": []}'
    (tmp_path / "20260204_143025-f4d79447.json").write_text(launched)
    own = imported([tmp_path], ColumnMap.of(None))
    assert (own.swarm.tokens, own.swarm.options["--fix"]) == ({"dclm/health": 7, "wiki": 0.5}, "dclm/art=0.1")
    asked = dict(one.rsplit("=", 1) for one in own.swarm.options["--weights"].split(","))
    assert asked.pop("squad:rc::gen2mc") == "2", "a metric's name stays as it is"
    assert set(asked.values()) == {"1"}, "what has no weight has olmix's own"
    assert (own.frame["N"][0], own.frame["D"][0], "loss_squad:rc::gen2mc" in own.frame.columns) == (190e6, 4e9, True)
    with pytest.raises(DataError, match=r"N = 190M .*launch\.yaml"):
        read([tmp_path, "launch.yaml"])
    shutil.copy(tmp_path / "a.yml", tmp_path / "b.yaml")
    with pytest.raises(DataError, match=r"a\.yml"):
        read(tmp_path, OWN)
    for metric in ("mmlu_acc", "gsm8k::exact_match", "drop:f1"):
        raw.rename({"mmlu": metric}).write_csv(tmp_path / "scores.csv")
        swarm = {"ratios": "ratios.csv", "metrics": str(tmp_path / "scores.csv")}
        (tmp_path / "b.yaml").write_text(yaml.safe_dump({"swarm": swarm, "eval": {"tasks": {"qa": [metric, "mmlu"]}}}))
        with pytest.raises(DataError, match=f"scores.*{metric}"):
            read(tmp_path / "b.yaml", OWN)
    with pytest.raises(DataError, match="swarm"):
        read(tmp_path / "generate.yaml", OWN)
    (tmp_path / "b.yaml").write_text("a: [")
    with pytest.raises(DataError, match=r"b\.yaml"):
        read(tmp_path, OWN)


def wandb_run(name: str, p: tuple[float, float]) -> SimpleNamespace:
    """A run as the API hands it out: two rows of one step, other numbers, texts, and a config within a config."""
    rows: list[dict[str, Any]] = [
        {"_step": 50, "train/loss": 3.0},
        {"_step": 99, "tokens": 1000000, "eval/loss/en": 4.5},
    ]
    rows += [{"_step": 99, "eval": {"loss/de": 1}, "eval/loss/de": 4.25, "text": "x", "_timestamp": 1.0}]
    config = {"n_params": 97600, "mix": {"en": p[0], "de": p[1]}, "_wandb": {}}
    return SimpleNamespace(id=f"id-{name}", name=name, config=config, scan_history=lambda: rows)


def test_runs_of_wandb_by_its_api(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [wandb_run("mix-01", (0.5, 0.5)), wandb_run("mix-02", (0.25, 0.75))]
    module: Any = ModuleType("wandb")
    module.Api = lambda: SimpleNamespace(runs=lambda path: runs if path == "team/mixtures" else 1 / 0)
    monkeypatch.setitem(sys.modules, "wandb", module)
    map = {"N": "config.n_params", "p": "config.mix.{lang}", "loss": "eval/loss/{lang}"}
    found = imported(["wandb:team/mixtures"], ColumnMap.of(map))
    log = sm.read_runs(found.frame, losses="optional")
    assert (log.runs, log.D.tolist()) == (("mix-01", "mix-02"), [1e6, 1e6])
    assert (log.loss.tolist(), log.p.tolist()) == ([[4.5, 4.25]] * 2, [[0.5, 0.5], [0.25, 0.75]])
    with pytest.raises(DataError, match="division by zero"):
        read("wandb:team/other", map)
    with pytest.raises(UsageError, match="ENTITY/PROJECT"):
        read("wandb:team", map)
    runs[1].name = "mix-01"
    assert log_of("wandb:team/mixtures", map).runs == ("id-mix-01", "id-mix-02")


def test_records_of_wandb_lie_in_blocks_whatever_their_length() -> None:
    """Written as the package writes them: parts end with a block of 32 KiB, whose last bytes may hold no head."""
    rng = np.random.default_rng(0)
    records = [rng.bytes(int(size)) for size in (1, 40, 32_740, 7, 70_000, 3, 32_768, 5, *rng.integers(1, 9000, 40))]
    data = b":W&B" + bytes(3)
    for record in records:
        left, kind = record, 0
        while left or not kind:
            room = 32768 - len(data) % 32768
            if room < 7:
                data += bytes(room)
                continue
            part, left = left[: room - 7], left[room - 7 :]
            kind = (1 if not left else 2) if not kind else (4 if not left else 3)
            data += struct.pack("<IHB", 0, len(part), kind) + part
    assert list(_wandb_records(data)) == records
    assert list(_wandb_records(data[:-1])) == records[:-1], "of a run that is still written, what is whole"


class FakeClient:
    """What is asked of MLflow's client: three runs of one experiment, one of them without a metric."""

    def __init__(self, tracking_uri: str) -> None:
        assert tracking_uri.startswith("sqlite:///")

    def search_experiments(self, max_results: int) -> list[Any]:
        return [SimpleNamespace(experiment_id=str(place), name=name) for place, name in enumerate(("mix", "other"))]

    def search_runs(self, experiments: list[str], max_results: int) -> list[Any]:
        found = []
        for name in "ab" if experiments == ["0"] else ():
            params, metrics = {"n": "1000000", "w_en": "1"}, {"tokens": 0, "val/en": 0}
            data = SimpleNamespace(params=params, metrics=metrics, tags={"mlflow.user": "ana"})
            info = SimpleNamespace(run_id=f"id-{name}", run_name=name)
            found.append(SimpleNamespace(info=info, data=data))
        return found

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        """Twice at a step: the last counts."""
        values = [(1, 2, 2e7), (1, 3, 3e7)] if key == "tokens" else [(1, 5, 3.0), (1, 4, 4.0)]
        return [SimpleNamespace(step=step, timestamp=time, value=value) for step, time, value in values]


def test_a_store_of_mlflow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracking: Any = ModuleType("mlflow.tracking")
    tracking.MlflowClient = FakeClient
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0".ljust(600, b"\0"))
    map = {"N": "params.n", "D": "metrics.tokens", "p": "params.w_{lang}", "loss": "metrics.val/{lang}"}
    for source in ("sqlite:///x.db", tmp_path / "mlflow.db", f"{tmp_path}/mlflow.db#mix"):
        log = log_of(source, map)
        assert (log.runs, log.D.tolist(), log.loss.tolist()) == (("a", "b"), [3e7] * 2, [[3.0]] * 2)
    with pytest.raises(DataError, match="no experiment 'none'"):
        read("sqlite:///x.db#none", map)


def test_a_package_that_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("wandb", "mlflow", "mlflow.tracking"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "mlflow.db").write_bytes(b"SQLite format 3\0".ljust(600, b"\0"))
    for source, extra in (("wandb:a/b", "wandb"), ("sqlite:///x.db", "mlflow"), (tmp_path / "mlflow.db", "mlflow")):
        with pytest.raises(UsageError, match=f"pip install '{extra}>="):
            read(source)


def test_what_holds_no_runs(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("run,N\n")
    (tmp_path / "odd.csv").write_bytes(b"\xff\xfe1")
    (tmp_path / "odd.parquet").write_bytes(b"PAR1 and no more")
    for source in (tmp_path, *tmp_path.glob("*.*"), tmp_path / "none.csv"):
        with pytest.raises(ShapleyMixError) as caught:
            read(source)
        assert str(caught.value.location.file).startswith(str(source)), "of a folder the file in it"
    for sources in ([DESIGN, STATE], []):
        with pytest.raises(DataError, match="trainer_state" if sources else "nothing"):
            read(sources)


def test_the_folder_of_lm_eval(tmp_path: Path) -> None:
    """Of two evaluations of r0 the later counts, which is like those of the others; means of groups are left out."""
    shutil.copytree(GOLDEN / "lm_eval", tmp_path / "out")
    rows = read_scores(tmp_path / "out").frame.sort("run", "task").rows(named=True)
    assert len({(row["run"], row["task"]) for row in rows}) == 4 * 2
    assert all(0 <= row["score"] <= 1 for row in rows)
    max((tmp_path / "out/checkpoints__r0").iterdir()).unlink()
    for metric in ("acc", "f1"):
        with pytest.raises(DataError):
            read_scores(tmp_path / "out", metric)
