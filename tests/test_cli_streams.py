"""Streams that are closed, full or hostile: exit codes, files that are written all the same, and no raw escapes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.streams import say

from shapleymix.errors import printable
from shapleymix.fitting.fits import Fit

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'cli')]!r}; from shapleymix_cli.main import main; main()"
GAME = ROOT / "fixtures/multilingual5_coalitions.csv"
ESCAPES = "\x1b\x9b\x07\r\u202e"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def shell(redirections: str, *words: object) -> subprocess.CompletedProcess[str]:
    """The program under a shell that closes or redirects its streams."""
    command = ["sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirections", "code"), [("<&-", 0), ("2>&-", 0), ("2>/dev/full", 0), (">&-", 1), ("<&- >&- 2>&-", 1)]
)
def test_results_are_written_without_streams(tmp_path: Path, redirections: str, code: int) -> None:
    goal = tmp_path / "sv.csv"
    done = shell(redirections, "shapley", GAME, "-o", goal)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr
    assert goal.read_text().startswith("source,target")
    assert "note:" not in done.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    goal = tmp_path_factory.mktemp("fits") / "fit.json"
    log = ROOT / "fixtures/multilingual5_runs.csv"
    assert shell("", "fit", log, "--law", "chinchilla", "--bootstrap", 0, "--folds", 0, "-o", goal).returncode == 0
    return goal


@pytest.mark.parametrize("redirections", [">&-", ">/dev/full"])
@pytest.mark.parametrize(
    "words",
    [
        ["laws"],
        ["laws", "--json"],
        ["fit", "--help"],
        ["--version"],
        ["shapley", str(GAME)],
        ["predict", "FIT", "--mixture", "uniform", "-N", "1M", "-D", "1M", "-q"],
        ["predict", "FIT", "--mixture", "uniform", "-N", "1M", "-D", "1M", "-q", "--json"],
        ["baselines", str(ROOT / "fixtures/multilingual5_languages.csv"), "-D", "1M"],
    ],
)
def test_a_result_that_nobody_gets_is_an_error(saved: Path, redirections: str, words: list[str]) -> None:
    done = shell(redirections, *(str(saved) if word == "FIT" else word for word in words))
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output: ")
    assert len(done.stderr.splitlines()) == 1


def test_an_error_is_said_where_its_document_cannot_be_printed() -> None:
    done = shell(">&-", "fit", "nowhere.csv", "--json")
    assert done.returncode == 1
    assert done.stderr.startswith("error: nowhere.csv: ")


@pytest.mark.parametrize("words", [["laws"], ["laws", "--json"], ["shapley", str(GAME)]])
def test_a_reader_that_has_seen_enough_is_no_error(words: list[str]) -> None:
    command = '"$@" | head -1'
    done = subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("redirections", "words", "code"),
    [
        (">&- 2>&-", ["fit", "nowhere.csv"], 1),
        (">&-", ["fit", "nowhere.csv", "--json"], 1),
        (">/dev/full", ["fitt", "--json"], 2),
        (">/dev/full", ["laws"], 1),
        ("2>/dev/full", ["fitt"], 2),
        ("<&-", ["fit", "-", "--law", "chinchilla"], 1),
    ],
)
def test_exit_codes_survive_broken_streams(redirections: str, words: list[str], code: int) -> None:
    done = shell(redirections, *words)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "internal fault" not in done.stderr


def test_a_file_opened_by_a_command_does_not_become_a_closed_stream(tmp_path: Path) -> None:
    """Descriptor 1 is free when standard output is closed; what is printed must not land in the next file."""
    goal = tmp_path / "sv.json"
    shell(">&- 2>&-", "shapley", GAME, "-o", goal)
    assert json.loads(goal.read_text())["kind"]


def test_a_name_that_is_no_utf8_keeps_the_fit(tmp_path: Path) -> None:
    log = os.fsencode(tmp_path) + b"/b\xe4d.csv"
    goal = os.fsencode(tmp_path) + b"/b\xe4d.json"
    try:
        Path(os.fsdecode(log)).write_bytes((ROOT / "fixtures/multilingual5_runs.csv").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    words = [b"fit", log, b"--law", b"chinchilla", b"--bootstrap", b"0", b"--folds", b"0", b"-o", goal, b"--json"]
    done = subprocess.run([os.fsencode(sys.executable), b"-c", PROGRAM.encode(), *words], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["law"] == "chinchilla"
    Fit.load(os.fsdecode(goal))


@pytest.mark.parametrize("sign", ESCAPES)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_no_raw_escape_reaches_the_terminal(run: Run, tmp_path: Path, sign: str, as_json: list[str]) -> None:
    log = tmp_path / "log.csv"
    rows = "".join(f'"r{sign}{row}",1000,{1000 + row},0.5,0.5,2.{row},2\n' for row in range(9))
    log.write_text(f"run,N,D,p_en,p_de,loss_en,loss_de\n{rows}", newline="")
    header = tmp_path / "header.csv"
    header.write_text(f'run,N,D,p_en,"p_d{sign}e",loss_en\na,1,1,0.5,0.5,2\n', newline="")
    goal = tmp_path / "fit.json"
    quick = ("--law", "chinchilla", "--bootstrap", 0, "--folds", 0)
    outcomes = [
        run("fit", log, *quick, "-o", goal, *as_json),
        run("predict", goal, log, *as_json),
        run("fit", header, *quick, *as_json),
        run("fit", tmp_path / f"no{sign}thing.csv", *as_json),
        run("fit", log, "--law", f"le{sign}arned", *as_json),
        run(f"f{sign}it", *as_json),
        run("fit", log, f"--op{sign}tion", *as_json),
        run("predict", goal, "--mixture", f"e{sign}n=1", "-N", 1000, "-D", 1000, *as_json),
    ]
    for outcome in outcomes:
        assert sign not in outcome.out + outcome.err


def test_printable_shows_what_a_terminal_would_obey() -> None:
    assert printable("plain ä 中 text") == "plain ä 中 text"
    assert printable("\x1b[31m\n") == "\\x1b[31m\\n"
    assert printable("a\nb\x07", "\n") == "a\nb\\x07"
    assert printable("\udce4") == "\\udce4"


def test_inputs_are_hashed_as_they_were_read(tmp_path: Path) -> None:
    """A pipe can be read once: its hash is that of the bytes that were fitted, not of what is left (nothing)."""
    goal = tmp_path / "fit.json"
    words = f"--law chinchilla --bootstrap 0 --folds 0 -q -o {goal} >/dev/null"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    log = ROOT / "fixtures/multilingual5_runs.csv"
    call = f'cat {log} >{pipe} & exec "$0" -c "$1" fit {pipe} {words}'
    done = subprocess.run(["sh", "-c", call, sys.executable, PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert Fit.load(goal).provenance["inputs"] == {str(pipe): sha256(log.read_bytes()).hexdigest()}


def test_a_warning_is_said_once(tmp_path: Path) -> None:
    goal = tmp_path / "fit.json"
    log = ROOT / "fixtures/multilingual5_runs.csv"
    assert (
        shell("", "fit", log, "--law", "chinchilla", "--bootstrap", 0, "--folds", 0, "-q", "-o", goal).returncode == 0
    )
    for environment in ({}, {"PYTHONWARNINGS": "always"}):
        words = ["predict", str(goal), "--mixture", "uniform", "-N", "1B", "-D", "1.9M"]
        call = [sys.executable, "-c", PROGRAM, *words]
        done = subprocess.run(call, capture_output=True, text=True, env={**os.environ, **environment}, check=True)
        remarks = [line for line in done.stderr.splitlines() if "N " in line]
        assert len(remarks) == len(set(remarks)) >= 1
        assert "ShapleyMixWarning" not in done.stderr


def test_messages_fold_at_the_width_of_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "error: " + "far outside " * 20 + "\n  hint: " + "stay near " * 12 + "a-name-that-is-long/" * 6
    say(text)
    assert capsys.readouterr().err == text + "\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    say(text)
    shown = capsys.readouterr().err
    assert shown.split() == text.split()
    assert max(len(line) for line in shown.splitlines() if "a-name" not in line) <= 80
    assert [line for line in shown.splitlines() if not line.startswith("  ")] == [shown.splitlines()[0]]
