"""Completion: what is offered where, and that bash, zsh and fish themselves offer it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.completing import SHELLS, VARIABLE, script
from shapleymix_cli.main import COMMANDS, commands

from shapleymix.laws import BLACK_BOXES, LAWS

LANGUAGES = ["en", "de", "fr", "zh", "ja"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def here(tmp_path: Path, fixtures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(fixtures / "multilingual5_runs.csv", "runs.csv")
    shutil.copy(fixtures / "multilingual5_languages.csv", "languages.csv")
    Path("fit.json").write_text('{"kind": "fit", "sources": ["en", "fr"]}')
    return tmp_path


def offered(line: str) -> list[str]:
    """The completions of a line, whose last word is incomplete; `file` where names of files are asked for."""
    *words, incomplete = line.split(" ")
    found = SHELLS["zsh"](commands, {}, "shapleymix", VARIABLE).get_completions(words, incomplete)
    return ["file" if one.type == "file" else one.value for one in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", list(COMMANDS)),
        ("opt", ["optimize"]),
        ("plan ", ["game", "grid", "mixtures"]),
        ("plot learn", ["learning-curve"]),
        ("optimize --wh", ["--what-if"]),
        ("fit --law ", ["auto", *LAWS, *BLACK_BOXES]),
        ("fit --law=addi", ["additive"]),
        ("laws hell", ["hellinger"]),
        ("compare runs.csv --laws additive,expo", ["additive,exponential"]),
        ("compare runs.csv --laws additive,additive", []),
        ("fit --purpose ", ["within", "beyond"]),
        ("fit ", ["file"]),
        ("fit runs.csv --transfer s", ["file"]),
        ("predict fit.json r", ["file"]),
        ("optimize fit.json --cap ", ["en=", "fr="]),
        ("optimize fit.json --cap en=0.5,", ["en=0.5,fr="]),
        ("optimize fit.json --max-epochs ", ["en=", "fr="]),
        ("optimize fit.json --frontier en:", ["en:fr"]),
        ("optimize fit.json --compare-to u", ["uniform", "unimax:"]),
        ("plot fit fit.json runs.csv --targets en,", ["en,fr"]),
        ("plan mixtures runs.csv --cap d", ["de="]),
        ("plan mixtures --languages languages.csv --sources ", LANGUAGES),
        ("optimize absent.json --cap ", []),
        ("optimize languages.csv --cap ", LANGUAGES),
        ("nonsense --x", []),
        ("plan nonsense --x", []),
        ("fit --bootstrap ", []),
    ],
)
def test_what_is_offered(here: Path, line: str, expected: list[str]) -> None:
    if line == "optimize languages.csv --cap ":
        expected = [f"{name}=" for name in LANGUAGES]
    assert offered(line) == expected


def test_languages_come_from_the_project(here: Path) -> None:
    assert offered("optimize --cap ") == []
    Path("shapleymix.toml").write_text('log = "runs.csv"\n')
    assert offered("optimize --cap f") == ["fr="]
    Path("shapleymix.toml").write_text("log =\n")
    assert offered("optimize --cap f") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_as_it_is(run: Run, shell: str) -> None:
    text = script(shell, commands)
    assert run("completion", shell).out == text
    assert run("completion", shell, "--json").document["script"] == text
    wrong = run("completion tcsh")
    assert (wrong.code, "bash" in wrong.err) == (2, True)
    assert run("completion").err.startswith("error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n")


def asked(shell: str, *lines: str) -> list[list[str]]:
    """What a real shell offers for each line."""
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    program = Path("bin/shapleymix")
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m shapleymix_cli "$@"\n')
    program.chmod(0o755)
    Path("completion").write_text(script(shell, commands))
    steps = {
        "bash": 'COMP_LINE="$1"; COMP_POINT=${#1}; _shapleymix_completion shapleymix; echo "${COMPREPLY[*]}"',
        "fish": "string join ' ' (complete -C $argv[1] | string replace -r '\\t.*' '')",
    }
    calls = "\n".join(f"offer '{line}'" for line in lines)
    opening, closing = ("offer() {", "}") if shell == "bash" else ("function offer", "end")
    text = f". ./completion\n{opening}\n{steps[shell]}\n{closing}\n{calls}\n"
    paths = [str(program.parent.absolute()), os.environ["PATH"]]
    places = [path for path in sys.path if path]
    environment = {**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run([path], input=text, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


LINES = ("shapleymix opt", "shapleymix optimize fit.json --cap en=0.5,", "shapleymix optimize fit.json --frontier en:")


def test_bash_completes(here: Path) -> None:
    """It breaks words at `=` and `:`, and wants the piece behind the last one."""
    assert asked("bash", *LINES) == [["optimize"], ["0.5,fr="], ["fr"]]


def test_fish_completes(here: Path) -> None:
    assert asked("fish", *LINES) == [["optimize"], ["en=0.5,fr="], ["en:fr"]]


def test_zsh_reads_the_script(here: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    done = subprocess.run(["zsh", "-n"], input=script("zsh", commands), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
