"""Commands and maps that are made of a table's own names: whatever these are, a shell and TOML read them back."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest
from cli_tools import Run, runner
from hypothesis import given
from hypothesis import strategies as st
from shapleymix_cli.reading import import_command

import shapleymix as sm
from shapleymix.tables.examining import examined

SIGNS = st.characters(codec="utf-8", exclude_characters="{}")
NAMES = st.text(st.one_of(st.sampled_from("'\"$`\\!;|&#*~ ="), SIGNS), min_size=1, max_size=12)
SHOWN = NAMES.filter(str.isprintable)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@given(SHOWN.filter(lambda name: name != "-"), SHOWN, SHOWN, SHOWN)
def test_a_shell_reads_the_words_of_a_printed_command(file: str, column: str, label: str, sep: str) -> None:
    keywords = {"map": {"loss": f"{column}{{lang}}", "p": {label: column}}, "join": [file], "sep": sep, "long": True}
    words = shlex.split(import_command([file, "b.csv"], keywords, goal=f"{column}.csv"))
    named = f"./{file}" if file.startswith("-") else file
    maps = ["--map", f"loss={column}{{lang}}", "--map", f"p.{label}={column}"]
    rest = ["--join", file, "--sep", sep, "--long", "-o", f"{column}.csv"]
    assert words == ["shapleymix", "import", named, "b.csv", *maps, *rest]


@given(NAMES.filter(lambda name: name.strip() != ""), NAMES)
def test_a_written_map_says_what_was_found(column: str, unused: str) -> None:
    loss = {f"{column}/loss_en": [3.0, 2.0], f"{column}/loss_de": [2.0, 3.0]}
    found = examined({"run": ["a", "b"], "N": [1e6] * 2, "D": [1e7] * 2, f"tok{unused}": [0, 0], **loss})
    held = tomllib.loads(found.toml())
    asked = dict(found.keywords)
    mapped = asked.pop("map", {})
    assert isinstance(mapped, dict)
    assert held == {key: value for key, value in {**mapped, **asked}.items() if value not in ("...", "...{lang}")}


def test_a_name_that_no_terminal_shows_is_read_by_a_map(run: Run, tmp_path: Path) -> None:
    """The command that was printed lacked the escape, and its pattern matched nothing."""
    path = tmp_path / "esc.csv"
    path.write_text("run,N,D,p_en,p_de,eval\x1b[31m/loss/en,eval\x1b[31m/loss/de\na,1M,2M,.5,.5,3,3\n")
    hint = run("fit", path, "--json").document["error"]["hint"]
    assert hint.endswith(f"import {path} --write-map esc-map.toml")
    assert run("import", path, "--write-map", tmp_path / "map.toml").code == 0
    assert sm.read_runs(tmp_path / "map.toml").targets == ("en", "de")


def test_a_comment_of_a_map_ends_with_its_line(tmp_path: Path) -> None:
    """A header `tok]\\nens=1` of a column that is not used was a line of its own."""
    path = tmp_path / "two\nlines.csv"
    path.write_text('run,N,D,p_en,p_de,"tok]\nens=1",loss/en,loss/de\na,1M,2M,.5,.5,7,3,3\n')
    assert tomllib.loads(examined(path).toml(tmp_path)) == {"log": "two\nlines.csv", "loss": "loss/{lang}"}


def test_the_hint_reads_all_logs_that_were_given(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-p.csv", "b.csv"):
        Path(name).write_text(f"run,N,D,p_en,p_de,loss/en,loss/de\n{name},1M,2M,.5,.5,3,3\n")
    hint = run("fit", "--json", "--", "-p.csv", "b.csv").document["error"]["hint"]
    command = hint.partition("read it with: ")[2]
    assert command == "shapleymix import ./-p.csv b.csv --map 'loss=loss/{lang}' -o runs.csv"
    assert run(command.removeprefix("shapleymix ")).code == 0
    assert sm.read_runs("runs.csv").runs == ("-p.csv", "b.csv")


@pytest.mark.parametrize("switches", [("--show",), ("--write-map", "map.toml")])
def test_what_only_looks_at_a_table_refuses_several_and_a_log(
    run: Run, switches: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others were passed over, and no log was written, without a word."""
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        Path(name).write_text("run,N,D,p_en,p_de,loss/en,loss/de\na,1M,2M,.5,.5,3,3\n")
    several = run("import", "a.csv", "b.csv", *switches)
    assert several.code == 2
    assert f"{switches[0]} looks at one log, and 2 are given" in several.err
    assert f"-o does nothing with {switches[0]}" in run("import", "a.csv", *switches, "-o", "log.csv").err
