"""Settings: flags, CONFIG.toml, what follows from them, and what is refused at the door."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shapleymix_irds.train.app import command, main
from shapleymix_irds.train.settings import TrainingSettings, fields, flag, read_toml

from shapleymix.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_is_a_flag_and_a_key_of_the_file(tmp_path: Path) -> None:
    options = {name for option in command().params for name in (*option.opts, *option.secondary_opts)}
    assert options == {"--config"} | {
        name
        for field in fields()
        for name in (flag(field.name), flag("no-" + field.name)[: len(flag(field.name)) + 3])
        if name == flag(field.name) or field.type == "bool"
    }
    (tmp_path / "c.toml").write_text(
        """languages = ["en", "de"]
mixture = { en = 0.75, de = 0.25 }
tokens = "1M"
[any-heading]
batch = 16
val-share = 1e-1
eval_untrained = true
lr = 1
"""
    )
    given = read_toml(str(tmp_path / "c.toml"))
    assert given == {
        "languages": "en,de", "mixture": "en=0.75,de=0.25", "tokens": "1M", "batch": 16, "val_share": 0.1,
        "eval_untrained": True, "lr": 1.0,
    }  # fmt: skip
    assert isinstance(given["lr"], float)


@pytest.mark.parametrize(
    "text",
    [
        "bath = 3", "batch = '3'", "batch = 3.5", "batch = true", "irds = 1", "lr = [1]", "batch = 3\n[run]\nbatch = 4",
        "batch =",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_toml(str(path))
    assert caught.value.location.file == str(path)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"batch": 0}, "--batch"), ({"lr": 0.0}, "--lr"), ({"lr": float("nan")}, "--lr"),
        ({"clip": float("inf")}, "--clip"), ({"warmup": 1.5}, "--warmup"), ({"seed": 2**63}, "--seed"),
        ({"parallel": "tp"}, "--parallel"), ({"irds_every": "0"}, "--irds-every"),
        ({"irds_every": "often"}, "--irds-every"), ({"val_share": 0.0}, "--val-share"),
        ({"val_share": 0.6, "test_share": 0.4}, "--val-share"), ({"test_share": 0.0}, "--test-share"),
        ({"tokens": "2000"}, "--tokens"), ({"tokens": "many"}, "many"), ({"eval_at": "100"}, "--eval-at"),
        ({"eval_at": "2M"}, "--eval-at"), ({"toy_size": "big"}, "big"), ({"model": "huge"}, "huge"),
        ({"hidden": 31}, "--hidden"),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        TrainingSettings(**given)
    assert named in str(caught.value)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        TrainingSettings(batch=0, clip=-1.0, device="tpu")
    assert len(caught.value.faults) == 3


def test_the_learning_rate_warms_up_and_falls_as_a_cosine() -> None:
    found = TrainingSettings(tokens="819200", lr=1.0, warmup=0.1, min_lr=0.2)
    rates = np.array([found.learning_rate(step) for step in range(found.steps)])
    assert found.steps == 200
    assert np.allclose(rates[:20], np.arange(1, 21) / 20)
    assert np.allclose(rates[20:], 0.2 + 0.4 * (1 + np.cos(np.pi * np.arange(180) / 180)))


def test_a_run_is_named_by_what_decides_its_results_and_its_text() -> None:
    def name(corpus: str = "x", **given: Any) -> str:
        return TrainingSettings(**given).resolved(("a", "b"), "a=.5,b=.5", corpus).run

    assert name() == name(out="elsewhere", keep=1, log_every=3, toy_languages=2)
    assert (len({name(), name(seed=1), name(corpus="y"), name(lr=1e-3)}), name(run="mine")) == (4, "mine")


def test_evaluations_are_at_the_nearest_steps_and_at_the_end() -> None:
    assert TrainingSettings(tokens="40k", eval_at="9k,20.4k").eval_steps == {2, 5, 10}


@pytest.mark.parametrize(
    "arguments",
    [["--batch", "0"], ["--batch", "x"], ["--nonsense"], ["--config", "absent.toml"], ["--corpus", "absent"]],
    ids=" ".join,
)
def test_a_wrong_command_ends_with_code_2_and_no_traceback(
    arguments: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    told = capfd.readouterr().err
    assert "rror: " in told
    assert "Traceback" not in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["irds_train.py", "train"])
def test_without_torch_there_is_one_plain_error_with_a_hint(words: str) -> None:
    run = "from shapleymix_irds.__main__ import run" if words == "train" else "from runpy import run_path"
    call = "run()" if words == "train" else f"run_path({str(ROOT / 'adapters' / words)!r}, run_name='__main__')"
    code = f"import sys; sys.modules['torch'] = None; sys.path[:0] = {[str(ROOT), str(ROOT / 'adapters')]!r}; "
    code += f"sys.argv[1:] = {['train'] if words == 'train' else []!r}; {run}; {call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: training needs PyTorch")
    assert "hint: pip install" in done.stderr
    assert "Traceback" not in done.stderr
