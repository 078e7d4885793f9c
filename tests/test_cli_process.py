"""The program as a process: what it imports, its pipes, its exit codes, and the examples in its helps."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import COMMANDS, EXAMPLES

HEAVY = ("numpy", "polars", "scipy", "cvxpy", "rich", "torch", "pandas")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def process(*words: str, **options) -> subprocess.Popen:
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'cli')]!r}; from shapleymix_cli.main import main; main()"
    )
    return subprocess.Popen([sys.executable, "-c", code, *words], **options)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fit", "--help"], ["optimize", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'cli')]!r}\n"
        "from shapleymix_cli.main import commands\n"
        f"code = commands.main({words!r}, standalone_mode=False)\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY [] 0"


def test_a_closed_pipe_ends_quietly() -> None:
    child = process("laws", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    assert (child.wait(), errors) == (0, b"")


def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    for words, code in ((["laws"], 0), (["fit", str(tmp_path)], 1), (["fit"], 2)):
        child = process(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert child.wait() == code


def test_output_that_a_terminal_cannot_show_is_no_failure() -> None:
    child = process(
        *("shapley", str(ROOT / "fixtures/multilingual5_coalitions.csv"), "--sampled", "--samples", "14"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONIOENCODING": "ascii"},
    )
    output, errors = child.communicate()
    assert (child.returncode, errors) == (0, b"")
    assert b"\\xb1" in output


def test_help_lists_every_command_and_begins_with_examples(run: Run) -> None:
    text = run("--help").out
    assert text.startswith("Examples:\n  shapleymix ")
    assert all(f"  {name} " in text for name in COMMANDS)
    assert run("").out == text
    for name in COMMANDS:
        assert run(f"{name} --help").out.startswith("Examples:\n  shapleymix ")


def test_every_command_takes_the_common_options() -> None:
    for name in COMMANDS:
        found = import_module(f"shapleymix_cli.commands.{name}").command
        for one in found.commands.values() if isinstance(found, click.Group) else [found]:
            known = {option for parameter in one.params for option in parameter.opts}
            assert {"--json", "-q", "-v"} <= known


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)  # an empty folder: what an example needs, an example before it writes
    for example in import_module(f"shapleymix_cli.commands.{name}").command.examples:
        program, *words = shlex.split(example)
        assert program == "shapleymix"
        outcome = run(*words)
        assert outcome.code == 0, f"{example}: {outcome.err}"
        assert outcome.out


def test_the_group_has_examples_of_every_step() -> None:
    steps = [line.split()[1] for line in EXAMPLES.splitlines()[1:] if line]
    assert steps == ["example", "shapley", "fit", "optimize"]


def test_the_examples_of_the_group_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES.splitlines()[1:]:
        quick = " --bootstrap 5 --folds 3" if " fit " in example else ""
        outcome = run(*shlex.split(example + quick)[1:])
        assert outcome.code == 0, f"{example}: {outcome.err}"


def test_no_command_imports_another_and_documents_know_no_screen() -> None:
    for wing, forbidden in (
        ("commands", "shapleymix_cli.commands."),
        ("documents", "shapleymix_cli.views"),
        ("views", "shapleymix_cli.commands"),
    ):
        for path in (ROOT / "cli/shapleymix_cli" / wing).glob("*.py"):
            assert forbidden not in path.read_text(encoding="utf-8"), path
