"""What is said of tables that are nearly right: unfinished runs, other units, other marks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shapleymix as sm
from shapleymix.errors import ShapleyMixError
from shapleymix.tables.examining import examined
from shapleymix.tables.importing.recognising import guessed
from shapleymix.tables.sheets import from_columns

TABLE: dict[str, Any] = {
    "run": ["a", "b", "c"],
    "N": [97600] * 3,
    "D": [2e6] * 3,
    "p_en": [0.25, 0.5, 0.75],
    "p_de": [0.75, 0.5, 0.25],
    "loss_en": [3.5, 3.0, 2.5],
    "loss_de": [2.5, 3.0, 3.5],
}


def of_tool(names: str, states: str, ended: list[str]) -> sm.RunLog:
    """A log with how its runs ended, as a tool exports it."""
    columns = {name: cells for name, cells in TABLE.items() if name != "run"}
    return sm.read_runs({names: TABLE["run"], states: ended, **columns}, map=[f"run={names}"])


@pytest.mark.parametrize(("names", "states"), [("Name", "State"), ("run_id", "status")])
def test_runs_that_did_not_finish_are_named(names: str, states: str) -> None:
    told = of_tool(names, states, ["finished", "crashed", "running"]).notices
    assert "2 runs did not finish, and are read as far as training went: b (crashed), c (running)" in told
    table = {names: TABLE["run"], states: ["finished", "crashed", "running"]}
    assert examined(table).notices == (told[0],)
    assert "did not finish" not in " ".join(of_tool(names, states, ["FINISHED"] * 3).notices)


@pytest.mark.parametrize("begin", [" [2024-01-01 00:00:00] ", "[rank0]: "])
def test_a_log_of_megatron_may_begin_with_a_bracket(begin: str, tmp_path: Path) -> None:
    """It was no valid JSON."""
    lines = ["seq_length ........ 10", "iteration 100/ 300 | consumed samples: 800 | lm loss: 8.0E+00 |"]
    lines += ["validation loss at iteration 100 | lm loss value: 7.0E+00 | lm loss PPL: 1.0E+01 |"]
    path = tmp_path / "train.log"
    path.write_text("\n".join(begin + line for line in lines))
    log = sm.read_runs(path, map=["N=1M", "p.en=1"])
    assert (log.D.tolist(), log.loss.tolist()) == ([8000.0], [[7.0]])


def test_losses_that_are_perplexities_are_told() -> None:
    told = sm.read_runs(TABLE | {"loss_en": [33.0, 20.0, 12.0]}).notices
    assert any("2 losses are above 15 nats per token, up to 33" in one and "read as such (unit)" in one for one in told)
    assert not any("15 nats" in one for one in sm.read_runs(TABLE).notices)


@pytest.mark.parametrize(
    ("columns", "how", "hint"),
    [
        ({"p_en": [0.3, 0.6, 0.9], "p_de": [0.9, 0.6, 0.3]}, {}, "are read with ratio_unit=weights"),
        ({"p_en": ["0,25", "0,5", "0,75"]}, {}, "say that commas are decimal marks: decimal='comma'"),
        ({"D": ["2,000,000"] * 3}, {}, "leave out the commas between thousands: 2000000"),
        ({"N": ["97,600"] * 3}, {}, "thousands without a mark (97600)"),
        ({"Name": ["a", "a", "b"]}, {"map": ["run=Name"]}, 'name the column that tells the runs apart, map="run=ID"'),
        ({}, {"unit": "bpb", "bytes_per_token": "en=4"}, "separated by commas: de=4.2"),
    ],
)
def test_a_hint_says_what_to_write(columns: dict[str, Any], how: dict[str, Any], hint: str) -> None:
    with pytest.raises(ShapleyMixError) as caught:
        sm.read_runs(TABLE | columns, **how)
    assert hint in str(caught.value)


def test_rows_of_a_long_table_belong_together_by_what_their_numbers_are_worth() -> None:
    rows = {
        "run": ["a", "a", "01", "1"],
        "N": ["97.6k", "97600", 97600, 97600],
        "D": ["1M", "1000000.0", 1e6, 1e6],
        "language": ["en", "de", "en", "en"],
        "ratio": [0.5, 0.5, 1, 1],
        "loss": [3.0, 2.0, 2.5, 2.5],
    }
    log = sm.read_runs(rows, long=True)
    assert log.runs == ("a", "01", "1")
    assert log.p.tolist() == [[0.5, 0.5], [1, 0], [1, 0]]


def test_two_hundred_languages_are_recognised() -> None:
    names = [f"l{place:03d}" for place in range(200)]
    columns: dict[str, Any] = {"Name": ["a", "b"], "params": [1e6] * 2, "tokens": [1e7] * 2}
    columns |= {f"w/{name}": [0.5] * 2 for name in names} | {f"eval/loss/{name}": [3] * 2 for name in (*names, "mean")}
    guess = guessed(from_columns(columns))
    assert (guess.map["loss"], guess.map["ignore"]) == ("eval/loss/{lang}", "eval/loss/mean")
    assert guess.options == {"ratio_unit": "percent"}
