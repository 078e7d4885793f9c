"""Several plans as one log: `shapleymix collect PLAN PLAN ...`, and the logs of each read together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner
from sweep_tools import check_log, template, trainer

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.sweeping.collecting import collect
from shapleymix.sweeping.controlled import controlled
from shapleymix.sweeping.games import coalitions
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import Plan, plan_of, read_plan

ABC = ("a", "b", "c")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


@pytest.fixture
def command(tmp_path: Path) -> str:
    return template(trainer(tmp_path))


def logged(command: str, N: int, sources: tuple[str, ...] = ABC) -> Plan:
    """Mixtures with the same names at each size, as a study plans them."""
    plan = grid(controlled(["uniform", "a"], sources), N, [1000, 2000], command=command)
    plan.write(f"log-{N}.jsonl", force=True)
    return plan


def test_plans_of_two_sizes_are_one_log_of_all_their_runs(run: Run, command: str):
    small, large = logged(command, 1000), logged(command, 5000)
    for name in ("log-1000", "log-5000"):
        assert run("launch", f"{name}.jsonl", "--jobs", 2).code == 0
        assert run("collect", f"{name}.jsonl", "-o", f"{name}.csv").code == 0
    told = run("collect", "log-1000.jsonl", "log-5000.jsonl", "-o", "log.csv", "--strict")
    assert (told.code, "missing" in told.err) == (0, False), told.err
    assert "log-1000.jsonl: 4 of 4 runs finished" in told.out
    assert "log-5000.jsonl: 4 of 4 runs finished" in told.out
    check_log(Path("log.csv"), Plan(ABC, (*small.runs, *large.runs)))
    both, one = sm.read_runs(["log-1000.csv", "log-5000.csv"]), sm.read_runs("log.csv")
    assert both.runs == one.runs, "ids are hashes: runs with one name at two sizes stay apart"
    np.testing.assert_array_equal(both.loss, one.loss)


def test_what_is_missing_is_told_by_plan(run: Run, command: str):
    logged(command, 1000)
    logged(command, 5000)
    assert run("launch", "log-1000.jsonl").code == 0
    words = ("collect", "log-1000.jsonl", "log-5000.jsonl")
    told = run(*words, "-o", "log.csv")
    assert (told.code, len(sm.read_runs("log.csv"))) == (0, 4)
    assert "log-5000.jsonl: 4 of 4 runs are missing, 0 of which failed: index 0, 1, 2, 3" in told.err
    assert run(*words, "-o", "other.csv", "--strict").code == 1
    found = run(*words, "--json").document["runs"]
    assert [(one["plan"], one["index"], one["status"]) for one in found[3:5]] == [
        ("log-1000.jsonl", 3, "finished"),
        ("log-5000.jsonl", 0, "open"),
    ]


def test_a_run_of_two_plans_is_there_once(run: Run, command: str):
    """The game has mixtures of the log: by the same command the same run, by another one that came out alike."""
    logged(command, 1000)
    grid(coalitions(ABC), 1000, 2000, command=command).write("game.jsonl")
    grid(coalitions(ABC), 1000, 2000, command=f"{command} --sleep 0.01").write("again.jsonl")
    assert run("launch", "log-1000.jsonl").code == 0
    told = run("collect", "log-1000.jsonl", "game.jsonl", "-o", "first.csv")
    assert "game.jsonl: 5 of 7 runs are missing" in told.err, "two are finished in the other folder"
    for name in ("game.jsonl", "again.jsonl"):
        assert run("launch", name, "--jobs", 2).code == 0
    told = run("collect", "log-1000.jsonl", "game.jsonl", "again.jsonl", "-o", "log.csv", "--strict")
    assert "2 runs are in several plans, and are there once" in told.err
    assert "7 runs are others again (mixture, N, D, seed and losses), and are there once" in told.err
    log = sm.read_runs("log.csv")
    assert len(log) == 4 + 7 - 2


def test_plans_that_share_a_folder_are_not_strange_to_one_another(run: Run, command: str):
    logged(command, 1000)
    logged(command, 5000)
    for name in ("log-1000.jsonl", "log-5000.jsonl"):
        assert run("launch", name, "--folder", "runs", "--jobs", 2).code == 0
    words = ("--folder", "runs", "-o", "log.csv")
    assert "4 folders are of no run of this plan" in run("collect", "log-1000.jsonl", *words).err
    both = ("collect", "log-1000.jsonl", "log-5000.jsonl", "--folder", "runs")
    told = run(*both, "-o", "both.csv")
    assert (told.code, "of no run" in told.err) == (0, False)
    assert run(*both, "--json").document["of_no_run"] == 0


def test_sources_in_another_order_are_put_in_order_and_other_sources_are_refused(run: Run, command: str):
    first, second = logged(command, 1000), logged(command, 5000, ("c", "a", "b"))
    for name in ("log-1000.jsonl", "log-5000.jsonl"):
        assert run("launch", name, "--jobs", 2).code == 0
    assert run("collect", "log-1000.jsonl", "log-5000.jsonl", "-o", "log.csv", "--strict").code == 0
    runs = [*first.runs, *second.runs]
    ordered = [{name: one.mixture[name] for name in ABC} for one in runs]
    log = sm.read_runs("log.csv")
    assert log.sources == ABC
    np.testing.assert_allclose(log.p, [list(one.values()) for one in ordered], atol=1e-9)
    np.testing.assert_allclose(np.where(log.p > 0, 3 - log.p, log.loss), log.loss, atol=1e-9)
    logged(command, 7000, ("a", "b", "d"))
    refused = run("collect", "log-1000.jsonl", "log-7000.jsonl")
    assert refused.code == 0, "how far each is can be told"
    refused = run("collect", "log-1000.jsonl", "log-7000.jsonl", "-o", "other.csv")
    assert (refused.code, "log-7000.jsonl: has the sources a, b, d; log-1000.jsonl has a, b, c" in refused.err) == (
        1,
        True,
    )


def test_nothing_finished_anywhere_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str):
    monkeypatch.chdir(tmp_path)
    plans = [logged(command, 1000), logged(command, 5000)]
    sweeps = [(plan, Layout.of(f"log-{size}.jsonl")) for plan, size in zip(plans, (1000, 5000), strict=True)]
    with pytest.raises(DataError, match="none of 8 runs is finished"):
        collect(sweeps)
    with pytest.raises(DataError, match=r"-sweep: none of 4 runs is finished"):
        collect([sweeps[0], sweeps[0]])
    assert plan_of(ABC, plans[0].runs).runs == read_plan("log-1000.jsonl").runs


@pytest.mark.parametrize("again", ["log-1000.jsonl", "./log-1000.jsonl"])
def test_a_plan_that_is_named_twice_is_refused(run: Run, command: str, again: str):
    logged(command, 1000)
    refused = run("collect", "log-1000.jsonl", again, "-o", "log.csv")
    assert (refused.code, f"{again}: is named twice" in refused.err) == (2, True), refused.err
    assert not Path("log.csv").exists()
