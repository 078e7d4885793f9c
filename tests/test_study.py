"""The study's report: its tables, where they are pasted, and what it says of files that are missing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import game
import inrun
import numpy as np
import promising
import published
import pytest
from logs import HERE, NotYetError, Study, UnusableError
from pasting import pasted, places
from sections import SECTIONS, joined, printed, written
from tables import estimate, mean_and_error, percent, table, value

NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
README = places((HERE / "README.md").read_text(encoding="utf-8"))
CHEAP = {
    "game.exact": game.exact,
    "game.noise": game.noise,
    "game.sizes": game.sizes,
    "game.in_run": inrun.in_run,
    "game.again": inrun.again,
    "game.paper": inrun.paper,
    "game.in_run_values": game.in_run_values,
    "published.overall": published.overall,
    "published.by_target": published.by_target,
}

MARKED = """before
<!-- study-report: game.exact -->
old
<!-- end of study-report -->
between
<!-- study-report: laws -->
kept
<!-- end of study-report -->
"""


def test_a_table_has_its_numbers_to_the_right():
    text = table({"law": ["a", "b"], "PE": ["1.20 ± 0.10", ""], "runs": [3, None]})
    assert text.splitlines() == [
        "| law | PE | runs |",
        "| --- | ---: | ---: |",
        "| a | 1.20 ± 0.10 | 3 |",
        "| b |  |  |",
    ]


def test_numbers_are_written_with_their_error_where_it_is_known():
    assert [value(1.23456), value(np.nan)] == ["1.235", ""]
    assert [estimate(-1.5, 0.25, 2), estimate(1.5, np.nan, 2)] == ["-1.50 ± 0.25", "1.50"]
    assert percent(0.0263, 0.0027) == "2.63% ± 0.27%"


def test_mean_and_error_are_those_of_the_finite_values():
    assert mean_and_error([1.0, np.nan, 3.0]) == pytest.approx((2.0, 1.0))
    assert mean_and_error([1.0])[0] == 1.0
    assert np.isnan(mean_and_error([1.0])[1])
    assert np.isnan(mean_and_error([])).all()


def test_text_is_put_into_its_place_and_nowhere_else():
    done = pasted(MARKED, {"game.exact": "new \\1 text\n", "absent": "no"})
    assert places(done) == {"game.exact": "new \\1 text", "laws": "kept"}
    assert [line for line in done.splitlines() if line in ("before", "between", "old")] == ["before", "between"]
    assert pasted(done, {"game.exact": "new \\1 text"}) == done


def test_a_missing_file_is_a_line_that_names_it(tmp_path: Path):
    with pytest.raises(NotYetError, match=r"game-tiny\.csv"):
        _ = Study(tmp_path).sv
    texts = {part.name: part for part in written(Study(tmp_path), ["game"])}
    assert texts["game.exact"].text.startswith("`game-tiny.csv` is not there yet")
    assert texts["game"].usable, "what is not there yet is no fault"


FIVE = HERE.parent
FOREIGN = {
    "log.csv": (FIVE / "multilingual5_runs.csv").read_text(),
    "game-tiny.csv": (HERE / "game-tiny.csv").read_text().replace(",1\n", ",2\n"),
    "proof.csv": (FIVE / "multilingual5_runs.csv").read_text(),
    "promised.csv": "problem,mixture\na,b\n",
    "monolingual.csv": "",
}


@pytest.fixture
def broken(tmp_path: Path) -> Study:
    """A study with files of another one, without one of the seeds, and with other columns."""
    shutil.copytree(HERE / "irds", tmp_path / "irds")
    for name in ("languages.csv", *FOREIGN):
        (tmp_path / name).write_text(FOREIGN[name] if name in FOREIGN else (HERE / name).read_text())
    return Study(tmp_path)


def test_broken_and_foreign_files_are_said_to_be_so(broken: Study, capsys: pytest.CaptureFixture[str]):
    """Fault: the report ended in the traceback of an assertion, of NumPy or of Polars, and said nothing of the rest."""
    texts, names = printed(broken, SECTIONS)
    assert not {"game", "game.exact", "laws"} & set(texts)
    assert {"game", "game.exact", "laws"} <= set(names)
    told = capsys.readouterr()
    for title in ("Shapley values", "Which law", "Transfer against", "Mixtures proved"):
        assert f"### {title}" in told.out, "the sections after a broken one are printed"
    assert "`game-tiny.csv` (seed 1) cannot be used: " in told.out
    assert "`log.csv` cannot be used: " in told.out
    assert "those of languages.csv en, de, es, zh, ja, ko" in told.out
    assert "| first order: tiny-0 against tiny-1 |" in told.out, "what needs none of them is printed"
    assert "not written anywhere: game.exact" in told.err
    for read in (
        lambda: broken.runs("proof.csv", "midi"),
        lambda: promising.promised(broken),
        lambda: broken.runs("monolingual.csv", "midi"),
    ):
        with pytest.raises(UnusableError, match="cannot be used: "):
            read()


def test_a_game_of_another_size_is_refused(tmp_path: Path):
    for name, text in (("game-mini.csv", "game-tiny.csv"), ("languages.csv", "languages.csv")):
        (tmp_path / name).write_text((HERE / text).read_text())
    with pytest.raises(UnusableError, match=r"(?s)`game-mini.csv` cannot be used: .*N = 23712.*mini = 97600"):
        _ = Study(tmp_path).game_mini


def test_every_section_has_a_title_and_parts():
    names = [part.name for part in written(Study(Path("nowhere")), SECTIONS)]
    assert [name for name in names if "." not in name] == list(SECTIONS)


@pytest.mark.parametrize("name", CHEAP)
def test_the_readme_shows_what_the_report_prints(name: str):
    """The same words in the same places, and numbers that agree to rounding."""
    if name.startswith("published") and not published.SHARED.is_dir():
        pytest.skip("the published tables are not beside this repository")
    (printed, usable), shown = joined(CHEAP[name](Study())), README[name]
    assert usable
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown), "run `make study-report`"
    numbers = [[float(one) for one in NUMBER.findall(text)] for text in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)
