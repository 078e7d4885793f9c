"""The counts of every campaign, printed at the end whatever happened."""

from __future__ import annotations

from typing import Any

from campaign import REPORTS


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was tried, and how it ended."""
    for campaign in REPORTS:
        terminalreporter.section(campaign.name)
        for line in campaign.summary():
            terminalreporter.write_line(line)
