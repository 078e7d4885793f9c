"""What the commands of the demo print fits 80 columns."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from rich.cells import cell_len
from shapleymix_cli.main import commands

ROOT = Path(__file__).parents[1]
PAGE = 80
QUICK = {
    "compare": "--laws shapley-tempered,chinchilla --folds 2",
    "fit": "--law learned-base --bootstrap 3 --folds 2",
}
"""What makes a command of the demo a matter of seconds, and leaves its tables as they are."""


def demo_calls() -> list[list[str]]:
    """The words of each `run shapleymix ...` of the demo."""
    text = (ROOT / "fixtures" / "demo.sh").read_text(encoding="utf-8").replace("\\\n", " ").replace("$out", "out")
    return [shlex.split(line)[2:] for line in text.splitlines() if line.startswith("run shapleymix ")]


def test_no_line_of_the_demo_is_wider_than_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run of the whole demo: each command reads what those before it wrote. A path is as long as it is."""
    (tmp_path / "out").mkdir()
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    calls = demo_calls()
    assert [call[0] for call in calls] == ["shapley", "compare", "fit", "optimize", "predict"]
    for name, *words in calls:
        for further in ([], ["--help"]) if name in QUICK else ([], ["-v"], ["--help"]):
            anew = ["--force"] if "-o" in words else []
            call = [name, *words, *shlex.split(QUICK.get(name, "")), *anew, *further]
            assert commands.main(call, standalone_mode=False) == 0
            lines = capsys.readouterr().out.splitlines()
            assert lines
            wide = [line for line in lines if cell_len(line) > PAGE and not line.startswith("  shapleymix ")]
            assert wide == []  # but for the examples of the help, which are to be copied
