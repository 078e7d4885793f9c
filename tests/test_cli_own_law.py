"""A user's own law through the whole command line: fit, predict, optimize, evaluate, and every way to get it wrong."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner

from shapleymix.fitting.fits import Fit

ROOT = Path(__file__).parents[1]
LOG = ROOT / "fixtures" / "multilingual5_runs.csv"
QUICK = ("--min-own-tokens", "20k", "--bootstrap", 3, "--folds", 0)
AT = ("-N", 97600, "-D", "2M")
TWIN = """
from dataclasses import dataclass

from shapleymix.laws.learned_base import LearnedBase


@dataclass(frozen=True)
class Twin(LearnedBase):
    kind = "law/twin-of-a-test"
    name = "twin"

    def losses(self, p, N, D):
        if D.max() > 1e12:
            raise OverflowError("too far")
        return super().losses(p, N, D)


@dataclass(frozen=True)
class Nameless(LearnedBase):
    name = "nameless"


class Flat:
    def predict(self, p, N, D):
        return p
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the law's file, its fit, and the fit of the library's law whose twin it is."""
    from shapleymix_cli.main import commands

    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(TWIN)
    for law, goal in ((f"{folder}/mine.py:Twin", "twin.json"), ("learned-base", "learned.json")):
        call = ("fit", LOG, "--law", law, *QUICK, "-o", folder / goal, "-q")
        assert commands.main([str(word) for word in call], standalone_mode=False) == 0
    return folder


QUESTIONS = {
    "predict": ("--mixture", "en=0.5,zh=0.5", *AT),
    "optimize": (*AT, "--cap", "zh=0.3"),
    "evaluate": (LOG,),
}


@pytest.mark.parametrize("command", QUESTIONS)
def test_a_fit_of_ones_own_law_answers_as_its_twin_in_the_library(run: Run, made: Path, command: str) -> None:
    own = run(command, made / "twin.json", "--law-file", f"{made}/mine.py:Twin", *QUESTIONS[command], "--json")
    assert own.code == 0
    assert "SHA-256" not in own.err
    twin = run(command, made / "learned.json", *QUESTIONS[command], "--json").document
    found = own.document
    for name in ("predictions", "mixture", "objective", "score"):
        assert found.get(name) == twin.get(name)


def test_the_fit_is_read_back_bit_for_bit_and_says_where_its_law_is(made: Path) -> None:
    from shapleymix_cli.own_laws import own_law

    own = own_law(f"{made}/mine.py:Twin")
    found = Fit.load(made / "twin.json")
    assert type(found.law) is own.law
    assert json.loads((made / "twin.json").read_text()) == found.to_document()
    assert found.provenance["law_file"] == f"{made}/mine.py:Twin"
    assert found.provenance["law_sha256"] == hashlib.sha256(TWIN.encode()).hexdigest()
    assert found.provenance["inputs"][f"{made}/mine.py"] == found.provenance["law_sha256"]


def test_the_own_law_of_the_page_is_fitted_read_back_and_optimised(run: Run, tmp_path: Path) -> None:
    """Fault: a symbol that is annotated as np.ndarray, without a type of its cells, was read back as a list."""
    page = (ROOT / "shapleymix/docs/library.md").read_text(encoding="utf-8")
    text = re.findall(r"```python\n(.*?)```", page.split("## A law of your own")[1], re.DOTALL)[0]
    (tmp_path / "my_law.py").write_text(text.split("\n\n\nfit = ")[0] + "\n")
    law, goal = f"{tmp_path}/my_law.py:Roots", tmp_path / "fit.json"
    made = run("fit", LOG, "--law", law, *QUICK, "-o", goal, "--json").document
    read = ("--law-file", law, *AT, "--json")
    predicted = run("predict", goal, "--mixture", "uniform", "--mixture", "en=0.5,zh=0.5", *read).document
    assert len(predicted["predictions"]) == 2
    best = run("optimize", goal, "--allow-nonconvex", *read).document
    uniform = np.mean(list(predicted["predictions"][0]["loss"].values()))
    assert best["objective"] < uniform
    found = Fit.load(goal)
    assert json.loads(goal.read_text()) == found.to_document()
    assert made["law"] == "roots"


@pytest.mark.parametrize("command", QUESTIONS)
def test_without_its_file_the_fit_is_refused_with_the_way_out(
    run: Run, made: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shapleymix import records

    monkeypatch.delitem(records._KINDS, "law/twin-of-a-test", raising=False)
    outcome = run(command, made / "twin.json", *QUESTIONS[command], "--json")
    error = outcome.document["error"]
    assert (outcome.code, error["code"]) == (1, "bad_file")
    assert "law/twin-of-a-test" in error["message"]
    assert "--law-file my_law.py:MyLaw" in error["hint"]
    assert error["location"] == {"file": str(made / "twin.json"), "line": None, "column": "law"}


def test_a_file_that_changed_is_told(run: Run, made: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TWIN + "\n# a remark\n")
    call = ("predict", made / "twin.json", "--law-file", f"{tmp_path}/mine.py:Twin", *QUESTIONS["predict"])
    outcome = run(*call)
    assert outcome.code == 0
    assert "is not the file that was fitted" in outcome.err


def test_an_error_of_the_law_is_the_files(run: Run, made: Path) -> None:
    call = ("predict", made / "twin.json", "--law-file", f"{made}/mine.py:Twin", "--mixture", "en=1", "-N", "1M")
    outcome = run(*call, "-D", "2T", "--json")
    error = outcome.document["error"]
    assert (outcome.code, error["message"]) == (2, "failed, OverflowError: too far")
    assert (error["location"]["file"], error["location"]["line"]) == (str(made / "mine.py"), 14)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", LOG, "--law", "{}/mine.py:Flat"), "Flat is no law that can be fitted"),
        (("fit", LOG, "--law", "{}/mine.py:Nameless", *QUICK, "-o", "{}/no.json"), "no kind of its own"),
        (("fit", LOG, "--law", "{}/mine.py:Twim"), "did you mean 'Twin'?"),
        (("fit", LOG, "--law", "{}/none.py:Twin"), "there is no such file"),
        (("fit", LOG, "--law", "{}/taken.py:Twin"), "'law/learned-base' is the kind of LearnedBase"),
        (
            ("predict", "{}/learned.json", "--law-file", "{}/mine.py:Twin", "--mixture", "en=1"),
            "holds law 'learned-base'",
        ),
        (("predict", "{}/twin.json", "--law-file", "mine", "--mixture", "en=1"), "'mine' is no law of a file"),
    ],
)
def test_what_is_no_law_of_ones_own_is_refused_by_name(
    run: Run, made: Path, words: tuple[object, ...], message: str
) -> None:
    (made / "taken.py").write_text(TWIN.replace("law/twin-of-a-test", "law/learned-base"))
    outcome = run(*(str(word).format(made) for word in words))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err
    assert not (made / "no.json").exists()
