"""The README and the pages: Python runs, and cheap commands print what is shown below them.

What is shown of the demo, whose fit takes a while, is held to it by `test_shown_demo`.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from cli_tools import Run, runner
from shapleymix_cli.main import COMMANDS
from shown_tools import PAGES, ROOT, Shown, agree, blocks, calls, check, demo, of_the_demo, paired, shown

from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.fits import Fit

BLOCKS = list(blocks())
CALLS = {call: block.place for block in BLOCKS if block.language == "console" for call in calls(block)}
LANGUAGES = {
    "console": "its commands parse (`test_pages`); what is shown below them is run here, or by test_shown_demo",
    "python": "run here",
    "toml": "shows a file",
}
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
FAULTS = """run,N,D,p_en,p_de,loss_en,loss_de
a,1e8,1e11,0.6,0.6,2.1,2.2
b,1e8,1e11,0.5,0.5,nan,2.2
b,1e8,1e11,0.4,0.6,2.1,2.2
"""
FILES = {"broken.csv": FAULTS}
"""What calls read that no folder of the repository holds."""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user's commands start: a folder with the fixtures, and one for what the demo writes."""
    (tmp_path / "demo-output").mkdir()
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_other_commands_of_the_pages_are_known() -> None:
    """Programs that the repository brings, or that everybody has; targets that the Makefile has."""
    others = {call.split()[0] for call in CALLS} - {"shapleymix"}
    assert others <= {"pip", "python", "make"}, others
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = re.findall(r"(?:^|`)make ([a-z][a-z-]*)", TEXT + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [goal for goal in asked if not re.search(rf"^{goal}:", makefile, flags=re.M)] == []


def test_no_output_is_shown_that_no_test_runs() -> None:
    """A fence without a language hid warnings that nobody ran."""
    assert [block.place for block in BLOCKS if block.language not in LANGUAGES] == []
    run_here = {block.page for block in BLOCKS if block.language == "python"}
    assert run_here == {"shapleymix/docs/library.md"}
    prompted = [block for block in BLOCKS if re.search(r"^\$ ", block.text, flags=re.M)]
    assert [one.place for one in prompted if one.language != "console" or not one.text.startswith("$ ")] == []
    fences = re.findall(r"^\s*(?:```|~~~)", TEXT, flags=re.M)
    assert len(fences) == 2 * len(BLOCKS), "a fence is indented, or its language is more than a word"
    assert [one.place for one in shown() if not one.call.startswith("shapleymix ")] == []


def test_the_map_of_the_command_line_has_every_command_once() -> None:
    """By the step that it is for, with its options in the reference; what each does, the reference says."""
    page = (ROOT / "cli/docs/README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\[`(\w+)`\]\(reference\.md#shapleymix-\1\)", page)) == sorted(COMMANDS)


def test_the_tour_runs_what_the_demo_runs() -> None:
    tour = [one.call for one in shown() if one.place.startswith("cli/docs/tour.md")]
    assert [call for call in tour if " > " not in call] == demo()


def test_the_figures_are_those_that_one_command_draws() -> None:
    """From files that the tour writes, by commands that parse."""
    script = (ROOT / "fixtures" / "figures.sh").read_text(encoding="utf-8")
    words = script.replace("$goal", "fixtures/figures").replace("$made", "demo-output").splitlines()
    drawing = [shlex.split(line)[1:] for line in words if line.startswith("draw ")]
    drawn = [call[call.index("-o") + 1] for call in drawing]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"!\[[^]]+\]\((fixtures/figures/[^)]+)\)", readme) == drawn
    assert sorted(f"fixtures/figures/{path.name}" for path in (ROOT / "fixtures/figures").iterdir()) == sorted(drawn)
    written = {call.partition(" -o ")[2] for call in demo()}
    for kind, *rest in drawing:
        assert {word for word in rest if word.startswith("demo-output/")} <= written
        importlib.import_module("shapleymix_cli.commands.plot").command.commands[kind].make_context(kind, rest)


@pytest.mark.usefixtures("clone")
@pytest.mark.parametrize("one", [one for one in shown() if not of_the_demo(one)], ids=lambda one: one.place)
def test_a_command_prints_what_is_shown(run: Run, one: Shown) -> None:
    """The same words in the same lines, and numbers that agree to rounding."""
    outcome = run(*one.words)
    check(one.text, one.of(outcome.out, outcome.err))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The blocks of the library's page, run one after the other as one program."""
    page, place = ModuleType("library_page"), tmp_path_factory.mktemp("library")
    shutil.copytree(ROOT / "fixtures", place / "fixtures", ignore=shutil.ignore_patterns("study", "figures", "*.py"))
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ShapleyMixWarning)  # a fit to five tiny languages has its doubts
        patch.chdir(place)
        patch.setitem(sys.modules, page.__name__, page)  # dataclasses look their module up
        for block in BLOCKS:
            if block.page == "shapleymix/docs/library.md" and block.language == "python":
                exec(compile("\n" * block.line + block.text, block.page, "exec"), vars(page))
    return page


def test_the_librarys_page_runs(library: ModuleType) -> None:
    """Its blocks, and the law of one's own at its end is fitted well."""
    assert library.mix.relative_gap < 1e-9
    assert library.curve.entries
    assert isinstance(library.fit, Fit)
    assert library.fit.law.name == "roots"
    assert np.isfinite(library.fit.fitted_scores.mean["PE"])
    assert library.fit.held_out is not None
    assert library.fit.held_out.mean["PE"] < 0.05


OUTPUT = "en  1.0 ±0.2\n\nde  2.5 ±0.1\nsum 3.5\nDone.\n"


@pytest.mark.parametrize(
    "page",
    [OUTPUT, "en  1.0 ±0.2\n...\nDone.\n", "...\nsum 3.5\n...\n", "en  1.0005 ±0.2\n...\n", "...\n", "...\nDone.\n"],
)
def test_a_page_may_leave_lines_out(page: str) -> None:
    check(page, OUTPUT)


@pytest.mark.parametrize(
    "page",
    [
        "",
        OUTPUT.replace("sum", "total"),
        OUTPUT.replace("2.5", "2.7"),
        OUTPUT.replace("Done.\n", ""),
        OUTPUT + "More.\n",
        "sum 3.5\n...\n",
        "...\nsum 3.5\n",
        "...\nDone.\n...\nsum 3.5\n...\n",
        "...\nen  1.0 ±0.2\nsum 3.5\n...\n",
    ],
)
def test_a_page_that_shows_something_else_is_noticed(page: str) -> None:
    with pytest.raises(AssertionError):
        check(page, OUTPUT)


def test_lines_are_paired_in_order() -> None:
    assert paired("a 1\n...\nc 3", "a 1.0\nb 2\nc 3.0\n") == [("a 1", "a 1.0"), ("c 3", "c 3.0")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.3206 12,345", "0.3207 12,346", True),
        ("0.3206", "0.3216", False),
        ("-0.276 ±0.065", "0.276 ±0.065", False),
        ("< 2.531e+05", "< 2.530e+05", True),
        ("< 2.531e+05", "< 2.531e+04", False),
        ("(1e-15 of it)", "(3e-16 of it)", True),
        ("98%", "97%", True),
        ("98%", "95%", False),
    ],
)
def test_numbers_agree_to_the_digits_that_are_shown(one: str, other: str, same: bool) -> None:
    assert agree(one, other) is same
