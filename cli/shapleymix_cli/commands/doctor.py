"""`shapleymix doctor`: whether everything is there that a run needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shapleymix_cli import options
from shapleymix_cli.console import Output
from shapleymix_cli.failures import DATA_SAY_NO

if TYPE_CHECKING:
    from shapleymix_cli.health import Check
    from shapleymix_cli.views.tables import Part


@options.command("shapleymix doctor", "shapleymix doctor --json")
def command(out: Output) -> None:
    """Check versions, solvers, optional packages, cores and the current folder; exit code 1 where something is broken.

    Solvers solve a problem whose optimum is known. What an extra would add, and how it is installed, is told with it.
    """
    from dataclasses import asdict

    from shapleymix_cli.health import FAULT, checks

    found = checks()
    healthy = not any(one.state == FAULT for one in found)
    listed = [asdict(one) for one in found]
    out.emit(lambda: {"kind": "doctor", "healthy": healthy, "checks": listed}, lambda: _view(found))
    if not healthy:
        click.get_current_context().exit(DATA_SAY_NO)


def _view(found: list[Check]) -> list[Part]:
    from shapleymix_cli.views.doctor import doctor_view

    return doctor_view(found)
