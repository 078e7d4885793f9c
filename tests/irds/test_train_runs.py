"""Whole runs on the toy corpus, in this process: what they write, signals, and folders that others use."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.accounts import ledger  # noqa: E402
from shapleymix_irds.train.app import main  # noqa: E402
from shapleymix_irds.train.loop import Trainer  # noqa: E402
from shapleymix_irds.train.saving.checkpoint import Checkpoints  # noqa: E402

from shapleymix.tables.run_reading import read_runs  # noqa: E402
from shapleymix.tables.transfer_reading import read_transfer  # noqa: E402
from tests.irds.training import QUICK, STEPS, results, sign, train  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(out) == 0
    return out


def test_a_run_writes_rows_that_the_core_reads(whole: Path) -> None:
    log = read_runs(whole / "runs.csv")
    step = 7 * 32
    assert log.D.tolist() == [0, 4 * step, STEPS * step]
    assert (log.sources, log.targets) == (("a", "b", "c"), ("a", "b", "c"))
    assert log.N.tolist() == [4 * 16**2 + 3 * 16 * 24 + 2 * 16 + 16] * 3
    assert np.allclose(log.p[1:], 1 / 3)
    assert np.allclose(log.loss[0], math.log(256), atol=0.05)
    assert (np.diff(log.loss, axis=0) < 0).all()


def test_a_run_writes_a_matrix_that_the_core_reads(whole: Path) -> None:
    matrix, raw = (read_transfer(whole / name) for name in ("sv.csv", "sv_raw.csv"))
    assert matrix.sources == matrix.targets == ("a", "b", "c")
    assert matrix.sv is not None
    assert raw.sv is not None
    scale = matrix.sv / raw.sv
    assert np.allclose(scale, scale[:1], rtol=1e-6)
    log = read_runs(whole / "runs.csv")
    assert np.allclose(matrix.sv.sum(axis=0), log.loss[0] - log.loss[-1], rtol=0.1)  # val against test documents


def test_metrics_and_summary_tell_what_was_trained_on(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert all(math.isfinite(loss) for line in lines for loss in line["loss"].values())
    trained = json.loads((whole / "summary.json").read_text())["languages"]
    assert sum(each["tokens_trained"] for each in trained.values()) == STEPS * 7 * 32
    assert max(abs(each["share"] - 1 / 3) for each in trained.values()) < 1 / (7 * STEPS)


def test_the_command_again_changes_nothing(whole: Path) -> None:
    before = results(whole)
    assert train(whole) == 0
    assert results(whole) == before


def test_measuring_does_not_change_the_run(whole: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "plain", "--no-irds") == 0
    left, right = (read_runs(out / "runs.csv") for out in (whole, tmp_path / "plain"))
    assert np.array_equal(left.loss, right.loss)
    assert not (tmp_path / "plain" / "sv.csv").exists()


def test_accumulation_gives_the_same_run(whole: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "micro", "--micro-batch", "3") == 0
    left, right = (read_runs(out / "runs.csv") for out in (whole, tmp_path / "micro"))
    assert np.allclose(left.loss, right.loss, rtol=1e-4)
    assert (tmp_path / "micro" / "sv.csv").exists()


FRESH = ["--irds-fresh", "--batch", "12"]


@pytest.mark.parametrize(
    "more",
    [
        ["--recompute"],
        ["--precision", "bf16"],
        ["--irds-order", "2"],
        [*FRESH, "--irds-engine", "exact"],
        [*FRESH, "--irds-engine", "sketch"],
        [*FRESH, "--irds-engine", "sketch", "--micro-batch", "5"],
    ],
    ids=" ".join,
)
def test_options_of_training_work_with_irds(more: list[str], tmp_path: Path) -> None:
    assert train(tmp_path / "run", *more) == 0
    assert (tmp_path / "run" / "sv.csv").exists()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(loss) for line in lines for loss in line["loss"].values())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_checkpoints_and_the_command_again_ends_the_same(
    signum: signal.Signals, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Trainer.train_step

    def interrupted(self: Trainer) -> None:
        if self.step == 5:
            os.kill(os.getpid(), signum)
        plain(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_step", interrupted)
        assert train(tmp_path / "run") == 128 + signum
    assert (tmp_path / "run" / "checkpoints" / "step-000000006").is_dir()
    assert train(tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


@pytest.mark.parametrize("step", [0, 3, 8, STEPS])
def test_a_failure_while_a_checkpoint_is_written_costs_only_that_one(
    step: int, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    replace = os.replace

    def full(source: Any, goal: Any) -> None:
        if str(goal).endswith(f"step-{step:09d}"):
            raise OSError(28, "No space left on device")
        replace(source, goal)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert train(tmp_path / "run", "--checkpoint-every", str(step or 4)) == 2
    assert "No space left on device" in capfd.readouterr().err
    assert train(tmp_path / "run", "--checkpoint-every", str(step or 4)) == 0
    assert results(tmp_path / "run") == results(whole)


def test_other_settings_or_another_corpus_do_not_continue_a_run(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(whole, copy)
    assert train(copy, "--lr", "1e-3") == 2
    assert "lr was 0.006, is 0.001" in capfd.readouterr().err
    assert train(copy, "--no-resume") == 2
    assert "holds a run" in capfd.readouterr().err
    meta = copy / "checkpoints" / f"step-{STEPS:09d}" / "run.json"
    meta.write_text(meta.read_text().replace('"corpus": "', '"corpus": "x'))
    sign(meta.parent)
    assert train(copy) == 2
    assert "another corpus" in capfd.readouterr().err
    shutil.rmtree(copy / "checkpoints")
    assert train(copy) == 2
    found = "runs.csv, sv.csv, sv_raw.csv, summary.json, metrics.jsonl, sv.csv.json, sv_raw.csv.json, evaluations-0"
    assert f"error: {copy}: holds {found}" in capfd.readouterr().err
    assert train(copy, "--force") == 0
    assert results(copy) == results(whole)


def test_another_mixture_in_the_same_file_does_not_continue_a_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, more = tmp_path / "mix.json", ["--mixture", str(tmp_path / "mix.json"), "--no-irds"]
    file.write_text('{"a": 0.5, "b": 0.25, "c": 0.25}')
    assert train(tmp_path / "run", *more) == 0
    assert train(tmp_path / "run", "--no-irds", "--mixture", "c=.25,a=.5,b=.25") == 0
    before = results(tmp_path / "run")
    file.write_text('{"a": 0.25, "b": 0.25, "c": 0.5}')
    capfd.readouterr()
    assert train(tmp_path / "run", *more) == 2
    assert "mixture was 'a=0.5,b=0.25,c=0.25', is 'a=0.25,b=0.25,c=0.5'" in capfd.readouterr().err
    assert results(tmp_path / "run") == before
    assert train(tmp_path / "other", *more) == 0
    assert read_runs(tmp_path / "other" / "runs.csv").runs[-1] != read_runs(tmp_path / "run" / "runs.csv").runs[-1]


def test_force_removes_what_the_old_run_wrote_and_nothing_else(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(whole, copy)
    (copy / "checkpoints" / ".step-mine").mkdir()
    names = (
        "notes.txt",
        "sv_mine.csv",
        "evaluations-mine.parquet",
        "checkpoints/step-mine",
        "checkpoints/.step-mine/a",
    )
    kept = {copy / name: b"mine" for name in names}
    for path, content in kept.items():
        path.write_bytes(content)
    before = results(copy)
    assert train(copy, "--force", "--vocab", "9") == 2
    assert results(copy) == before
    assert len(list((copy / "checkpoints").glob("step-0*"))) == 2
    assert train(copy, "--force", "--languages", "a,b", "--no-irds") == 0
    assert f"wrote runs.csv, summary.json, metrics.jsonl in {copy}" in capfd.readouterr().err.splitlines()
    assert {path.name for path in copy.iterdir()} == {
        *(".lock", "checkpoints", "metrics.jsonl", "runs.csv", "summary.json"),
        *("notes.txt", "sv_mine.csv", "evaluations-mine.parquet"),
    }
    assert all(path.read_bytes() == content for path, content in kept.items())
    shutil.rmtree(copy)
    shutil.copytree(whole, copy)
    assert train(copy, "--force", "--languages", "a,b") == 0
    assert "wrote runs.csv, sv.csv, sv_raw.csv, summary.json, metrics.jsonl" in capfd.readouterr().err


OTHERS = ("sv.csv", "summary.json", "metrics.jsonl", "sv_raw.csv.json", "evaluations-000000001.parquet")


@pytest.mark.parametrize("name", OTHERS)
def test_files_that_no_run_has_written_are_kept_without_force(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text("precious")
    (tmp_path / "runs.csv").write_text("")
    assert train(tmp_path) == 2
    said = capfd.readouterr().err
    assert f"error: {tmp_path}: holds {name}, of no run to continue\n  hint: choose another --out, or overwrite" in said
    assert (tmp_path / name).read_text() == "precious"
    assert not (tmp_path / "checkpoints").exists()


def test_a_folder_that_another_process_trains_in_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with (out / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for more in ([], ["--force"]):
            assert train(out, "--no-irds", *more) == 2
            assert f"{out}: another process trains in this folder" in capfd.readouterr().err
        assert [path.name for path in out.iterdir()] == [".lock"]

        def unknown(*_: Any) -> None:
            raise OSError(38, "Function not implemented")

        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", unknown)
            assert train(out, "--no-irds") == 0
    assert train(out, "--no-irds") == 0


def test_a_rescaled_mixture_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--mixture", "a=.333,b=.333,c=.333", "--no-irds") == 0
    told = "warning: the mixture sums to 0.999, expected 1: rescaled to a=0.3333,b=0.3333,c=0.3333"
    assert told in capfd.readouterr().err.splitlines()


def test_the_largest_seed_trains(tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--seed", str(2**63 - 1)) == 0


def test_only_the_last_checkpoints_are_kept(whole: Path) -> None:
    class Alone(NamedTuple):
        main: bool = True

    assert Checkpoints(whole, Alone(), 2).steps() == [8, STEPS]  # type: ignore[arg-type]


def test_more_overlap_gives_more_transfer_in_the_matrix(tmp_path: Path) -> None:
    sizes = "--layers 2 --hidden 32 --ffn 80 --heads 4 --tokens 120k --toy-size 100k --batch 16 --seq 64"
    found = []
    for overlap in ("0.2", "0.9"):
        more = f"{sizes} --irds-every 2 --irds-pool 16 --toy-overlap {overlap}".split()
        assert train(tmp_path / overlap, *more) == 0
        found.append(read_transfer(tmp_path / overlap / "sv.csv").nsv)
    assert found[1][0, 1] > found[0][0, 1]
    assert found[1][1, 0] > found[0][1, 0]
    assert found[1][0, 1] > found[1][0, 2]


def test_coalitions_log_every_target_and_transfer_follows_overlap(tmp_path: Path) -> None:
    losses = {}
    for overlap in ("0.2", "0.9"):
        more = f"--toy-overlap {overlap} --mixture a=1 --no-irds --layers 2 --hidden 32"
        sizes = "--ffn 80 --heads 4 --tokens 120k --toy-size 100k --batch 16 --seq 64 --test-windows 32"
        out = tmp_path / overlap
        assert main([*QUICK, *more.split(), *sizes.split(), "--out", str(out)]) == 0
        losses[overlap] = read_runs(out / "runs.csv").select([-1]).loss[0]
    assert losses["0.9"][1] - losses["0.9"][0] < 0.5 * (losses["0.2"][1] - losses["0.2"][0])
    assert losses["0.9"][2] > losses["0.9"][1] > losses["0.9"][0]


def test_a_language_that_was_not_learned_costs_only_the_calibrated_matrix(
    whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = ledger.Losses.record

    def unlearned(self: ledger.Losses, losses: dict[str, float]) -> None:
        measured(self, losses | {"b": 4.0 + 0.5 * bool(self.start)})

    monkeypatch.setattr(ledger.Losses, "record", unlearned)
    out = tmp_path / "run"
    shutil.copytree(whole, out)
    for again in (["--force"], []):
        assert train(out, *again) == 1
        said = capfd.readouterr().err
        assert "the validation loss of 'b' did not fall, from 4.0000 to 4.5000\n  hint: sv_raw.csv holds" in said
        assert "'a'" not in said
        assert not (out / "sv.csv").exists()
        assert not (out / "sv.csv.json").exists()
        assert results(out) == {name: content for name, content in results(whole).items() if name == "runs.csv"} | {
            "sv_raw.csv": (out / "sv_raw.csv").read_bytes()
        }
        assert json.loads((out / "summary.json").read_text())["languages"]
