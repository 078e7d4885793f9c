"""What the pages show of the demo is what it prints (half a minute: its fit is a real one).

The same words in the same lines. Numbers agree as far as they can from one machine to another.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from shapleymix_cli.main import commands
from shown_tools import ROOT, Shown, check, demo, of_the_demo, shown

SHOWN = [one for one in shown() if of_the_demo(one)]


@dataclass(frozen=True)
class Printed:
    """What a call left on the two streams."""

    out: str
    err: str


def run(call: str) -> Printed:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = commands.main(Shown("", call, "").words, standalone_mode=False)
    assert code == 0, err.getvalue()
    return Printed(out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Printed]]:
    """The demo's calls in its order, and then the others that read what it wrote, each once."""
    place = tmp_path_factory.mktemp("clone")
    (place / "demo-output").mkdir()
    (place / "fixtures").symlink_to(ROOT / "fixtures")
    before = Path.cwd()
    os.chdir(place)
    try:
        yield {call: run(call) for call in dict.fromkeys([*demo(), *(one.call for one in SHOWN)])}
    finally:
        os.chdir(before)


@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.place)
def test_the_demo_prints_what_is_shown(printed: dict[str, Printed], one: Shown) -> None:
    check(one.text, one.of(printed[one.call].out, printed[one.call].err))
