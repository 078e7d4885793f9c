"""Measuring without validation text: told where it is allowed, refused where text comes again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from shapleymix.tables.transfer_reading import read_transfer
from tests.irds.training import train

ONCE = "so it could be measured without: --irds-fresh (1 step of"


def told(out: Path, capfd: pytest.CaptureFixture[str], *more: str) -> str:
    """The line that says how a run will be measured."""
    assert train(out, *more) == 0
    return next(line for line in capfd.readouterr().err.splitlines() if line.startswith("IRDS: 1 step of"))


def test_a_run_whose_text_is_seen_once_tells_that_it_needs_no_validation_text(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = told(tmp_path / "run", capfd)
    assert line.startswith("IRDS: 1 step of 2 for +")
    assert "time, reckoned, on validation text; the text is seen once, " + ONCE in line
    chosen = told(tmp_path / "fresh", capfd, "--irds-fresh")
    assert chosen.endswith(" reckoned, without validation text (--irds-fresh)")


@pytest.mark.parametrize(
    "more",
    [
        (
            "--tokens",
            "120k",
            "--toy-size",
            "40k",
            "--batch",
            "56",
            "--irds-every",
            "9",
        ),  # 40,000 tokens of a language, of 28,000
        ("--mixture", "a=.8,b=.1,c=.1", "--irds-every", "1"),  # less than a sequence of b in a step
        ("--irds-order", "2"),
    ],
)
def test_a_run_that_could_not_is_not_told_so(
    more: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ONCE not in told(tmp_path / "run", capfd, *more)


def test_text_that_comes_again_is_refused_with_its_numbers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--irds-fresh", "--tokens", "400k") == 2
    said = capfd.readouterr().err
    assert "--irds-fresh has 3 faults" in said
    assert "'a' would be seen more than once: 133,376 tokens of the 60,000 that it has" in said
    assert "--no-irds-fresh" in said
    assert not (tmp_path / "run").exists()


def test_the_lines_of_a_run_and_its_matrix_tell_which_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--irds-fresh", "--batch", "12", "--irds-every", "3") == 0
    lines = capfd.readouterr().err.splitlines()
    assert any("IRDS without validation text " in line for line in lines)
    assert ", without validation text; " in lines[-1]
    numbers = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["irds_fresh"] for line in numbers)
    assert read_transfer(tmp_path / "run" / "sv.csv").provenance["validation"] == "fresh training gradients"


def test_it_goes_on_after_a_stop_as_it_began(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run") == 0
    capfd.readouterr()
    assert train(tmp_path / "run", "--irds-fresh") == 2
    assert "irds_fresh was False, is True" in capfd.readouterr().err


@pytest.mark.parametrize("more", [("--irds-fresh",), ("--no-irds",)])
def test_a_run_that_needs_no_validation_text_holds_none_back(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A share of nothing is refused where it would be needed, and only there."""
    flags = ("--val-share", "0", "--tokens", "4k", "--irds-every", "2")
    assert train(tmp_path / "free", *flags, *more) == 0
    assert (tmp_path / "free" / "runs.csv").exists()
    assert train(tmp_path / "held", *flags) == 2
