"""The study's page holds the tables that its program prints."""

import sys
from pathlib import Path

import pytest

STUDY = Path(__file__).parents[1] / "fixtures" / "study"


@pytest.mark.parametrize("section", ["values", "proof"])
def test_the_page_holds_what_the_program_prints(section: str) -> None:
    sys.path.insert(0, str(STUDY))
    try:
        import report
    finally:
        sys.path.remove(str(STUDY))
    page = (STUDY / "README.md").read_text()
    assert all(block in page for block in report.SECTIONS[section]())
