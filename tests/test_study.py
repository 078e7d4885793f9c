"""The study's report: its tables, where they are pasted, and what it says of files that are missing."""

from __future__ import annotations

import re
from pathlib import Path

import game
import inrun
import numpy as np
import published
import pytest
from logs import HERE, NotYetError, Study
from pasting import pasted, places
from sections import SECTIONS, text_of, written
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
    texts = dict(written(Study(tmp_path), ["game"]))
    assert texts["game.exact"].startswith("`game-tiny.csv` is not there yet")


def test_every_section_has_a_title_and_parts():
    names = [name for name, _ in written(Study(Path("nowhere")), SECTIONS)]
    assert [name for name in names if "." not in name] == list(SECTIONS)


@pytest.mark.parametrize("name", CHEAP)
def test_the_readme_shows_what_the_report_prints(name: str):
    """The same words in the same places, and numbers that agree to rounding."""
    if name.startswith("published") and not published.SHARED.is_dir():
        pytest.skip("the published tables are not beside this repository")
    printed, shown = text_of(CHEAP[name](Study())), README[name]
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown), "run `make study-report`"
    numbers = [[float(one) for one in NUMBER.findall(text)] for text in (printed, shown)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)
