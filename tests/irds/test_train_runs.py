"""Whole runs on the toy corpus: what they write, what resumes them exactly, and what they refuse."""

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from shapleymix_irds.train import checkpoint  # noqa: E402
from shapleymix_irds.train.loop import Run  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.settings import ModelConfig  # noqa: E402

from shapleymix.tables.run_reading import read_runs  # noqa: E402
from shapleymix.tables.transfer import read_transfer  # noqa: E402
from tests.irds.training import STEPS, results, start, steps, train, tree, wait_for_step  # noqa: E402

LAST = f"step-{STEPS:09d}"
TOY = ("toy_a", "toy_b", "toy_c")
SHORT = "--toy-size 12k --val-share .2 --test-share .3 --tokens 20k".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(out) == 0
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


# -- what a run writes -----------------------------------------------------------------------------------------


def test_a_run_writes_rows_that_the_core_reads(whole: Path) -> None:
    log = read_runs(whole / "runs.csv")
    step = 7 * 32
    assert (log.D.tolist(), (log.sources, log.targets)) == ([0, 4 * step, STEPS * step], (TOY, TOY))
    assert log.N.tolist() == [4 * 16**2 + 3 * 16 * 24 + 2 * 16 + 16] * 3
    assert np.allclose(log.p[1:], 1 / 3)
    assert np.allclose(log.loss[0], math.log(256), atol=0.05)
    assert (np.diff(log.loss, axis=0) < 0).all()
    assert log.unique is None
    assert log.batch_tokens is not None
    assert log.batch_tokens.tolist() == [step] * 3


def test_a_run_writes_a_matrix_that_the_core_reads(whole: Path) -> None:
    matrix, raw = (read_transfer(whole / name) for name in ("sv.csv", "sv_raw.csv"))
    assert matrix.sources == matrix.targets == TOY
    scale = matrix.sv / raw.sv
    assert np.allclose(scale, scale[:1], rtol=1e-6)
    log = read_runs(whole / "runs.csv")
    assert np.allclose(matrix.sv.sum(axis=0), log.loss[0] - log.loss[-1], rtol=0.1)  # val against test documents
    text = read_transfer(whole / "sv_text.csv")
    assert text.sources == text.targets == TOY
    assert text.sv[0, 2] < 0 < matrix.sv[0, 2]  # that they share no word, and that one harms the other, is in the text


def test_metrics_and_summary_tell_what_was_trained_on(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert steps(whole) == list(range(1, STEPS + 1))
    assert all(math.isfinite(loss) for line in lines for loss in line["loss"].values())
    assert all(line["tokens_per_second"] > 0 for line in lines)
    trained = json.loads((whole / "summary.json").read_text())["languages"]
    assert sum(each["tokens_trained"] for each in trained.values()) == STEPS * 7 * 32
    assert max(abs(each["share"] - 1 / 3) for each in trained.values()) < 1 / (7 * STEPS)


def test_measuring_and_accumulating_do_not_change_the_run(whole: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "plain", "--no-irds") == 0
    assert train(tmp_path / "micro", "--micro-batch", "3") == 0
    logs = [read_runs(out / "runs.csv").loss for out in (whole, tmp_path / "plain", tmp_path / "micro")]
    assert np.array_equal(logs[0], logs[1])
    assert np.allclose(logs[0], logs[2], rtol=1e-4)
    assert set(results(tmp_path / "plain")) == {"runs.csv"}
    assert set(results(tmp_path / "micro")) == set(results(whole))


@pytest.mark.filterwarnings("ignore")  # torch itself uses what it deprecates while it compiles
@pytest.mark.parametrize(
    "more",
    [
        ["--compile", "--recompute", "--irds-every", "auto"], ["--precision", "bf16"],
        ["--irds-fresh", "--batch", "12", "--val-share", "0"], ["--irds-fresh", "--batch", "12", "--micro-batch", "5"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_options_of_training_work_with_irds(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # kernels: test_irds_models
    assert train(tmp_path / "run", *more) == 0
    matrix = read_transfer(tmp_path / "run" / "sv.csv")
    assert np.isfinite(matrix.sv).all()
    assert (np.diag(matrix.sv) > 0).all()


def test_coalitions_log_every_target_and_transfer_follows_overlap(tmp_path: Path) -> None:
    sizes = "--no-irds --layers 2 --hidden 32 --ffn 80 --heads 4 --tokens 80k --batch 16 --seq 64 --toy-overlap .6"
    assert train(tmp_path / "run", *sizes.split(), "--mixture", "toy_a=1") == 0
    log = read_runs(tmp_path / "run" / "runs.csv")
    assert log.loss[-1, 2] > log.loss[-1, 1] > log.loss[-1, 0]
    assert log.p[-1].tolist() == [1, 0, 0]


def test_text_that_comes_again_is_logged_with_its_unique_tokens(tmp_path: Path) -> None:
    assert train(tmp_path / "run", *SHORT, "--mixture", "toy_a=.8,toy_b=.1,toy_c=.1", "--no-irds") == 0
    log = read_runs(tmp_path / "run" / "runs.csv")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())["languages"]
    seen = [summary[name]["tokens_trained"] / summary[name]["epochs"] for name in log.sources]
    assert np.allclose(log.unique, seen)
    assert summary["toy_a"]["epochs"] > 1 > summary["toy_b"]["epochs"]
    assert train(tmp_path / "cut", *SHORT, "--unique-tokens", "toy_b=64", "--no-irds") == 0
    assert read_runs(tmp_path / "cut" / "runs.csv").unique[-1, 1] <= 64


def test_a_language_that_was_not_learned_costs_only_the_calibrated_matrix(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = ("--lr", "1e-30", "--mixture", "toy_a=.4,toy_b=.3,toy_c=.3")
    for _ in range(2):
        assert train(tmp_path / "run", *more) == 1
        assert "sv.csv" in capfd.readouterr().err
        assert set(results(tmp_path / "run")) == {"runs.csv", "sv_raw.csv"}


# -- the model that is left ------------------------------------------------------------------------------------


def test_transformers_loads_the_exported_model_with_its_logits(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    out, goal = tmp_path / "run", tmp_path / "model"
    more = ("--no-irds", "--layers", "2", "--export", str(goal))
    assert train(out, *more) == 0
    before = {path.name: path.read_bytes() for path in goal.iterdir()}
    assert train(out, *more) == 0
    assert {path.name: path.read_bytes() for path in goal.iterdir()} == before
    held = load_file(out / "checkpoints" / LAST / "state.safetensors")
    decoder = Decoder(ModelConfig(2, 16, 24, 2, 256))
    decoder.load_state_dict({name.removeprefix("model/"): v for name, v in held.items() if name.startswith("model/")})
    model, told = transformers.AutoModelForCausalLM.from_pretrained(goal, output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens = torch.randint(256, (3, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(model(tokens).logits, decoder(tokens), rtol=0, atol=1e-5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").write_text("mine")
    assert train(tmp_path / "unbegun", *more[:3], "--export", str(tmp_path / "other")) == 2
    assert not (tmp_path / "unbegun").exists()


def test_a_tokenizer_file_trains_and_goes_with_the_model(tmp_path: Path) -> None:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"</s>": 0, "ba": 1, "[UNK]": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "t.json"))
    more = ("--no-irds", "--tokenizer", str(tmp_path / "t.json"), "--toy-size", "200k")
    assert train(tmp_path / "run", *more, "--export", str(tmp_path / "model")) == 0
    assert json.loads((tmp_path / "model" / "config.json").read_text())["eos_token_id"] == 0
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "model")("ba ba")["input_ids"] == [1, 1]


# -- what is stopped goes on -----------------------------------------------------------------------------------


def test_the_command_again_changes_nothing(whole: Path) -> None:
    before = tree(whole)
    assert train(whole) == 0
    assert tree(whole) == before


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_checkpoints_and_the_command_again_ends_the_same(
    signum: signal.Signals, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Run._backward

    def interrupted(self: Run, pieces: Any) -> Any:
        if self.step == 5:
            os.kill(os.getpid(), signum)
        return plain(self, pieces)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_backward", interrupted)
        assert train(tmp_path / "run") == 128 + signum
    assert checkpoint.steps_in(tmp_path / "run") == [4, 6]
    assert train(tmp_path / "run") == 0
    assert results(tmp_path / "run") == results(whole)


def test_killed_at_random_moments_again_and_again(whole: Path, tmp_path: Path) -> None:
    out, draw = tmp_path / "run", np.random.default_rng(20261123)
    for step in (1, 7):
        run = start(out)
        wait_for_step(run, out, step)
        run.join(draw.uniform(0, 0.02))
        run.kill()
        run.join(200)
        assert run.exitcode == -signal.SIGKILL
    assert train(out) == 0
    assert tree(out) == tree(whole)


@pytest.mark.parametrize("step", [0, 8, STEPS])
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
        assert train(tmp_path / "run") == 2
    assert "No space left on device" in capfd.readouterr().err
    assert train(tmp_path / "run") == 0
    assert tree(tmp_path / "run") == tree(whole)


@pytest.mark.parametrize("name", ["state.safetensors", "run.json", "SHA256SUMS"])
def test_a_broken_checkpoint_is_named_and_the_one_before_it_ends_the_same(
    name: str, whole: Path, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    last = copy / "checkpoints" / LAST
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=last, check=False).returncode == 0
    data = bytearray((last / name).read_bytes())
    data[len(data) // 2] ^= 1
    (last / name).write_bytes(data)
    assert train(copy) == 1
    assert str(last) in capfd.readouterr().err
    shutil.rmtree(last)
    assert train(copy) == 0
    assert tree(copy) == tree(whole)


def test_only_the_last_checkpoints_are_kept(whole: Path) -> None:
    assert checkpoint.steps_in(whole) == [8, STEPS]


# -- what is refused -------------------------------------------------------------------------------------------


def test_other_settings_or_another_corpus_do_not_continue_a_run(
    whole: Path, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = tree(copy)
    for more, named in ((("--lr", "1e-3"), "lr was 0.006, is 0.001"), (("--toy-size", "90k"), "toy_size")):
        assert train(copy, *more) == 2
        assert named in capfd.readouterr().err
    assert tree(copy) == before
    shutil.rmtree(copy / "checkpoints")
    assert train(copy) == 2
    assert "runs.csv" in capfd.readouterr().err
    (copy / "notes.txt").write_text("mine")
    assert train(copy, "--force") == 0
    assert {name: data for name, data in tree(copy).items() if name != "notes.txt"} == tree(whole)
    assert (copy / "notes.txt").read_text() == "mine"


def test_another_mixture_in_the_same_file_does_not_continue_a_run(tmp_path: Path) -> None:
    file, more = tmp_path / "mix.json", ["--mixture", str(tmp_path / "mix.json"), "--no-irds"]
    file.write_text('{"toy_a": 0.5, "toy_b": 0.25, "toy_c": 0.25}')
    assert train(tmp_path / "run", *more) == 0
    assert train(tmp_path / "run", "--no-irds", "--mixture", "toy_c=.25,toy_a=.5,toy_b=.25") == 0
    assert np.allclose(read_runs(tmp_path / "run" / "runs.csv").p[-1], [0.5, 0.25, 0.25])
    file.write_text('{"toy_a": 0.25, "toy_b": 0.25, "toy_c": 0.5}')
    assert train(tmp_path / "run", *more) == 2


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--mixture", "toy_a=1"], 2), (["--mixture", "toy_a=.5,x=.5"], 2), (["--languages", "en,de"], 2),
        (["--corpus", ""], 2), ([*SHORT, "--irds-fresh"], 2), (["--vocab", "9"], 2),
        (["--lr", "1e9", "--clip", "1e30", "--warmup", "0", "--no-irds"], 1),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(
    more: list[str], code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", *more) == code
    assert capfd.readouterr().err.splitlines()[-2].startswith("error: ")
    assert set(results(tmp_path / "run")) <= {"runs.csv"}


def test_a_folder_that_another_process_trains_in_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with (out / ".lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert train(out, "--no-irds") == 2
        assert train(out, "--no-irds", "--force") == 2
        assert [path.name for path in out.iterdir()] == [".lock"]
    assert train(out, "--no-irds") == 0
