"""Runs as MLflow, TensorBoard and Hugging Face keep them: what they write is what is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from shapleymix_io import read
from shapleymix_io.meaning import proposal

import shapleymix as sm
from shapleymix.errors import DataError

RUNS = {"mix-01": ((0.5, 0.5), (3.5, 3.25)), "mix-02": ((0.25, 0.75), (3.75, 2.5))}
LANGS = ("en", "de")
STEPS = (100, 200)


def losses(name: str, step: int) -> dict[str, float]:
    return {lang: loss + (200 - step) / 100 for lang, loss in zip(LANGS, RUNS[name][1], strict=True)}


def log_of(source: Any, map: Any = None, **options: Any) -> sm.RunLog:
    return sm.read_runs(read(source, map, **options), losses="optional")


def is_right(log: sm.RunLog) -> bool:
    """Every run at both steps, whatever else was logged between them."""
    found = {
        (run, D): (p, loss)
        for run, D, p, loss in zip(log.runs, log.D.tolist(), log.p.tolist(), log.loss.tolist(), strict=True)
    }
    wanted = {
        (name, step * 1e4): (list(p), list(losses(name, step).values()))
        for name, (p, _) in RUNS.items()
        for step in STEPS
    }
    return found == wanted and set(log.N.tolist()) == {97600.0}


MLFLOW: dict[str, Any] = {
    "map": {"N": "params.n_params", "p": "params.w_{lang}", "loss": "metrics.val/loss_{lang}", "D": "metrics.tokens"}
}


@pytest.fixture
def mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("mixtures")
    for name, (p, _) in RUNS.items():
        with mlflow.start_run(run_name=name):
            mlflow.log_params({"n_params": 97600, **{f"w_{lang}": one for lang, one in zip(LANGS, p, strict=True)}})
            for step in STEPS:
                mlflow.log_metric("train_loss", 3.0, step=step - 50)
                mlflow.log_metric("tokens", step * 10000, step=step)
                for lang, loss in losses(name, step).items():
                    mlflow.log_metric(f"val/loss_{lang}", loss + 1, step=step)
                    mlflow.log_metric(f"val/loss_{lang}", loss, step=step)  # again: the last one counts
    return uri


def test_an_mlflow_store(mlflow_store: str, tmp_path: Path) -> None:
    """By its address, by its file, and as the CSV that its own command writes."""
    assert is_right(log_of(mlflow_store, **MLFLOW))
    assert is_right(log_of(tmp_path / "mlflow.db", **MLFLOW))
    assert is_right(log_of(f"{mlflow_store}#mixtures", **MLFLOW))
    with pytest.raises(DataError):
        log_of(f"{mlflow_store}#other", **MLFLOW)
    import mlflow

    mlflow.set_experiment("another")
    with mlflow.start_run():
        mlflow.log_metric("x", 1.0)
    with pytest.raises(DataError):
        log_of(mlflow_store, **MLFLOW)
    assert is_right(log_of(f"{mlflow_store}#mixtures", **MLFLOW))
    words = ["experiments", "csv", "-x", "1", "-o", "runs.csv"]
    subprocess.run([sys.executable, "-m", "mlflow", *words], env={"MLFLOW_TRACKING_URI": mlflow_store}, check=True)
    log = log_of("runs.csv", map={**MLFLOW["map"], "run": "tags.mlflow.runName"}).align(LANGS, LANGS)
    assert dict(zip(log.runs, log.loss.tolist(), strict=True)) == {name: list(one) for name, (_, one) in RUNS.items()}


def test_a_folder_that_wandb_kept_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposed and read without the service, from the records that the package itself wrote."""
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name, (p, _) in RUNS.items():
        config = {"n_params": 97600, "mix": dict(zip(LANGS, p, strict=True))}
        run = wandb.init(project="mixtures", name=name, dir=str(tmp_path), config=config)
        for step in STEPS:
            run.log(
                {"tokens": step * 1e4} | {f"eval/{lang}/loss": one for lang, one in losses(name, step).items()}, step
            )
        run.finish()
    found = proposal([tmp_path / "wandb"]).entries
    assert {key: found[key] for key in ("N", "p", "loss")} == {
        "N": "config.n_params",
        "p": "config.mix.{lang}",
        "loss": "eval/{lang}/loss",
    }
    assert is_right(log_of(tmp_path / "wandb", found))


def test_tensorboard_events_of_both_writers(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.summary import Writer
    from torch.utils.tensorboard import SummaryWriter

    torch_style = SummaryWriter(str(tmp_path / "mix-01"))
    tensor_style = Writer(str(tmp_path / "mix-02"))
    for step in STEPS:
        for lang in LANGS:
            torch_style.add_scalar(f"eval/{lang}/loss", losses("mix-01", step)[lang], step)
            tensor_style.add_scalar(f"eval/{lang}/loss", losses("mix-02", step)[lang], step)
        torch_style.add_scalar("tokens", step * 1e4, step)
        tensor_style.add_scalar("tokens", step * 1e4, step)
    for writer in (torch_style, tensor_style):
        writer.close()
    design = {"run": list(RUNS), "N": [97600] * 2} | {
        f"p_{lang}": [p[place] for p, _ in RUNS.values()] for place, lang in enumerate(LANGS)
    }
    assert is_right(log_of(tmp_path, map="loss=eval/{lang}/loss", join=pl.DataFrame(design)))


def test_the_state_that_a_hugging_face_trainer_saves(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def data(count: int, seed: int) -> list[dict[str, Any]]:
        tokens = torch.randint(0, 30, (count, 16), generator=torch.Generator().manual_seed(seed))
        return [{"input_ids": row, "labels": row} for row in tokens]

    shape = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, num_attention_heads=2))
    how = transformers.TrainingArguments(
        output_dir=str(tmp_path / "mix-01"),
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_steps=4,
        per_device_train_batch_size=4,
        include_num_input_tokens_seen=True,
        report_to=[],
        use_cpu=True,
    )
    sets = {lang: data(8, place) for place, lang in enumerate(LANGS)}
    trainer = transformers.Trainer(model, how, train_dataset=data(64, 9), eval_dataset=sets)
    trainer.train()
    state = tmp_path / "mix-01/checkpoint-4/trainer_state.json"
    log = log_of(state, ["N=1M", "p.en=0.5", "p.de=0.5"])
    assert log.runs == ("mix-01", "mix-01")
    assert log.D.tolist() == [2 * 4 * 16, 4 * 4 * 16]
    last = [entry for entry in trainer.state.log_history if entry["step"] == 4]
    measured = [next(one[f"eval_{lang}_loss"] for one in last if f"eval_{lang}_loss" in one) for lang in LANGS]
    assert np.array_equal(log.loss[1], measured)
