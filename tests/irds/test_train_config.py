"""Settings: flags, TOML, schedules, mixtures, and plain errors for what is wrong."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("torch")

from shapleymix_irds.train.app import command, main
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.mixtures import read_mixture
from shapleymix_irds.train.settings import fields, flag
from shapleymix_irds.train.settings_file import read_toml
from shapleymix_irds.train.shapes import MODELS

from shapleymix.errors import DataError, ShapleyMixError, UsageError


def test_every_setting_is_a_flag() -> None:
    flags = {name for option in command().params for name in option.opts}
    assert flags == {"--config", *(flag(field.name) for field in fields())}


def test_the_reference_run_has_244_steps() -> None:
    config = TrainConfig()
    assert (config.steps, config.steps * config.step_tokens) == (244, 999_424)


def test_a_run_says_what_it_makes_of_the_tokens_asked_for() -> None:
    assert TrainConfig(tokens="300k").length == "D = 299,008 (73 steps of 4,096 tokens; 300k asked for)"
    assert TrainConfig(tokens="8192").length == "D = 8,192 (2 steps of 4,096 tokens)"
    assert TrainConfig(tokens="2048").steps == 1


def test_the_learning_rate_warms_up_and_decays_to_its_last_part() -> None:
    config = TrainConfig(tokens="4096k", seq=128, batch=32, lr=1.0, min_lr=0.1, warmup=0.1)
    rates = [config.learning_rate(step) for step in range(config.steps)]
    assert rates[0] == pytest.approx(1 / math.ceil(0.1 * config.steps))
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.1, abs=1e-3)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_the_learning_rate_follows_from_the_size_unless_it_is_given() -> None:
    help_text = " ".join(command().get_help(click.Context(command(), terminal_width=10_000)).split())
    rates = []
    for name in MODELS:
        rates.append((TrainConfig(model=name).shape(256).non_embedding, TrainConfig(model=name).peak_lr))
        told = re.search(rf"([\d.e-]+) {name}\b|([\d.e-]+) for {name}\b", help_text)
        assert told, name
        assert float(told[1] or told[2]) == rates[-1][1], name
    sorted_rates = [rate for _, rate in sorted(rates)]
    assert sorted_rates == sorted(sorted_rates, reverse=True)
    assert (TrainConfig().peak_lr, TrainConfig(model="3171M").peak_lr) == (6e-3, 3e-4)
    assert TrainConfig(layers=1, hidden=16, heads=2, ffn=24).peak_lr == 6e-3
    assert TrainConfig(model="3171M", lr=0.25).peak_lr == 0.25
    assert TrainConfig(optimizer="sgd").peak_lr == 0.3
    assert TrainConfig(model="50M").resolved(("a",), "a=1.0", "1").lr == 8.6e-4


def test_evaluations_come_where_they_are_asked_for() -> None:
    config = TrainConfig(tokens="1M", eval_at="250k,0.5M")
    assert config.eval_steps == {61, 122, 244}


def test_the_name_of_a_run_depends_on_what_decides_its_result() -> None:
    def name(ratios: str = "a=1.0", corpus: str = "1", **settings: Any) -> str:
        return TrainConfig(**settings).resolved(("a",), ratios, corpus).run

    assert name() == name(out="elsewhere", keep=5, log_every=3, mixture="uniform")
    assert len({name(), name(seed=1), name(ratios="a=0.9"), name(corpus="2")}) == 4
    assert name(run="mine") == "mine"


def test_toml_gives_settings_under_any_heading(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'languages = ["en", "de"]\nmixture = {en = 0.7, de = 0.3}\ntokens = 500000\n'
        "[model]\nlayers = 3\nlr = 1\n[irds]\nirds = false\nval-share = 0.1\n"
    )
    found = TrainConfig(**read_toml(str(path)))
    assert (found.languages, found.mixture) == ("en,de", "en=0.7,de=0.3")
    assert (found.total_tokens, found.layers, found.lr, found.irds, found.val_share) == (
        5e5,
        3,
        1.0,
        False,
        0.1,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tokns = 1", "did you mean 'tokens'"),
        ("layers = 1.5", "not of type int"),
        ('lr = "fast"', "not of type float"),
        ("irds = 1", "not of type bool"),
        ("layers = true", "not of type int"),
        ("layers =", "is not TOML"),
        ('model = "mini"\n[model]\nlayers = 2', r"(?s)is not TOML.*no heading can be called \[model\]"),
        ("irds = true\n[ irds ]\nirds_every = 2", r"no heading can be called \[irds\]"),
        ("[irds]\nevery = 2", "write irds_every"),
        ("[irds]\nevry = 2", "did you mean"),
        ("[one]\nlayers = 2\n[two]\nlayers = 3", "gives 'layers' twice"),
    ],
)
def test_faults_of_a_toml_file_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_toml(str(path))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 0.0}, "--lr 0.0 is too small"),
        ({"seq": 0}, "--seq 0 is too small"),
        ({"beta1": 1.0}, "--beta1 1 leaves nothing of a gradient"),
        ({"lr_embedding": 0.0}, "--lr-embedding 0.0 is too small"),
        ({"optimizer": "adafactor", "parallel": "fsdp"}, "adafactor does not take sharded weights"),
        ({"model": "60M"}, "unknown model '60M'"),
        ({"seed": 2**63}, "--seed 9223372036854775808 is above 9223372036854775807"),
        ({"warmup": 2.0}, "outside 0 to 1"),
        ({"parallel": "pp"}, "--parallel pp is not one of ddp, fsdp, hsdp"),
        ({"tokens": "many"}, "is not a size"),
        ({"irds_every": "0"}, "neither auto nor a number"),
        ({"lr": 0.0, "seq": 0}, "has 2 faults"),
        ({"irds_engine": "grouped"}, "--irds-engine grouped is not one of auto, sketch, exact"),
        ({"irds_order": "2", "irds_fresh": True}, "--irds-order 2 does not go with --irds-fresh"),
        ({"eval_at": "0"}, r"--eval-at 0: less than half a step of 4,096 tokens is D = 0\n  hint: --eval-untrained"),
        ({"eval_at": "500k,2M"}, r"--eval-at 500k,2M: 2,000,000 tokens are beyond the run's D = 999,424 \(244 steps"),
        ({"tokens": "10"}, r"(?s)--tokens 10 is less than half a step of 4,096 tokens .*--batch 32 x --seq 128.*lower"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        TrainConfig(**settings)


def test_mixtures_come_from_text_and_files(tmp_path: Path) -> None:
    names = ("en", "de")
    contents = {
        "m.json": json.dumps({"en": 0.7, "de": 0.3}),
        "r.json": json.dumps({"kind": "mixture", "sources": ["de", "en"], "p": [0.3, 0.7]}),
        "m.toml": "en = 0.7\nde = 0.3\n",
        "t.toml": "[mixture]\nen = 0.7\nde = 0.3\n",
        "m.csv": "language,ratio\nen,0.7\nde,0.3\n",
        "n.csv": "en,0.7\nde,0.3\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        assert read_mixture(str(tmp_path / name), names).ratios.tolist() == [0.7, 0.3]
    assert read_mixture("en=.7,de=.3", names).ratios.tolist() == [0.7, 0.3]
    assert read_mixture("uniform", names).ratios.tolist() == [0.5, 0.5]


def test_a_mixture_that_was_rounded_is_rescaled_and_said_to_be(tmp_path: Path) -> None:
    thirds = "a=.333,b=.333,c=.333"
    (tmp_path / "m.json").write_text('{"a": 0.333, "b": 0.333, "c": 0.333}')
    for text in (thirds, str(tmp_path / "m.json")):
        found = read_mixture(text, ("a", "b", "c"))
        assert (found.rescaled, round(found.total, 9)) == (True, 0.999)
        assert found.ratios.sum() == pytest.approx(1.0, abs=1e-15)
    assert not read_mixture("a=.1,b=.2,c=.7", ("a", "b", "c")).rescaled


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("m.csv", "name,ratio\nen,0.3\nde,0.7\nen,0.3\n", "m.csv:4: gives 'en' twice"),
        ("m.csv", "name,ratio\n\nen,0.3\nde;0.7\n", "m.csv:4: is 'de;0.7', expected a name and a ratio"),
        ("m.csv", "en,0.3\nde,0,7\n", "m.csv:2: is 'de,0,7', expected"),
        ("m.csv", "name,ratio\n", "holds no mixture"),
        ("m.json", '{"en": true}', "'en' has True, expected a number"),
        ("m.json", '{"en": "0.5", "de": 0.5}', "'en' has '0.5', expected a number"),
        ("m.json", '{"names": ["en", "en"], "p": [0.5, 0.5]}', "'en' comes twice"),
    ],
)
def test_faults_of_mixture_files_are_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=words):
        read_mixture(str(tmp_path / name), ("en", "de"))


@pytest.mark.parametrize(("name", "text"), [("m.csv", "en,0.7\nde,0.3\n"), ("m.json", '{"en": 0.7, "de": 0.3}')])
def test_a_byte_order_mark_is_no_part_of_a_mixture(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_mixture(str(tmp_path / name), ("en", "de")).ratios.tolist() == [0.7, 0.3]


@pytest.mark.parametrize("name", ["b.json", "b.toml", "b.csv"])
def test_files_that_hold_no_mixture_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("what = is this\nen\n")
    with pytest.raises(ShapleyMixError, match=name):
        read_mixture(str(tmp_path / name), ("en", "de"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--corpis", "x"], 2, "Did you mean"),
        (["--corpus", "nowhere"], 2, "there is no such folder"),
        (["--languages", "a,a"], 2, "twice"),
        (["--mixture", "a=.5,b=.4"], 2, "sums to 0.9"),
        (["--mixture", "a=.5,x=.5"], 2, "'x' is not one of the sources"),
        (["--mixture", "a=1"], 2, "--no-irds"),
        (["--mixture", "half"], 2, "no mixture and no file"),
        (["--model", "50N"], 2, "did you mean '50M'"),
        (["--vocab", "100"], 2, "below the tokenizer's 256"),
        (["--toy-size", "100"], 1, "less than one window"),
        (["--irds-fresh", "--irds-order", "2"], 2, "--irds-order 2 does not go with --irds-fresh"),
        (["--beta2", "1"], 2, "--beta2 1 leaves nothing"),
        (["--device", "cuda"], 2, "no CUDA device"),
    ],
)
def test_errors_are_plain_and_have_exit_codes(
    arguments: list[str], code: int, words: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "out")]) == code
    said = capfd.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_help_names_the_defaults(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capfd.readouterr().out
    assert "--irds / --no-irds" in said
    assert "[0.95]" in said
