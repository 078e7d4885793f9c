"""Mixtures as trainers take them: exact sums, units, paths, bounds, and texts that the trainers' parsers read back."""

import json
import math
import runpy
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from known_fits import KnownFit
from shapleymix_io import export
from shapleymix_io.blends import exact
from shapleymix_io.export import FORMATS

import shapleymix as sm

THREE = {"en": 0.5, "de": 0.3, "fi": 0.2}
PATHS = {"en": "d/en", "de": "d/de", "fi": "d/fi"}
SUPPLY = pl.DataFrame(
    {"language": [*PATHS], "path": [*PATHS.values()], "available_tokens": ["400M", "1B", "100M"]}
).with_columns(mean_tokens=pl.Series([800, 400, 200]))
DOCUMENTS = [name for name, form in FORMATS.items() if form.draws.differ]
YAML = ("mosaic", "olmo-core", "nanotron", "levanter", "llama-factory")

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


def table(**columns: list[Any]) -> pl.DataFrame:
    return pl.DataFrame(columns)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=60))
@example([0.1] * 10)
@example([1e-300, 1.0])
@settings(deadline=None)
def test_weights_sum_to_one_exactly_and_stay_in_proportion(given: list[float]) -> None:
    found = exact(given)
    assert math.fsum(found) == 1.0
    whole = sum(map(Fraction, given))
    assert max(abs(Fraction(one) - Fraction(own) / whole) for one, own in zip(found, given, strict=True)) < 1e-15


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1, 1e5)), min_size=1, max_size=20))
@settings(deadline=None)
def test_documents_drawn_by_the_weights_make_the_shares_of_tokens(given: list[tuple[float, float]]) -> None:
    """By enumeration: a weight is the chance of a document, which brings its mean tokens."""
    p = dict(zip(map("s{}".format, range(len(given))), exact([ratio for ratio, _ in given]), strict=True))
    lengths = dict(zip(p, (length for _, length in given), strict=True))
    found = export(p, "hf", mean_tokens=lengths)
    tokens = np.array([one.weight * lengths[one.name] for one in found.blend.streams])
    assert tokens / tokens.sum() == pytest.approx(list(p.values()), rel=1e-9)
    assert math.fsum(found.config["probabilities"]) == 1.0


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_epochs_the_tokens_and_no_zeros(form: str) -> None:
    found = export({**THREE, "zh": 0.0}, form, paths=SUPPLY, D="1B")
    assert (found.blend.p, found.blend.epochs) == (THREE, pytest.approx({"en": 1.25, "de": 0.3, "fi": 2.0}))
    assert math.fsum(one.weight for one in found.blend.streams) == 1.0
    assert "zh" not in found.text
    expected = np.array([0.5 / 800, 0.3 / 400, 0.2 / 200] if form in DOCUMENTS else [0.5, 0.3, 0.2])
    assert [one.weight for one in found.blend.streams] == pytest.approx(expected / expected.sum())
    document = json.loads(json.dumps(found.to_document(), allow_nan=False))
    assert (document["mixture"], document["tokens"]["en"], document["D"]) == (THREE, 5e8, 1e9)


@pytest.mark.parametrize("form", YAML)
def test_yaml_reads_back_as_the_config(form: str) -> None:
    """`no` is a language, not a truth value; 1e-05 a number, not a text."""
    odd = {"no": 0.5, "null": 0.3, "1e3": 0.19999, "été": 1e-05}
    paths = table(source=[*odd], path=["a:b", "c #d", "- e", "é/\U0001f600"], available_tokens=[1e9] * 4)
    found = export(odd, form, paths=paths, D=1e9)
    assert yaml.safe_load(found.text) == found.config
    assert all(line.startswith("#") for line in found.text.splitlines()[:5])


def test_each_trainer_gets_its_own_form() -> None:
    assert export(THREE, "megatron", paths=PATHS).text.split() == ["0.5", "d/en", "0.3", "d/de", "0.2", "d/fi"]
    stage = export(THREE, "nanotron", paths=PATHS, seed=4).config["data_stages"][0]["data"]
    assert stage == {"dataset": {"dataset_folder": [*PATHS.values()], "dataset_weights": [0.5, 0.3, 0.2]}, "seed": 4}
    assert export(THREE, "levanter").config == {"data": {"train_weights": THREE}}
    lines = {"dataset": "en,de,fi", "streaming": True, "mix_strategy": "interleave_over"}
    assert export(THREE, "llama-factory", mean_tokens=1).config == {**lines, "interleave_probs": "0.5,0.3,0.2"}
    assert export({"en": 1.0}, "llama-factory").config == {"dataset": "en", "streaming": True}
    remote = export({"en": 0.5, "de": 0.5}, "mosaic", paths={"en": "s3://b/en", "de": "d"}).config["streams"]
    assert remote == {"en": {"remote": "s3://b/en", "proportion": 0.5}, "de": {"local": "d", "proportion": 0.5}}
    zipped = ["0.5", "d/en", "0.3", "d/de", "0.2", "d/fi"]
    assert export(THREE, "automodel", paths=PATHS).config == {"paths": zipped}


def phases_of(form: str, config: dict[str, Any], batch: float, whole: float) -> list[tuple[float, dict[str, float]]]:
    """The tokens of each phase and its weights by path, as the trainer's own loader reads its config."""
    if form == "mosaic":  # llm-foundry's CurriculumLearning: the durations add up to max_duration
        first, (second,) = config["train_loader"]["dataset"], config["callbacks"]["curriculum_learning"]["schedule"]
        lengths = [config["callbacks"]["curriculum_learning"]["duration"], second["duration"]]
        streams = [part["streams"].values() for part in (first, second["dataset"])]
        parts = [{one["local"]: one["proportion"] for one in part} for part in streams]
        return list(zip([float(one.removesuffix("tok")) for one in lengths], parts, strict=True))
    if form == "levanter":  # steps count from 0
        urls = {name: one["train_urls"][0] for name, one in config["data"]["configs"].items()}
        weights = config["data"]["train_weights"]
        stages = [(step, {urls[name]: one for name, one in part.items()}) for step, part in weights]
    else:  # nanotron wants names that differ and a first step of 1
        assert len({one["name"] for one in config["data_stages"]}) == 2
        data = [one["data"]["dataset"] for one in config["data_stages"]]
        parts = [dict(zip(one["dataset_folder"], one["dataset_weights"], strict=True)) for one in data]
        stages = list(zip([one["start_training_step"] - 1 for one in config["data_stages"]], parts, strict=True))
    (start, before), (turn, rest) = stages
    assert start == 0
    return [(turn * batch, before), (whole - turn * batch, rest)]


@pytest.mark.parametrize("form", FORMATS)
def test_both_phases_of_a_begun_run_read_what_the_whole_mixture_asks(form: str) -> None:
    """To half a step: tokens by language over both phases are ratio times D; a trainer of one blend gets the rest."""
    begun = sm.optimize(KnownFit(), "1B", "100B", after="en=0.7,de=0.3", trained="40B", available="fi=2B", max_epochs=2)
    paths = {name: f"d/{name}" for name in begun.sources}
    alone, found = (export(begun, form, paths=paths, **options) for options in ({}, {"batch_tokens": "4M"}))
    assert alone.blend.epochs["fi"] == pytest.approx(begun.epochs[begun.sources.index("fi")]), "over both phases"
    if not FORMATS[form].staged:
        assert (found.text, found.config) == (alone.text, alone.config)
        assert any("still to be read" in one for one in found.notes)
        return
    assert alone.config != found.config
    read = dict.fromkeys(paths.values(), 0.0)
    for tokens, weights in phases_of(form, yaml.safe_load(found.text), 4e6, 1e11):
        for path, weight in weights.items():
            read[path] += tokens * weight
    assert list(read.values()) == pytest.approx((begun.p * 1e11).tolist(), abs=2e6)
    with pytest.raises(sm.UsageError, match="batch_tokens"):
        export(THREE, form, paths=PATHS, batch_tokens=1)


def test_paths_of_validation_are_not_trained_on() -> None:
    rows = table(language=[*THREE, "en"], path=["a", "b", "c", "v"], split=["", "", "", "valid"])
    with pytest.raises(sm.DataError, match="split"):
        export(THREE, "megatron", paths=rows)


def test_a_ratio_is_divided_among_the_paths_of_a_language_by_their_tokens() -> None:
    paths = table(language=["en", "en", "de"], path=["a", "b", "c"], available_tokens=[3e8, 1e8, 1e9])
    half = {"en": 0.4, "de": 0.6}
    found = export(half, "megatron", paths=paths, D=1e9)
    weights, names = map(float, found.text.split()[::2]), found.text.split()[1::2]
    assert ([*weights], names) == (pytest.approx([0.3, 0.1, 0.6]), ["a", "b", "c"])
    assert found.blend.epochs == pytest.approx({"en": 1.0, "de": 0.6}), "every path of a language is seen equally often"
    assert math.fsum(one.weight for one in found.blend.streams) == 1.0
    assert export(half, "olmo-core", paths=paths, D=1e9).blend.streams[0].paths == ("a", "b")
    unknown = paths.with_columns(available_tokens=pl.Series([3e8, None, 1e9]))
    with pytest.raises(sm.DataError, match="en"):
        export(half, "megatron", paths=unknown)


def test_documents_of_several_paths_have_the_mean_of_all() -> None:
    """3e8 tokens of 300 and 1e8 of 100 are a million documents each: 200 tokens a document."""
    paths = table(language=["en", "en"], path=["a", "b"], available_tokens=[3e8, 1e8], mean_tokens=[300, 100])
    assert export({"en": 1.0}, "hf", paths=paths).blend.streams[0].mean_tokens == pytest.approx(200)


@pytest.mark.parametrize("form", DOCUMENTS)
def test_draws_without_lengths_are_told(form: str) -> None:
    """Where they are documents: samples are packed to one length by most."""
    with pytest.raises(sm.DataError, match="fi"):
        export(THREE, form, mean_tokens="en=800,de=400", paths=PATHS)
    told = any("mean_tokens" in one for one in export(THREE, form, paths=PATHS).notices)
    assert told == (not FORMATS[form].draws.packed)
    one_for_all = export(THREE, form, mean_tokens=2048, paths=PATHS)
    assert not one_for_all.notices
    assert [one.weight for one in one_for_all.blend.streams] == [0.5, 0.3, 0.2]


def test_samples_of_an_epoch_are_those_of_the_run() -> None:
    assert export(THREE, "mosaic", paths=SUPPLY, D=1e6).config["epoch_size"] == 625 + 750 + 1000
    assert export(THREE, "mosaic", paths=PATHS, mean_tokens=2048, D="1B").config["epoch_size"] == 488281
    assert "epoch_size" not in export(THREE, "mosaic", paths=PATHS, D="1B").config


def test_repetition_is_allowed_as_far_as_it_is_needed() -> None:
    def limits(**keywords: Any) -> list[float]:
        return [one["max_repetition_ratio"] for one in export(THREE, "olmo-core", **keywords).config["sources"]]

    assert limits(paths=SUPPLY, D="1B") == [1.25, 1.0, 2.0]
    assert limits(paths=SUPPLY, D="1.001B") == [1.26, 1.0, 2.01], "rounded up"
    unknown = export(THREE, "olmo-core", paths=PATHS, D="1B")
    assert not any("max_repetition_ratio" in one for one in unknown.config["sources"])


def test_blocks_that_round_a_language_away_are_told() -> None:
    """As levanter deals them out (tests/ecosystem/levanter): 2.66 samples of fi in a block are two."""
    for ratio, size in ((0.0013, 15385), (0.0001, 200000)):
        told = export({"en": 1 - ratio, "fi": ratio}, "levanter").notices
        assert any(f"{size} or more" in one for one in told)
    assert not export({"en": 0.98, "fi": 0.02}, "levanter").notices


def test_less_than_a_token_is_nothing() -> None:
    found = export({"en": 1 - 1e-9, "fi": 1e-9}, "json", D="100M")
    assert found.blend.p == {"en": 1.0}
    assert any("fi" in one for one in found.notes)


BEST = SimpleNamespace(
    mixture={"en": 0.7, "de": 0.2, "fi": 0.1, "x": 0.0},
    D=1e9,
    available=np.array([1e9, 1e9, 1e8, math.nan]),
    max_epochs=np.array([2.0, 2.0, 1.0, math.inf]),
    min_tokens=np.array([0, 2e8, 0, 0]),
)
"""What an optimum says of itself: fi is seen once, which is all it allows, and de has its fewest tokens."""


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("scale", "broken"), [(1.0, []), (1.005, ["fi"]), (1.5, ["fi"]), (0.5, ["de"]), (3.0, ["en", "fi"])]
)
def test_what_is_exported_keeps_the_bounds_or_is_refused_by_name(form: str, scale: float, broken: list[str]) -> None:
    """By arithmetic: epochs are p D / tokens. Within one per cent a broken bound is told, beyond it refused."""
    how: dict[str, Any] = {"paths": {**PATHS, "x": "d/x"}, "D": scale * BEST.D, "mean_tokens": 1}
    if broken and abs(scale - 1) > 0.01:
        with pytest.raises(sm.DataError) as caught:
            export(BEST, form, **how)
        found = [fault.message.split()[0] for fault in caught.value.faults or [caught.value]]
        assert (found, caught.value.exit_code) == (broken, 1)
    made = export(BEST, form, **how, ignore_bounds=True)
    assert [one.split()[0] for one in made.notices if "but the mixture" in one] == broken
    if form == "olmo-core":
        limits = {one["source_name"]: one["max_repetition_ratio"] for one in made.config["sources"]}
        assert limits["fi"] == pytest.approx(max(1.0, math.ceil(100 * scale) / 100))


def test_tokens_that_the_optimum_did_not_know_break_no_bound() -> None:
    free = SimpleNamespace(mixture={"en": 0.5, "de": 0.5}, D=1e9, available=[math.nan] * 2, max_epochs=[4.0, 4.0])
    assert any("allows 4" in one for one in export(free, "json", available="en=1e8,de=1e9").notices)
    assert export(free, "json").notices == ()
    assert any("100M" in one for one in export(free, "json", D="100M").notices), "another D is told"


@pytest.mark.parametrize(
    ("mixture", "form", "options", "told"),
    [
        (THREE, "megatrn", {}, "megatron"),
        (THREE, "megatron", {}, "paths"),
        (THREE, "hf", {"mean_tokens": {"eng": 1}}, "eng"),
        (THREE, "hf", {"mean_tokens": 0}, "mean_tokens"),
        (THREE, "hf", {"D": "many"}, "many"),
        ({"en": 0.5}, "hf", {}, "0.5"),
        ({"en": 1.5, "de": -0.5}, "hf", {}, "below 0"),
        ({"en\n": 1.0}, "hf", {}, "name"),
        ("mixture.json", "hf", {}, "no mixture"),
        (THREE, "json", {"D": 1}, "token"),
        (THREE, "olmo-core", {"paths": PATHS, "D": "1B", "available": "fi=0"}, "fi"),
        (THREE, "megatron", {"paths": {**PATHS, "fi": "my corpus"}}, "white space"),
        (THREE, "megatron", {"paths": {**PATHS, "fi": "c.bin"}}, ".bin"),
        (THREE, "megatron", {"paths": {"en": "a", "de": "b", "fin": "c"}}, "fin"),
        (THREE, "llama-factory", {"paths": table(language=[*THREE], path=[*"abc"], dataset=["a,b", *"cd"])}, "comma"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(mixture: Any, form: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(sm.ShapleyMixError) as caught:
        export(mixture, form, **options)
    assert told in str(caught.value)


def test_every_fault_of_a_table_of_paths_at_once(tmp_path: Path) -> None:
    rows = ["language,path,available_tokens,mean_tokens", "en,a,5x,", ",b,1,", "de,a,1,", "fi,,1,", "fr,c,-1,0"]
    (tmp_path / "paths.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(sm.DataError) as caught:
        export(THREE, "hf", paths=tmp_path / "paths.csv")
    assert {fault.location.line for fault in caught.value.faults} == {2, 3, 4, 5, 6}
    with pytest.raises(sm.DataError, match="path"):
        export(THREE, "hf", paths=table(language=["en"], pth=["a"]))


def test_files_are_written_whole_and_never_over_others(tmp_path: Path) -> None:
    found, blend = export(THREE, "megatron", paths=PATHS, D="1B"), tmp_path / "blend.txt"
    found.write(blend, provenance={"command": "x"})
    assert blend.read_text() == found.text
    assert json.loads((tmp_path / "blend.txt.json").read_text()) == found.to_document({"command": "x"})
    with pytest.raises(sm.UsageError, match="exists already"):
        found.write(blend)
    blend.unlink()
    with pytest.raises(sm.UsageError, match="exists already"):
        found.write(blend)
    assert not blend.exists(), "neither is written where one cannot be"
    found.write(blend, force=True)
    export(THREE, "json").write(tmp_path / "plain.json")
    assert json.loads((tmp_path / "plain.json").read_text())["mixture"] == THREE
    assert not (tmp_path / "plain.json.json").exists()


@pytest.mark.parametrize(("form", "package"), [("hf", "datasets"), ("litdata", "litdata")])
def test_a_module_mixes_by_name(form: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real packages mix in tests/ecosystem; here they are told what to."""
    told: dict[str, object] = {}
    stand_in = SimpleNamespace()
    function = {"datasets": "interleave_datasets", "litdata": "CombinedStreamingDataset"}[package]
    setattr(stand_in, function, lambda parts, **keywords: told.update(parts=parts, **keywords))
    monkeypatch.setitem(sys.modules, package, stand_in)
    found = export({"en": 0.5, "it's": 0.3, "fi": 0.2}, form, mean_tokens="en=800,it's=400,fi=200", seed=3)
    found.write(tmp_path / "mixing.py")
    runpy.run_path(str(tmp_path / "mixing.py"))["mixed"]({"fi": "FI", "en": "EN", "it's": "IT"})
    assert told == {"parts": ["EN", "IT", "FI"], **found.config}


@pytest.mark.parametrize("grain", [False, True], ids=["0.3", "grain"])
def test_the_module_for_torchtitan_takes_the_loader_that_is_there(grain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.3 itself is fed in tests/ecosystem; of Grain's loader, which no release has yet, the documented names."""
    config = SimpleNamespace(Config=lambda **keywords: keywords)
    names = ("ConcatThenSplitPackingConfig", "DatasetMixConfig", "SingleDatasetConfig", "WeightedDataset")
    data = SimpleNamespace(GrainDataLoader=config, HuggingFaceStreamingSource=config, **dict.fromkeys(names, dict))
    old = {} if grain else {"HFDataSource": dict, "InterleavedHuggingFaceTextDataLoader": config}
    texts = SimpleNamespace(DATASETS={"de": "registered"}, TextProcessor=config, **old)
    components = SimpleNamespace(data=data) if grain else SimpleNamespace()
    modules = {"torchtitan": SimpleNamespace(), "torchtitan.hf_datasets": SimpleNamespace(text_datasets=texts)}
    for name, module in {**modules, "torchtitan.components": components}.items():
        monkeypatch.setitem(sys.modules, name, module)
    found, space = export(THREE, "torchtitan", paths=PATHS, seed=5), dict[str, Any]()
    exec(found.text, space)
    told = space["dataloader"](num_workers=0)
    assert (told["seed"], told["num_workers"]) == (5, 0)
    if not grain:
        assert told["sources"] == [{**one, "infinite": True} for one in found.config["sources"]]
        return
    mixed = told["dataset"]["datasets"]
    assert [one["weight"] for one in mixed] == [0.5, 0.3, 0.2]
    corpora = [one["dataset"]["dataset"] for one in mixed]  # each packed, then mixed: weights count sequences
    assert (corpora[1], corpora[0]["source"]) == ("registered", {"path": "d/en", "split": "train"})


@pytest.mark.parametrize(("tokens", "length", "told"), [(1e9, None, True), (1.02e9, None, False), (1.02e9, 2e7, True)])
def test_another_epoch_by_rounding_is_told(tokens: float, length: float | None, told: bool) -> None:
    """A cap that binds is one epoch exactly; where sequences are long beside a language, more than 1% may be added."""
    paths = table(language=["en", "fi"], path=["a", "b"], available_tokens=[2e9, tokens])
    notes = export({"en": 0.5, "fi": 0.5}, "megatron", paths=paths, D=2e9, mean_tokens=length).notes
    assert any("fi" in one for one in notes) == told
