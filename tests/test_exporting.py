"""Mixtures as trainers take them: exact sums, units, paths, and texts that the trainers' parsers read back."""

from __future__ import annotations

import ast
import json
import math
import runpy
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from known_fits import mixture

import shapleymix as sm
from shapleymix.exporting.export import FORMATS, Export
from shapleymix.exporting.notation import number, python_text, yaml_text
from shapleymix.exporting.streams import exact

THREE = {"en": 0.5, "de": 0.3, "fi": 0.2}
PATHS = {"language": ["en", "de", "fi"], "path": ["d/en", "d/de", "d/fi"]}
SUPPLY = {**PATHS, "available_tokens": ["400M", "1B", "100M"], "mean_tokens": [800, 400, 200]}
DOCUMENTS = [name for name, form in FORMATS.items() if form.draws.differ]
YAML = ("mosaic", "olmo-core", "nanotron", "levanter", "llama-factory")
PYTHON = ("hf", "litdata", "torchtitan")

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
amounts = st.lists(st.floats(1e-12, 1e12), min_size=1, max_size=60)


@given(amounts)
@example([0.1] * 10)
@example([1e-300, 1.0])
@settings(deadline=None)
def test_weights_sum_to_one_exactly_and_stay_in_proportion(given: list[float]) -> None:
    found = exact(given)
    assert math.fsum(found) == 1.0
    whole = sum(map(Fraction, given))
    assert (
        max(abs(Fraction(one) - Fraction(own) / whole) for one, own in zip(found.tolist(), given, strict=True)) < 1e-15
    )


def test_weights_that_sum_to_one_are_left_as_they_are() -> None:
    given = np.array([0.3, 0.2, 0.5])
    assert exact(given).tolist() == given.tolist()


@given(st.lists(st.tuples(st.floats(1e-6, 1), st.floats(1, 1e5)), min_size=1, max_size=20))
@settings(deadline=None)
def test_documents_drawn_by_the_weights_make_the_shares_of_tokens(given: list[tuple[float, float]]) -> None:
    """By enumeration: a weight is the chance of a document, which brings its mean tokens."""
    ratios = exact([ratio for ratio, _ in given])
    names = [f"s{place}" for place in range(len(given))]
    lengths = {name: length for name, (_, length) in zip(names, given, strict=True)}
    found = sm.export(dict(zip(names, ratios.tolist(), strict=True)), "hf", mean_tokens=lengths)
    tokens = np.array([stream.weight * lengths[stream.name] for stream in found.streams])
    assert tokens / tokens.sum() == pytest.approx(ratios, rel=1e-9)
    assert math.fsum(found.config["probabilities"]) == 1.0


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_the_epochs_the_tokens_and_no_zeros(form: str) -> None:
    found = sm.export({**THREE, "zh": 0.0}, form, paths=SUPPLY, D="1B")
    assert found.sources == ("en", "de", "fi")
    assert found.dropped == ("zh",)
    assert found.p.tolist() == [0.5, 0.3, 0.2]
    assert found.tokens == pytest.approx([5e8, 3e8, 2e8])
    assert found.epochs == pytest.approx([1.25, 0.3, 2.0])
    assert math.fsum(stream.weight for stream in found.streams) == 1.0
    assert "zh" not in found.text
    expected = [0.5 / 800, 0.3 / 400, 0.2 / 200] if form in DOCUMENTS else [0.5, 0.3, 0.2]
    assert [stream.weight for stream in found.streams] == pytest.approx(np.array(expected) / sum(expected))
    assert Export.from_document(found.to_document()) == found


@pytest.mark.parametrize("form", YAML)
def test_yaml_reads_back_as_the_config(form: str) -> None:
    """`no` is a language, not a truth value; 1e-05 a number, not a text."""
    odd = {"no": 0.5, "null": 0.3, "1e3": 0.19999, "été": 1e-05}
    paths = {"source": list(odd), "path": ["a:b", "c #d", "- e", "é/\U0001f600"], "available_tokens": [1e9] * 4}
    found = sm.export(odd, form, paths=paths, D=1e9)
    assert yaml.safe_load(found.text) == found.config
    assert all(line.startswith("#") for line in found.text.splitlines()[:5])


plain = st.recursive(
    st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, min_size=1), st.dictionaries(st.text(min_size=1), inner, min_size=1)),
    max_leaves=12,
)
PRINTABLE = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)


@given(st.dictionaries(PRINTABLE, st.one_of(PRINTABLE, st.floats(1e-300, 1e300), st.integers(), st.booleans())))
@settings(deadline=None)
def test_any_mapping_reads_back_from_both_notations(given: dict[str, object]) -> None:
    nested = {"outer": given, "list": [given, [1.5, "no"], []]}
    assert yaml.safe_load(yaml_text(nested)) == nested
    assert ast.literal_eval(python_text(nested)) == nested


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
@settings(deadline=None)
def test_numbers_of_yaml_are_numbers(given: float) -> None:
    assert yaml.safe_load(number(given)) == given


@pytest.mark.parametrize("form", PYTHON)
def test_python_is_python_whatever_the_names_say(form: str, tmp_path) -> None:
    """Names come from files: none is run as code."""
    odd = "x']); import os; os.abort(); #"
    paths = {"source": ["en", odd], "path": ["a'b\\c", '"""'], "mean_tokens": [10, 20]}
    text = sm.export({"en": 0.5, odd: 0.5}, form, paths=paths).text
    tree = ast.parse(text)
    assigned = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    values = [ast.literal_eval(value) for value in assigned]
    assert any(odd in str(value) or odd in list(value) for value in values)
    assert {type(node).__name__ for node in tree.body} == {"ImportFrom", "Assign", "FunctionDef"}
    compile(text, "module", "exec")


@pytest.mark.parametrize("name", ["en\nimport os", "en\u2028x", " en", "", "a,b", "a\x1b[2J"])
def test_a_name_that_no_language_has_gets_into_no_file(name: str) -> None:
    """A line break in a name would end the comment that it stands in, and the rest be run."""
    with pytest.raises(sm.UsageError, match="the mixture: "):
        sm.export({name: 1.0}, "hf")
    best = mixture()
    document = best.to_document()
    text = json.dumps(document).replace('"code"', json.dumps(name))
    with pytest.raises(sm.ShapleyMixError):
        sm.Mixture.from_document(json.loads(text)).export("hf")


def test_megatron_as_its_argument_file_and_a_split_each() -> None:
    found = sm.export(THREE, "megatron", paths=PATHS)
    assert found.text.split() == ["0.5", "d/en", "0.3", "d/de", "0.2", "d/fi"]
    assert found.config == {"blend": [["d/en", "d/de", "d/fi"], [0.5, 0.3, 0.2]]}
    rows = {name: [*column, *column] for name, column in PATHS.items()}
    rows["path"][3:] = ["v/en", "v/de", "v/fi"]
    split = sm.export(THREE, "megatron", paths={**rows, "split": ["", "", "", "valid", "valid", "valid"]})
    assert yaml.safe_load(split.text) == {
        "train": ["0.5", "d/en", "0.3", "d/de", "0.2", "d/fi"],
        "valid": ["0.5", "v/en", "0.3", "v/de", "0.2", "v/fi"],
        "test": None,
    }
    assert any("test" in note for note in split.notes)


@pytest.mark.parametrize("path", ["d/my corpus", "d/a\u2003b", "d/en.bin", "d/en.idx"])
def test_megatron_refuses_paths_that_it_would_misread(path: str) -> None:
    with pytest.raises(sm.DataError, match=r"white space|prefix without it|cannot be printed"):
        sm.export({"en": 1.0}, "megatron", paths={"language": ["en"], "path": [path]})


def test_nanotron_levanter_and_llama_factory_as_their_configs_are() -> None:
    """Read in their sources and documents; LLaMA-Factory is fed in tests/ecosystem."""
    names = list(PATHS["path"])
    (stage,) = yaml.safe_load(sm.export(THREE, "nanotron", paths=PATHS, seed=4).text)["data_stages"]
    dataset = {"dataset_folder": names, "dataset_weights": [0.5, 0.3, 0.2]}
    assert stage == {"name": "mixture", "start_training_step": 1, "data": {"dataset": dataset, "seed": 4}}
    rows = {"language": ["en", "de", "fi", "en"], "path": [*names, "v/en"], "split": ["", "", "", "valid"]}
    found = yaml.safe_load(sm.export(THREE, "levanter", paths=rows).text)["data"]
    assert found["train_weights"] == THREE
    assert found["configs"]["en"] == {"train_urls": ["d/en"], "validation_urls": ["v/en"]}
    assert found["configs"]["de"] == {"train_urls": ["d/de"]}
    assert sm.export(THREE, "levanter", paths=rows).notes == ("no valid path of de, fi: the others share its part",)
    lines = yaml.safe_load(sm.export(THREE, "llama-factory", mean_tokens=1).text)
    assert lines == {
        "dataset": "en,de,fi",
        "streaming": True,
        "mix_strategy": "interleave_over",
        "interleave_probs": "0.5,0.3,0.2",
    }
    assert yaml.safe_load(sm.export({"en": 1.0}, "llama-factory").text) == {"dataset": "en", "streaming": True}


def test_a_ratio_is_divided_among_the_paths_of_a_language_by_their_tokens() -> None:
    paths = {"language": ["en", "en", "de"], "path": ["a", "b", "c"], "available_tokens": [3e8, 1e8, 1e9]}
    found = sm.export({"en": 0.4, "de": 0.6}, "megatron", paths=paths, D=1e9)
    assert found.text.split() == ["0.3", "a", "0.1", "b", "0.6", "c"]
    assert found.names == ("en-1", "en-2", "de")
    assert found.epochs == pytest.approx([1.0, 0.6]), "every path of a language is seen equally often"
    assert math.fsum(stream.weight for stream in found.streams) == 1.0
    together = sm.export({"en": 0.4, "de": 0.6}, "olmo-core", paths=paths, D=1e9)
    assert together.streams[0].paths == ("a", "b")


def test_a_ratio_is_not_divided_by_a_guess() -> None:
    paths = {"language": ["en", "en", "de"], "path": ["a", "b", "c"], "available_tokens": [3e8, None, 1e9]}
    with pytest.raises(sm.DataError, match="'en' has 2 paths, of which not all tokens are known"):
        sm.export({"en": 0.4, "de": 0.6}, "megatron", paths=paths)


def test_a_made_name_is_no_language() -> None:
    paths = {"language": ["en", "en", "en-1"], "path": ["a", "b", "c"], "available_tokens": [1, 1, 1]}
    found = sm.export({"en": 0.4, "en-1": 0.6}, "litdata", paths=paths)
    assert found.names == ("en-2", "en-3", "en-1")


def test_documents_of_several_paths_have_the_mean_of_all() -> None:
    """3e8 tokens of 300 and 1e8 of 100 are a million documents each: 200 tokens a document."""
    paths = {"language": ["en", "en"], "path": ["a", "b"], "available_tokens": [3e8, 1e8], "mean_tokens": [300, 100]}
    assert sm.export({"en": 1.0}, "hf", paths=paths).streams[0].mean_tokens == pytest.approx(200)


@pytest.mark.parametrize("form", ["hf", "llama-factory"])
def test_documents_without_lengths_are_warned_of(form: str) -> None:
    with pytest.warns(sm.ShapleyMixWarning, match="no mean_tokens say how long"):
        sm.export(THREE, form)
    with pytest.raises(sm.DataError, match="mean_tokens is not known of fi"):
        sm.export(THREE, form, mean_tokens="en=800,de=400")
    one_for_all = sm.export(THREE, form, mean_tokens=2048)
    assert not one_for_all.notices
    assert [stream.weight for stream in one_for_all.streams] == [0.5, 0.3, 0.2]


@pytest.mark.parametrize("form", ["mosaic", "litdata"])
def test_samples_without_lengths_are_taken_to_be_packed(form: str) -> None:
    found = sm.export(THREE, form, paths=PATHS)
    assert not found.notices
    assert any("of one length" in note for note in found.notes)
    uneven = sm.export(THREE, form, paths=PATHS, mean_tokens="en=1,de=2,fi=4")
    assert uneven.streams[2].weight == pytest.approx(0.05 / 0.7)


def test_samples_of_an_epoch_are_those_of_the_run() -> None:
    assert sm.export(THREE, "mosaic", paths=SUPPLY, D=1e6).config["epoch_size"] == 625 + 750 + 1000
    assert sm.export(THREE, "mosaic", paths=PATHS, mean_tokens=2048, D="1B").config["epoch_size"] == 488281
    unknown = sm.export(THREE, "mosaic", paths=PATHS, D="1B")
    assert "epoch_size" not in unknown.config
    lengths = "mean_tokens (of a packed sample its length)"
    assert f"without {lengths} no epoch_size is written" in unknown.notes, "D is given"
    neither = sm.export(THREE, "mosaic", paths=PATHS).notes
    assert f"without D and {lengths} no epoch_size is written" in neither
    assert "without D no epoch_size is written" in sm.export(THREE, "mosaic", paths=SUPPLY).notes


def test_repetition_is_allowed_as_far_as_it_is_needed() -> None:
    found = sm.export(THREE, "olmo-core", paths=SUPPLY, D="1B")
    assert [one["max_repetition_ratio"] for one in found.config["sources"]] == [1.25, 1.0, 2.0]
    more = sm.export(THREE, "olmo-core", paths=SUPPLY, D="1.001B")
    assert [one["max_repetition_ratio"] for one in more.config["sources"]] == [1.26, 1.0, 2.01], "rounded up"
    unknown = sm.export(THREE, "olmo-core", paths=PATHS, D="1B")
    assert not any("max_repetition_ratio" in one for one in unknown.config["sources"])
    assert any("max_repetition_ratio is not set of en, de, fi" in told for told in unknown.notices)


@pytest.mark.parametrize("form", ["hf", "llama-factory"])
def test_a_stream_that_ends_too_early_is_told(form: str) -> None:
    short = {"en": "100M", "de": "100M", "fi": "100M"}
    warned = sm.export(THREE, form, available=short, D="1B", mean_tokens=1).notices
    assert any("repeat every dataset 5 times" in told for told in warned)
    assert not sm.export(THREE, form, available=short, D="400M", mean_tokens=1).notices


def test_litdata_says_that_its_epoch_ends_with_the_shortest() -> None:
    told = sm.export(THREE, "litdata", available={"en": "100M", "de": "1B", "fi": "1B"}, D="1B").notices
    assert any("ends as soon as one language does, here en before D" in one for one in told)


def test_levanter_says_which_languages_a_block_cuts_short() -> None:
    """As its own mixture deals them out (tests/ecosystem/levanter): 2.66 samples of fi in a block are two."""
    told = sm.export({"en": 0.9987, "fi": 0.0013}, "levanter").notices
    assert any("fi would be seen over 5% less than asked" in one and "to 15385 or more" in one for one in told)
    assert not any("rounds" in one for one in sm.export({"en": 0.98, "fi": 0.02}, "levanter").notices)


def test_levanter_says_which_languages_a_block_cannot_hold() -> None:
    told = sm.export({"en": 0.9999, "fi": 0.0001}, "levanter").notices
    assert any("fi" in one and "mixture_block_size to 10000" in one for one in told)


def test_less_than_a_token_is_nothing() -> None:
    found = sm.export({"en": 1 - 1e-9, "fi": 1e-9}, "json", D="100M")
    assert found.sources == ("en",)
    assert found.p.tolist() == [1.0]
    assert found.notes == ("left out, less than a token of D: fi",)


def test_an_optimum_exports_itself() -> None:
    best = mixture(available={"en": "1T", "de": "100B", "fi": "2B", "code": "50B"}, max_epochs=2)
    with pytest.warns(sm.ShapleyMixWarning, match="mean_tokens"):
        found = best.export("hf")
    assert found.D == best.D
    assert found.p == pytest.approx(best.p[best.p * best.D >= 1], abs=1e-9)
    assert found.epochs == pytest.approx(best.epochs[best.p * best.D >= 1], rel=1e-9)
    assert best.export("hf", mean_tokens=1, D="50B").notices == (
        "the mixture was optimised for D = 100B, and is exported for 50B",
    )


def test_tokens_of_the_paths_are_those_that_are_there() -> None:
    best = mixture(available={"en": "1T", "de": "100B", "fi": "2B", "code": "50B"}, max_epochs=2)
    names = list(best.mixture)
    paths = {"language": names, "path": names, "available_tokens": ["1T", "100B", "1B", "50B"]}
    with pytest.raises(sm.DataError, match="fi is seen 4 times, and the mixture allows 2"):
        best.export("json", paths=paths)
    found = best.export("json", paths=paths, ignore_bounds=True)
    fewer = "fi has 1B tokens, not the 2B that the mixture was optimised for"
    assert found.notices == (fewer, "fi is seen 4 times, and the mixture allows 2")
    assert found.epochs[names.index("fi")] == pytest.approx(2 * best.epochs[names.index("fi")])
    other = best.export("json", available="fi=4B").notices
    assert other == ("fi has 4B tokens, not the 2B that the mixture was optimised for",)


def test_baselines_are_exported_by_name() -> None:
    found = sm.export("natural", "json", paths=SUPPLY, D="1B")
    assert found.p == pytest.approx(np.array([4, 10, 1]) / 15)
    assert sm.export("uniform", "json", paths=PATHS).p == pytest.approx([1 / 3] * 3)
    with pytest.raises(sm.UsageError, match="nothing says what the languages are"):
        sm.export("uniform", "json")


def test_the_module_for_datasets_mixes_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """The real package mixes in tests/ecosystem; here it is told what to."""
    told: dict[str, object] = {}
    stand_in = SimpleNamespace(interleave_datasets=lambda parts, **keywords: told.update(parts=parts, **keywords))
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    module = tmp_path / "mixing.py"
    found = sm.export(THREE, "hf", mean_tokens="en=800,de=400,fi=200", seed=3)
    found.write(module)
    runpy.run_path(str(module))["mixed"]({"fi": "FI", "en": "EN", "de": "DE"})
    assert told == {"parts": ["EN", "DE", "FI"], **found.config}
