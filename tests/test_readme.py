"""The README and the pages: every command parses, and the cheap ones print what they show."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLACES = (*sorted(ROOT.glob("shapleymix/docs/*.md")), *sorted(ROOT.glob("cli/docs/*.md")))
PAGES = "\n".join([*(page.read_text(encoding="utf-8") for page in PLACES), README])
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")
BLOCKS = re.findall(r"```console\n(.*?)```", PAGES, re.DOTALL)
CALLS = [
    line.removeprefix("$ ").split("  #")[0].strip()
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.removeprefix("$ ").startswith("shapleymix ")
]
SHOWN = {
    call: text for block in BLOCKS for call, text in re.findall(r"^\$ (shapleymix .*)\n((?:(?!\$ ).*\n)*)", block, re.M)
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.mark.parametrize("call", dict.fromkeys(CALLS))
def test_every_command_of_the_pages_parses(call: str) -> None:
    name, *words = shlex.split(call)[1:]
    assert name in COMMANDS
    importlib.import_module(f"shapleymix_cli.commands.{name}").command.make_context(name, words)


def test_the_pages_name_every_command() -> None:
    assert [name for name in COMMANDS if f"`shapleymix {name}" not in PAGES] == []


def test_the_tour_runs_what_the_demo_runs() -> None:
    demo = (
        (ROOT / "fixtures" / "demo.sh").read_text(encoding="utf-8").replace("\\\n", " ").replace("$out", "demo-output")
    )
    ran = [" ".join(line.removeprefix("run ").replace('"', "").split()) for line in demo.splitlines()]
    ran = [line for line in ran if line.startswith("shapleymix ")]
    assert [call for call in SHOWN if "demo-output" in call] == ran


def test_the_figures_are_those_that_one_command_draws() -> None:
    """From files that the tour writes, by commands that parse."""
    script = (ROOT / "fixtures" / "figures.sh").read_text(encoding="utf-8")
    words = script.replace("$goal", "fixtures/figures").replace("$made", "demo-output").splitlines()
    calls = [shlex.split(line)[1:] for line in words if line.startswith("draw ")]
    drawn = [call[call.index("-o") + 1] for call in calls]
    assert re.findall(r"!\[[^]]+\]\((fixtures/figures/[^)]+)\)", README) == drawn
    assert sorted(f"fixtures/figures/{path.name}" for path in (ROOT / "fixtures/figures").iterdir()) == sorted(drawn)
    written = {call.partition(" -o ")[2] for call in SHOWN}
    for kind, *rest in calls:
        assert {word for word in rest if word.startswith("demo-output/")} <= written
        importlib.import_module("shapleymix_cli.commands.plot").command.commands[kind].make_context(kind, rest)


@pytest.mark.parametrize("call", [call for call in SHOWN if call.split()[1] in ("shapley", "baselines")])
def test_a_cheap_command_prints_what_the_readme_shows(
    run: Run, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The same words in the same places, and numbers that agree to rounding."""
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    printed, shown = run(call.removeprefix("shapleymix ")).out.split(), SHOWN[call].split()
    assert [NUMBER.sub("#", word) for word in printed] == [NUMBER.sub("#", word) for word in shown]
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(" ".join(words))] for words in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)


def test_faults_are_told_as_the_readme_shows(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = ["run,N,D,p_en,p_de,loss_en,loss_de", "a,1e8,1e11,0.6,0.6,2.1,2.2", "b,1e8,1e11,0.5,0.5,nan,2.2"]
    (tmp_path / "broken.csv").write_text("\n".join([*rows, "b,1e8,1e11,0.4,0.6,2.1,2.2"]) + "\n")
    monkeypatch.chdir(tmp_path)
    assert run("fit broken.csv").err.split() == SHOWN["shapleymix fit broken.csv"].split()
