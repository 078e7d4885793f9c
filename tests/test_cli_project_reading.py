"""How the project's log is written, in the project file: the same log as typed, and only of that log."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from cli_tools import Run, runner
from hypothesis import given, settings
from hypothesis import strategies as st
from shapleymix_cli.project import NAME, READING, find

import shapleymix as sm
from shapleymix.tables.importing.column_map import column_map, parse_pairs

MAP = '[map]\nrun = "Name"\nN = "params"\nD = "tokens"\np = "w_{lang}"\nloss = "eval/loss/{lang}"\n'
WANDB = f'log = "wandb.csv"\nratio_unit = "percent"\n{MAP}'
FIT = "fit --law chinchilla --bootstrap 0 --folds 0 --json"


@pytest.fixture
def here(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a W&B export and a log of ours."""
    for name in ("wandb", "runs"):
        (tmp_path / f"{name}.csv").write_bytes((fixtures / f"multilingual5_{name}.csv").read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], here: Path) -> Run:
    return runner(capsys)


def test_a_whole_call_without_a_word_of_the_log(run: Run, here: Path) -> None:
    """The fit is that of the typed call, which standard error tells."""
    (here / NAME).write_text(WANDB)
    short = run(FIT)
    assert short.code == 0, short.err
    added = next(line for line in short.err.splitlines() if " adds " in line).partition(" adds ")[2]
    long = run(*shlex.split(FIT.replace("fit", f"fit {added}", 1)), "--project", "none")
    assert long.document["fitted"] == short.document["fitted"]
    assert run("import -o log.csv").code == 0
    assert len(sm.read_runs("log.csv")) == 24


def test_another_log_is_read_as_it_stands(run: Run, here: Path) -> None:
    """A log of ours, typed in the same folder, is not read in the units of the project's."""
    (here / NAME).write_text(f'unit = "bits"\n{WANDB}')
    assert run(f"{FIT} runs.csv").code == 0
    assert run("import runs.csv -o log.csv").code == 0
    assert sm.read_runs("log.csv").loss.tolist() == sm.read_runs("runs.csv").loss.tolist()
    same = run("import ./wandb.csv -o same.csv")
    assert "--unit bits" in same.err
    (here / NAME).write_text(f'ratio_unit = "percent"\n{MAP}')
    assert run("import wandb.csv -o own.csv").code == 0
    assert len(sm.read_runs("own.csv")) == 24


def test_what_is_typed_wins_over_how_the_log_is_written(run: Run, here: Path) -> None:
    (here / NAME).write_text(WANDB.replace("percent", "fraction"))
    refused = run("import")
    assert (refused.code, "--ratio-unit percent" in refused.err) == (1, True)
    assert run("import --ratio-unit percent").code == 0
    (here / "map.toml").write_text(MAP.removeprefix("[map]\n") + 'ratio_unit = "percent"\n')
    assert run("import --map map.toml --ratio-unit percent").code == 0


def test_files_count_from_the_project_file(run: Run, here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (here / "map.toml").write_text(MAP.removeprefix("[map]\n"))
    (here / NAME).write_text('log = "wandb.csv"\nmap = "map.toml"\nratio_unit = "percent"\n')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(elsewhere)
        assert run("import", "--project", here / NAME).code == 0
    (here / "wandb.toml").write_text(f'log = "wandb.csv"\nratio_unit = "percent"\n{MAP.removeprefix("[map]")}')
    (here / NAME).write_text('log = ["wandb.toml"]\n')
    assert run("import").code == 0
    (here / NAME).write_text('log = "sqlite:///absent.db"\n')
    found = find(str(here / NAME))
    assert found is not None
    assert found.entries["log"] == ("sqlite:///absent.db",)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("map = 3", "is an int", "write map ="),
        ('map = {rum = "Name"}', "'rum' is no key of a map", "run"),
        ('map = {run = " Name"}', "a name that the command line cannot hold", "write map ="),
        ('map = {run = "a.toml"}', "a name that the command line cannot hold", "write map ="),
        ('map = {languages = {"a=b" = "c"}}', "a name that the command line cannot hold", "write map ="),
        ('long = "yes"', "is a str", "write long ="),
        ("unit = 3", "is an int", "write unit ="),
        ('sep = ""', "is empty", "write sep ="),
        ("bytes_per_token = true", "is a bool", "write bytes_per_token ="),
        ("bytes_per_token = -1", "expected a finite number", "write bytes_per_token ="),
        ("join = []", "is a list", "write join ="),
    ],
)
def test_entries_that_say_what_no_log_is(run: Run, here: Path, text: str, message: str, hint: str) -> None:
    (here / NAME).write_text(text)
    told = run("import wandb.csv --json").document["error"]
    assert message in told["message"]
    assert hint in told["hint"]
    assert told["location"]["column"] in READING


LABEL = st.text("abc_-. /é", min_size=1, max_size=5).map(str.strip).filter(bool)
COLUMN = st.text("abc_./: =,'\"é", min_size=1, max_size=8).filter(lambda text: text == text.strip())
MAPS = st.fixed_dictionaries(
    {},
    optional={
        "run": COLUMN,
        "N": COLUMN | st.integers(1, 10**9),
        "D": COLUMN | st.floats(1, 1e12),
        "p": COLUMN.map(lambda text: f"{text}{{lang}}") | st.dictionaries(LABEL, COLUMN, min_size=1),
        "loss": st.dictionaries(LABEL, COLUMN | st.integers(1, 9), min_size=1),
        "ignore": st.lists(COLUMN.filter(lambda text: "," not in text), min_size=1),
    },
)


@settings(deadline=None, max_examples=80)
@given(table=MAPS)
def test_a_map_as_words_is_the_map(table: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Numbers as texts, which mean the same."""
    from test_several import toml

    path = tmp_path_factory.getbasetemp() / "map-project.toml"
    path.write_text("[map]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in table.items()), encoding="utf-8")
    try:
        wanted = column_map(table)
        found = find(str(path))
    except sm.ShapleyMixError:
        return
    assert found is not None
    as_typed = column_map(parse_pairs(found.entries["map"]))
    assert repr(as_typed) == repr(column_map(_texts(table))), wanted


def _texts(table: dict[str, object]) -> dict[str, object]:
    return {
        key: _texts(value) if isinstance(value, dict) else value if isinstance(value, list) else str(value)
        for key, value in table.items()
    }
