"""Exports that cannot be: each is refused by name, with the place of every fault, and no file is lost."""

from __future__ import annotations

import pytest

import shapleymix as sm
from shapleymix.exporting.export import Export

THREE = {"en": 0.5, "de": 0.3, "fi": 0.2}
PATHS = {"language": ["en", "de", "fi"], "path": ["d/en", "d/de", "d/fi"]}

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.mark.parametrize(
    ("mixture", "form", "options", "message"),
    [
        (THREE, "megatrn", {}, "there is no format 'megatrn'.*megatron"),
        (THREE, "megatron", {}, "holds paths, and none are given"),
        (THREE, "hf", {"pathes": PATHS}, "no keyword 'pathes'"),
        (THREE, "hf", {"mean_tokens": {"eng": 1}}, "'eng' is not one of the sources"),
        (THREE, "hf", {"mean_tokens": 0}, "is not above 0"),
        (THREE, "hf", {"D": "many"}, "'many' is not a size"),
        (THREE, "hf", {"seed": -1}, "seed: -1"),
        ({"en": 0.5}, "hf", {}, "sums to 0.5, expected 1"),
        ({}, "hf", {}, "mixture"),
        ("mixture.json", "hf", {}, "is a file, expected a mixture.*Mixture.load"),
        (THREE, "json", {"D": 1}, "D = 1 is less than a token of every language"),
        (THREE, "olmo-core", {"paths": PATHS, "D": "1B", "available": "fi=0"}, "no tokens are at hand of fi"),
        (THREE, "llama-factory", {"paths": {**PATHS, "dataset": ["a,b", "c", "d"]}}, "holds a comma"),
    ],
)
def test_what_cannot_be_is_refused(mixture: object, form: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(sm.ShapleyMixError, match=f"(?s){message}"):
        sm.export(mixture, form, **options)  # type: ignore[arg-type]


def test_every_fault_of_a_table_of_paths_at_once(tmp_path) -> None:
    table = tmp_path / "paths.csv"
    rows = ["language,path,available_tokens,split", "en,a,5x,", ",b,1,", "de,a,1,", "fi,,1,", "fr,c,-1,trian"]
    table.write_text("\n".join(rows) + "\n")
    with pytest.raises(sm.DataError) as caught:
        sm.export(THREE, "hf", paths=table)
    lines = [fault.location.line for fault in caught.value.faults]
    assert lines == [2, 3, 4, 5, 6, 6]
    assert "repeats the path 'a' of line 2 (en)" in str(caught.value)


def test_a_language_without_a_path_is_named_with_what_may_be_meant() -> None:
    with pytest.raises(sm.DataError, match=r"(?s)'fi' has no path, and 0.2 of the tokens.*fin"):
        sm.export(THREE, "megatron", paths={"language": ["en", "de", "fin"], "path": ["a", "b", "c"]})
    with pytest.raises(sm.DataError, match="has no column 'path'"):
        sm.export(THREE, "megatron", paths={"language": ["en"], "pth": ["a"]})


def test_a_language_of_ratio_zero_needs_no_path() -> None:
    assert sm.export({**THREE, "zh": 0}, "megatron", paths=PATHS).names == ("en", "de", "fi")


def test_files_are_written_whole_and_never_over_others(tmp_path) -> None:
    found = sm.export(THREE, "megatron", paths=PATHS, D="1B")
    blend = tmp_path / "blend.txt"
    found.write(blend)
    assert blend.read_text() == found.text
    assert Export.load(tmp_path / "blend.txt.json") == found
    with pytest.raises(sm.UsageError, match="exists already"):
        found.write(blend)
    blend.unlink()
    with pytest.raises(sm.UsageError, match=r"blend.txt.json exists already"):
        found.write(blend)
    assert not blend.exists(), "neither is written where one cannot be"
    found.write(blend, force=True)
    sm.export(THREE, "json").write(tmp_path / "plain.json")
    assert Export.load(tmp_path / "plain.json").mixture == THREE
    assert not (tmp_path / "plain.json.json").exists()


def test_an_account_that_was_changed_is_refused(tmp_path) -> None:
    document = sm.export(THREE, "json").to_document()
    with pytest.raises(sm.StoreError, match="shares of tokens"):
        Export.from_document({**document, "p": [0.5, 0.3, 0.3]})


def test_paths_are_taken_by_language() -> None:
    paths = {name: f"/data/{name}" for name in THREE}
    table = {"language": list(paths), "path": list(paths.values())}
    assert sm.export(THREE, "megatron", paths=paths).text == sm.export(THREE, "megatron", paths=table).text
