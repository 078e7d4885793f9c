"""`--share 0.1` tries a tenth of every campaign; the counts of all are printed at the end, whatever happened."""

from __future__ import annotations

from typing import Any

import campaign


def pytest_addoption(parser: Any) -> None:
    """The one option."""
    parser.addoption("--share", type=float, default=1.0, help="part of each campaign's trials to do")


def pytest_configure(config: Any) -> None:
    """Hand the option to the campaigns."""
    campaign.Campaign.share = config.getoption("--share")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was tried, and how it ended."""
    for each in campaign.REPORTS:
        terminalreporter.section(each.name)
        for line in each.summary():
            terminalreporter.write_line(line)
