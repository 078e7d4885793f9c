"""The frame of the command line: options, help, errors, files, the project file, streams."""

from __future__ import annotations  # as commands have them

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from cli_tools import Run, every_command
from shapleymix_cli import command_factory, console
from shapleymix_cli.console import Output, Table, show
from shapleymix_cli.main import COMMANDS, commands

import shapleymix as sm
from shapleymix.errors import DataError, Fault, Location

MOST_OPTIONS = 220
LOG = "example/runs.csv"


@pytest.fixture
def run(run: Run) -> Run:
    """Runs commands in a folder with the example's tables."""
    assert run("example").code == 0
    return run


def in_a_process(*words: str, **settings: object) -> subprocess.Popen[str]:
    """Python with arguments, which `-m shapleymix_cli` begins or `-c`."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
    return subprocess.Popen([sys.executable, *words], **(pipes | settings))  # type: ignore[call-overload]


# --- options and help -------------------------------------------------------------------------------------------------


def test_options_are_few() -> None:
    options = [one for made in every_command().values() for one in made.params if isinstance(one, click.Option)]
    assert len(options) <= MOST_OPTIONS


@pytest.mark.parametrize("words", every_command())
def test_every_command_has_help_and_examples(run: Run, words: str) -> None:
    made = every_command()[words]
    shown = run(f"{words} --help")
    assert shown.code == 0
    assert all(example in shown.out for example in getattr(made, "examples", ()))
    assert all(one.help for one in made.params if isinstance(one, click.Option))


def test_help_of_all_commands_imports_none_of_them() -> None:
    call = "import sys; from shapleymix_cli.main import commands; commands.main(['--help'], standalone_mode=False)"
    call += "; print(sorted({'numpy', 'polars', 'cvxpy', 'scipy', 'rich.table'} & set(sys.modules)), file=sys.stderr)"
    out, err = in_a_process("-c", call).communicate(timeout=60)
    assert err.strip() == "[]"
    assert all(name in out for name in COMMANDS)
    assert all(line in out for line in commands.examples)
    assert commands.examples


Ratios = dict[str, float]


def f(log: str, caps: Ratios | None = None, rate: float = 0.5, groups: Sequence[str] = (), many: bool = False) -> None:
    """A function.

    Parameters
    ----------
    log : str
        A table.
    caps : Ratios, optional
        Highest ratios, such as
        `"en=0.3"`.
    rate, many : float and bool
        Two things.
    """


def test_options_are_those_of_a_signature() -> None:
    made: dict[str, Any] = {str(one.name): one for one in command_factory.options_of(f)}
    assert list(made) == list(inspect.signature(f).parameters)
    assert made["caps"].help == "Highest ratios, such as en=0.3."
    assert made["caps"].multiple
    assert made["caps"].by_name
    assert made["groups"].multiple
    assert made["many"].is_flag
    assert "0.5" in str(made["rate"].help)
    assert made["rate"].type.convert("243M", None, None) == 243e6
    assert command_factory.value_of(made["caps"], ("en=0.1", "de=0.2")) == "en=0.1,de=0.2"
    assert command_factory.value_of(made["groups"], ("a<=1",)) == ["a<=1"]


def test_a_flag_is_the_keyword_of_the_library() -> None:
    known = set(inspect.signature(sm.fit).parameters)
    flags = {one.opts[-1] for one in every_command()["fit"].params if isinstance(one, click.Option)}
    assert {"--law", "--bootstrap", "--min-own-tokens"} <= flags
    assert {flag[2:].replace("-", "_") for flag in flags - {"--output", "--force"}} <= known


def test_version_and_no_arguments(run: Run) -> None:
    assert run("--version").out.split() == ["shapleymix", sm.__version__]
    assert in_a_process("-m", "shapleymix", "--version").communicate()[0] == run("--version").out
    assert "Commands:" in run("").out


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("shaply", 2), ("plan gaem", 2), ("fit", 2), (f"fit {LOG} --foo", 2), (f"fit {LOG} --bootstrap many", 2),
        (f"fit {LOG} --law lerned-base", 2), (f"fit {LOG} --law no.py:Law", 2), (f"fit {LOG} -o nowhere/fit.json", 2),
        (f"fit {LOG} -o {LOG}", 2), ("fit no.csv", 1), ("fit no.csv -o fit.txt", 2),
        ("plan mixtures --n 3 --random 2 --sources a,b", 2), ("optimize no.json", 1), (f"optimize {LOG}", 1),
        ("laws nothing", 2), ("plot mixture a.json -o a.png", 1), ("report fit.json", 1), ("launch no.jsonl", 1),
        ("baselines --languages example/languages.csv -D much", 2), ("fit --project no.toml", 1),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_error(run: Run, line: str, code: int) -> None:
    shown, told = run(line), run(f"{line} --json")
    assert ((shown.code, told.code), shown.out) == ((code, code), "")
    assert shown.err.splitlines()[-1].startswith(("error: ", "  hint: "))
    error = told.document["error"]
    assert error["message"]
    assert set(error) >= {"code", "message", "hint", "location"}
    assert "internal" not in error["message"]


def test_the_nearest_name_is_offered(run: Run) -> None:
    assert "shapley" in run("shaply --json").document["error"]["hint"]
    assert "bootstrap" in run(f"fit {LOG} --bootstrp 3 --json").document["error"]["message"]


def test_many_faults_are_counted() -> None:
    faults = [Fault("odd", Location("a.csv", line)) for line in range(2000)]
    document = console.document_of(DataError.of(faults, "a.csv"))
    assert document["fault_count"] == 2000
    assert len(document["faults"]) == console.MOST_FAULTS  # type: ignore[arg-type]


def test_a_fault_of_ours_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapleymix_cli.console.show", lambda *_, **__: 1 / 0)
    assert run("laws").code == 1
    assert "internal" in run("laws --json -q").err + run("laws").err


def test_interruption_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sm, "read_runs", stop)
    assert run(f"fit {LOG}").code == 130


@pytest.mark.parametrize("after", [0.2, 0.6, 1.5])
def test_ctrl_c_at_any_time_leaves_no_traceback(after: float) -> None:
    """While the library is imported, and while it fits."""
    log = Path(__file__).parents[1] / "fixtures/multilingual5_runs.csv"
    call = "from shapleymix_cli.main import commands; print('ready', flush=True); "
    call += f"commands.main(['fit', {str(log)!r}])"
    with in_a_process("-c", call) as done:
        assert done.stdout.readline() == "ready\n"
        time.sleep(after)
        done.send_signal(signal.SIGINT)
        _, err = done.communicate(timeout=60)
    assert done.returncode in (0, 130)  # 0 once in 100: Python's import loses the exception
    assert "Traceback" not in err


# --- files and streams ------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(run: Run) -> None:
    words = "shapley example/coalitions.csv -o sv.csv"
    assert run(words).code == 0
    before = Path("sv.csv").read_bytes()
    assert run(words).code == 2
    assert run(f"{words} --force").code == 0
    assert Path("sv.csv").read_bytes() == before


def test_the_same_call_gives_the_same_bytes(run: Run) -> None:
    for name in ("one.json", "two.json"):
        assert run(f"shapley example/coalitions.csv --sampled -o {name}").code == 0
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_a_result_says_what_it_was_made_from(run: Run) -> None:
    provenance = run("shapley example/coalitions.csv --json").document["provenance"]
    assert provenance["command"] == "shapleymix shapley example/coalitions.csv"
    assert list(provenance["inputs"]) == ["example/coalitions.csv"]


def test_what_every_command_takes_may_stand_anywhere(run: Run) -> None:
    assert run("--json laws").document == run("laws --json").document
    assert run("laws -- --json").code == 2


def test_standard_input_and_a_closed_pipe(tmp_path: Path) -> None:
    log = Path(__file__).parents[1] / "fixtures/multilingual5_coalitions.csv"
    with log.open() as text:
        done = in_a_process("-m", "shapleymix_cli", "shapley", "-", "--json", stdin=text, cwd=tmp_path)
        out, err = done.communicate(timeout=60)
    assert json.loads(out)["kind"] == "transfer", err
    done = in_a_process("-m", "shapleymix_cli", "laws", stderr=subprocess.DEVNULL)
    done.stdout.close()
    assert done.wait(60) == 0


def test_remarks_are_on_standard_error_and_quiet_keeps_them(run: Run) -> None:
    line = "transfer example/irds_raw.csv"
    assert run(line).err.startswith("warning: ")
    assert run(f"{line} -q").err == ""
    assert run(line).out == run(f"{line} -q").out


def test_calibrated_values_are_nats_when_they_are_read_again(run: Run) -> None:
    raw, calibrated = run("transfer example/irds_raw.csv"), run("transfer example/irds_raw.csv --calibrate -o cal.csv")
    assert "in nats" not in raw.out
    again = run("transfer cal.csv")
    assert (again.err, again.out) == ("", calibrated.out)
    assert "in nats" in again.out


def test_at_most_three_warnings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose, lines in ((False, 4), (True, 9)):
        Output(verbose=verbose).warn(f"warning {number}" for number in range(9))
        assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fold_between_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("shapleymix_cli.console.PAGE", width)
    columns = {f"column-{number}": [number / 7, float("nan")] for number in range(9)}
    show([Table({"name": ["中文", "a"], **columns})])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert sum("column-8" in line for line in lines) == 1
    assert all(f"{number / 7:.4f}" in "\n".join(lines) for number in range(9))


def test_many_rows_are_shortened_unless_all_are_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table({"name": [f"n{number}" for number in range(50)]})
    show([table])
    assert "n49" not in capsys.readouterr().out
    show([table], everything=True)
    assert "n49" in capsys.readouterr().out


# --- the project file -------------------------------------------------------------------------------------------------


def test_a_project_file_gives_what_is_not_typed(run: Run) -> None:
    Path("shapleymix.toml").write_text(
        'log = "example/runs.csv"\n[fit]\nlaw = "chinchilla"\nfolds = 0\nbootstrap = 0\n'
    )
    found = run("fit --json").document
    assert found["law"]["kind"] == "law/chinchilla"
    assert run("fit --json --law shapley --project none").code == 2
    assert run("fit --json --law mariner").document["law"]["kind"] == "law/mariner"


def test_files_of_a_project_lie_beside_it(run: Run) -> None:
    assert run("fit --law chinchilla --folds 0 --bootstrap 0 --project example/shapleymix.toml -o fit.json").code == 0
    caps = run("optimize fit.json -N 97600 -D 2M --project example/shapleymix.toml --json").document
    assert "error" in caps or dict(zip(caps["sources"], caps["caps"], strict=True))["ja"] == 0.3


@pytest.mark.parametrize("text", ["caps = {en 1}", "cap = {en = 1}", "[fit]\nlow = 'auto'", "[fitt]\nlaw = 'auto'"])
def test_a_wrong_project_file_is_one_error(run: Run, text: str) -> None:
    Path("shapleymix.toml").write_text(text)
    error = run(f"fit {LOG} --json").document["error"]
    assert error["location"]["file"] == "shapleymix.toml"
