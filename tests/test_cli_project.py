"""The project file: what it adds to a call, that whatever is typed wins, and files that say what no project can."""

from __future__ import annotations

import shlex
from importlib import import_module
from pathlib import Path

import click
import pytest
from cli_tools import Run, runner
from hypothesis import given, settings
from hypothesis import strategies as st
from report_tools import data_of
from shapleymix_cli.forms import Command
from shapleymix_cli.main import COMMANDS
from shapleymix_cli.project import ENTRIES, NAME, find

import shapleymix as sm

WHOLE = """log = "runs.csv"
transfer = "sv.csv"
languages = "languages.csv"
weights = {en = 1, de = 2, fr = 1, zh = 1, ja = 1.5}
caps = {ja = 0.3, zh = "25%"}
"""
OPTIONS = {
    "transfer": "--transfer sv.csv",
    "languages": "--languages languages.csv",
    "weights": "--weights en=1,de=2,fr=1,zh=1,ja=1.5",
    "caps": "--cap ja=0.3,zh=25%",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Path:
    """A folder with the tables of the examples, a matrix and a fit."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("runs", "coalitions", "languages", "scores"):
        (folder / f"{name}.csv").write_bytes((fixtures / f"multilingual5_{name}.csv").read_bytes())
    sm.shapley_values(folder / "coalitions.csv").write(folder / "sv.csv")
    found = sm.fit(folder / "runs.csv", law="learned-base", min_own_tokens=20_000, bootstrap=0, folds=0)
    found.save(folder / "fit.json")
    return folder


@pytest.fixture
def here(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder as the current one, with the whole project file."""
    (prepared / NAME).write_text(WHOLE)
    monkeypatch.chdir(prepared)
    return prepared


def commands() -> dict[str, Command]:
    """Every command, those of groups too, by what is typed for it."""
    found: dict[str, Command] = {}
    for name in COMMANDS:
        made = import_module(f"shapleymix_cli.commands.{name}").command
        inner = made.commands.items() if isinstance(made, click.Group) else [("", made)]
        for one, command in inner:
            assert isinstance(command, Command)
            found[f"{name} {one}".strip()] = command
    return found


TAKING = {name: command for name, command in commands().items() if command.project}
SMALLEST = {
    "import": "",
    "fit": "--law learned-base --min-own-tokens 20k --bootstrap 0 --folds 0",
    "compare": "--laws chinchilla,family --folds 2 --min-own-tokens 20k",
    "predict": "fit.json --mixture uniform --mixture en=1 -N 97600 -D 2M",
    "optimize": "fit.json -N 97600 -D 2M",
    "plan mixtures": "--n 1 --fit fit.json --law learned-base",
    "plot fit": "fit.json",
    "plot transfer": "",
    "plot learning-curve": "--law chinchilla --folds 2 --min-own-tokens 20k",
    "baselines": "-D 2M",
    "export": "natural --format json -D 2M",
    "downstream": "--scores scores.csv --chance 0.25",
    "report": "fit.json -o page.html --force",
}
"""The least that is typed for each command that takes entries: with the project it is a whole call."""


def said(name: str) -> tuple[str, str]:
    """Options and arguments that say what the project says, for a command."""
    takes = TAKING[name].project or {}
    if name == "baselines":
        return "", "languages.csv"
    if name == "plot transfer":
        return "", "sv.csv"
    if name == "report":  # whose log is an option
        return " ".join(["--log runs.csv", *OPTIONS.values()]), ""
    return " ".join(text for entry, text in OPTIONS.items() if entry in takes), "runs.csv" if "log" in takes else ""


def test_every_command_that_takes_entries_is_tried() -> None:
    assert set(SMALLEST) == set(TAKING)


def test_an_entry_names_a_parameter_of_every_command_that_takes_it() -> None:
    for command in TAKING.values():
        parameters = {one.name for one in command.params}
        assert {ENTRIES[name].parameter for name in command.project or {}} <= parameters


@pytest.mark.parametrize("name", SMALLEST)
def test_what_is_taken_is_told_and_the_same_as_typed(run: Run, here: Path, name: str) -> None:
    """The document of the short call is that of the long one, provenance and all."""
    short, (options, arguments) = run(f"{name} {SMALLEST[name]} --json"), said(name)
    assert short.code == 0, short.err
    assert f"note: {NAME} adds {f'{options} {arguments}'.strip()}\n" in short.err
    long = run(f"{name} {options} {SMALLEST[name]} {arguments} --project none --json")
    assert long.code == 0, long.err
    assert long.out == short.out
    assert NAME not in long.err


@pytest.mark.parametrize("name", SMALLEST)
def test_what_is_typed_wins(run: Run, here: Path, name: str) -> None:
    """A project of which every file is absent harms no call that says all of it itself: nor how its log is written."""
    absent = '"absent.csv"'
    values = {"long": "true", "bytes_per_token": "4"}
    (here / NAME).write_text("".join(f"{entry} = {values.get(entry, absent)}\n" for entry in ENTRIES))
    options, arguments = said(name)
    outcome = run(f"{name} {options} {SMALLEST[name]} {arguments} --json")
    assert outcome.code == 0, outcome.err
    assert NAME not in outcome.err


@pytest.mark.parametrize("entry", ["languages", "weights", "caps"])
def test_what_asks_for_a_mixture_gives_the_page_and_the_command_the_same(run: Run, here: Path, entry: str) -> None:
    """Each entry alone: the optimum of the report is that of `optimize`, and another than without the entry."""
    (here / NAME).write_text("".join(line for line in WHOLE.splitlines(True) if line.startswith(entry)))
    best, plain = (
        run(f"optimize fit.json -N 97600 -D 9M {more} --json").document["p"] for more in ("", "--project none")
    )
    assert run("report fit.json -N 97600 -D 9M -o page.html --force").code == 0
    shown = data_of((here / "page.html").read_text(encoding="utf-8"))["candidates"][0]["p"]
    assert shown == best != plain


def test_entries_that_would_do_nothing_are_left_out(run: Run, here: Path) -> None:
    one = run("predict fit.json --mixture uniform -N 97600 -D 2M --json")
    assert (one.code, "--weights" in one.err) == (0, False), one.err
    listed = run("plan mixtures --controlled uniform --sources en,de,fr,zh,ja --json")
    assert (listed.code, "--cap" in listed.err, "runs.csv" in listed.err) == (0, False, False), listed.err
    drawn = run("plan mixtures --random 3 --json")
    assert (drawn.code, "--cap" in drawn.err) == (0, True), drawn.err
    scored = run("optimize fit.json -N 97600 -D 2M --downstream absent.json --json")
    assert "--weights" not in scored.err
    before = run("plan mixtures --n 2 -D 2M --sources en,de,fr,zh,ja --json")
    assert (before.code, "runs.csv" in before.err) == (0, False), before.err


def test_no_command_scores_or_plays_the_log_that_was_fitted(run: Run, here: Path) -> None:
    """`evaluate` asks for runs that the fit has not seen, `shapley` for coalitions."""
    assert run("evaluate fit.json").code == 2
    assert run("shapley").code == 2


def test_paths_count_from_the_project_file(
    run: Run, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = run("baselines", "-D", "2M", "--project", here / NAME, "--json")
    assert elsewhere.code == 0
    assert f"adds {here / 'languages.csv'}\n" in elsewhere.err
    assert run("baselines -D 2M").code == 2, "no other folder is searched"


def test_quiet_is_quiet_and_an_input_of_the_project_is_not_overwritten(run: Run, here: Path) -> None:
    assert run("baselines -D 2M -q").err == ""
    overwriting = run("baselines -D 2M -o languages.csv --force")
    assert (overwriting.code, "is an input as well" in overwriting.err) == (2, True)


def test_a_word_that_ends_the_options_is_no_obstacle(run: Run, here: Path) -> None:
    outcome = run("optimize -N 97600 -D 2M --json -- fit.json")
    assert outcome.code == 0, outcome.err
    assert "optimize --transfer" not in outcome.document["provenance"]["command"]
    assert "optimize --languages languages.csv" in outcome.document["provenance"]["command"]


def test_help_and_a_broken_project_go_together(run: Run, here: Path) -> None:
    (here / NAME).write_text("log = \n")
    assert run("fit --help").code == 0
    broken = run("fit runs.csv")
    told = f'error: {NAME}:1: is no TOML: Invalid value\n  hint: texts stand in quotes: log = "runs.csv"\n'
    assert (broken.code, broken.err) == (1, told)
    assert run("fit --project absent.toml").err.startswith("error: absent.toml: cannot be read")


WRONG = {
    'sv = "a.csv"': ("is no entry of a project file", "did you mean 'transfer'?"),
    'logs = "a.csv"': ("is no entry of a project file", "did you mean 'log'?"),
    "log = 3": ("is an int", "write log ="),
    "log = []": ("is a list", "write log ="),
    'log = ["a.csv", 3]': ("is an int", "write log ="),
    'log = "-"': ("is standard input", "write log ="),
    'transfer = ["a.csv", "b.csv"]': ("is a list", "write transfer ="),
    'languages = ""': ("is empty", "write languages ="),
    "caps = {en = true}": ("gives 'en' True", "write caps ="),
    "caps = {en = nan}": ("gives 'en' nan", "write caps ="),
    "caps = {}": ("is empty", "write caps ="),
    "caps = 0.5": ("is a float", "write caps ="),
    '[caps]\n"en,de" = 0.5': ("names 'en,de'", "write caps ="),
    "[weights]\nen = -1": ("gives 'en' -1", "write weights ="),
    "[weights.en]\nde = 1": ("gives 'en' {'de': 1}", "write weights ="),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_no_project_can_say_is_told_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(f"\n{text}\n")
    message, hint = WRONG[text]
    with pytest.raises(sm.DataError) as caught:
        find(str(path))
    assert caught.value.message.startswith(message)
    assert (caught.value.hint or "").startswith(hint)
    assert caught.value.location.line == 2


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("log = 1\ntransfer = 2\nsvv = 3\n")
    with pytest.raises(sm.DataError) as caught:
        find(str(path))
    assert [fault.location.line for fault in caught.value.faults] == [1, 2, 3]


def test_a_file_that_is_no_text_and_one_that_is_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b"log = '\xff\xfe'")
    with pytest.raises(sm.DataError, match="is not a UTF-8 text file"):
        find(str(path))
    with pytest.raises(sm.DataError, match="cannot be read"):
        find(str(tmp_path))
    path.write_text(f"caps = {{en = {'9' * 5000}}}")
    with pytest.raises(sm.DataError, match="is no TOML: Exceeds the limit"):
        find(str(path))
    path.write_bytes("\ufefflog = 'a.csv'\r\n".encode())
    found = find(str(path))
    assert found is not None
    assert found.entries == {"log": (str(tmp_path / "a.csv"),)}


NAMES = st.text("ab=\"'\\ #[]{}.-~$*/é中\u0301", min_size=1, max_size=8).filter(str.strip)


@settings(deadline=None, max_examples=60)
@given(caps=st.dictionaries(NAMES, st.floats(0, 1), min_size=1), log=NAMES.filter(lambda name: name.strip() != "-"))
def test_any_name_and_number_comes_through(
    tmp_path_factory: pytest.TempPathFactory, caps: dict[str, float], log: str
) -> None:
    """Written as TOML, taken as words, and told as a shell takes them."""
    path = tmp_path_factory.getbasetemp() / "any.toml"
    rows = "".join(f"{quoted(name)} = {number!r}\n" for name, number in caps.items())
    path.write_text(f"log = {quoted(log)}\n[caps]\n{rows}", encoding="utf-8")
    found = find(str(path))
    assert found is not None
    command = TAKING["plan mixtures"]
    taken = found.taken(command.params, command.project or {}, {})
    read = [word.rsplit("=", 1) for word in taken.options[1].split(",")]
    assert read == [[name, repr(number)] for name, number in caps.items()]
    assert taken.arguments == (str(path.parent) + "/" + log,) or log.startswith("/")
    assert shlex.split(taken.told()[0].partition(" adds ")[2]) == [*taken.options, *taken.arguments]


def quoted(text: str) -> str:
    """A text as TOML writes it."""
    backslash = "\\"
    return '"' + text.replace(backslash, backslash * 2).replace('"', backslash + '"') + '"'
