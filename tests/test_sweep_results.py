"""What a run hands back is held to the plan, and collected once."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shapleymix.errors import DataError
from shapleymix.sweeping.collecting import collect
from shapleymix.sweeping.games import coalitions
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.listed import Listed
from shapleymix.sweeping.plans import Plan
from shapleymix.sweeping.results import make_folder, note_failure, take_result
from shapleymix.sweeping.states import state_of
from shapleymix.tables.runs import write_runs

COMMAND = "train {mixture} {N} {D} {seed} {out}"


@pytest.fixture
def plan() -> Plan:
    return grid(coalitions(("a", "b")), 1000, 2000, seeds=(0, 1), command=COMMAND)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout.of(tmp_path / "runs.jsonl")


def leave(plan: Plan, layout: Layout, index: int, text: str, name: str = "runs.csv") -> None:
    """Put a run log where the program of a run would."""
    place = layout.place(plan.runs[index].id)
    make_folder(place)
    (place.out / name).write_text(text, encoding="utf-8")


def take(plan: Plan, layout: Layout, index: int) -> None:
    take_result(plan.runs[index], layout.place(plan.runs[index].id))


GOOD = "run,N,D,p_a,p_b,loss_a,loss_b\nx-untrained,1000,0,0,0,5,6\nx,1000,1000,1,0,3,4\nx,1000,2000,1,0,2,4\n"


def test_several_may_make_one_folder_at_once(plan: Plan, layout: Layout):
    """All launchers begin at the same run."""
    place = layout.place(plan.runs[0].id)

    def make(_: int) -> None:
        for _ in range(100):
            make_folder(place)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(4)))
    assert [path.name for path in place.folder.iterdir()] == ["out"]


def test_the_folder_lies_beside_the_plan(tmp_path: Path):
    assert Layout.of(tmp_path / "runs.jsonl").root == tmp_path / "runs-sweep"
    assert Layout.of("runs.jsonl", str(tmp_path / "here")).root == tmp_path / "here"


def test_checkpoints_and_the_untrained_model_are_rows_of_their_run(plan: Plan, layout: Layout, tmp_path: Path):
    leave(plan, layout, 0, GOOD)
    take(plan, layout, 0)
    found = collect([(plan, layout)])
    name = plan.runs[0].label
    assert found.log.runs == (f"{name}-untrained", name, name)
    assert found.log.D.tolist() == [0, 1000, 2000]
    np.testing.assert_array_equal(found.log.loss, [[5, 6], [3, 4], [2, 4]])
    assert "5 of 6 runs are missing, 0 of which failed: index 1, 2, 3, 4, 5" in found.notices
    write_runs(found.log, tmp_path / "log.csv")


def test_what_a_log_leaves_out_the_plan_knows(plan: Plan, layout: Layout):
    leave(plan, layout, 2, '{"run": "1", "N": 1000, "D": 2000, "loss_b": 2, "loss_c": 1.5}\n', "runs.jsonl")
    take(plan, layout, 2)
    log = collect([(plan, layout)]).log
    assert log.targets == ("b", "c"), "targets that are no sources come last"
    np.testing.assert_array_equal(log.p, [[0.5, 0.5]])
    leave(plan, layout, 0, "run,N,D,p_a,tokens_unique_a,loss_a\nx,1000,2000,1,500,2\n")
    take(plan, layout, 0)
    log = collect([(plan, layout)]).log
    assert log.unique is not None
    np.testing.assert_array_equal(log.unique, [[500, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(log.loss[:, log.targets.index("a")], [2, np.nan])


def test_the_same_untrained_model_is_there_once_a_seed(plan: Plan, layout: Layout):
    for index, run in enumerate(plan.runs):
        p = ",".join(str(ratio) for ratio in run.mixture.values())
        rows = f"u,1000,0,0,0,{5 + run.seed},6\nx,1000,2000,{p},{2 + index},4\n"
        leave(plan, layout, index, "run,N,D,p_a,p_b,loss_a,loss_b\n" + rows)
        take(plan, layout, index)
    log = collect([(plan, layout)]).log
    assert (log.D == 0).sum() == 2
    assert (log.D > 0).sum() == 6
    assert log.seed is not None
    assert [log.seed[row] for row in np.flatnonzero(log.D == 0)] == ["0", "1"]
    assert collect([(plan, layout)]).notices == ()


ONE = "run,N,D,p_a,p_b,loss_a,loss_b\nx,1000,2000,1,0,2,4\n"
OTHERS = {
    "command alone": ({}, ONE, 1),
    "order of targets": ({}, ONE.replace("loss_a,loss_b", "loss_b,loss_a").replace("2,4", "4,2"), 1),
    "a checkpoint": ({}, ONE.replace("x,1000,2000", "x,1000,1000,1,0,3,4\nx,1000,2000"), 2),
    "seed": ({"seeds": (1,)}, ONE, 2),
    "mixture": ({"mixture": 1}, ONE.replace(",1,0,", ",0,1,"), 2),
    "N": ({"N": 3000}, ONE.replace("1000", "3000"), 2),
    "D": ({"D": 4000}, ONE.replace("2000", "4000"), 2),
    "a loss": ({}, ONE.replace("2,4", "2,4.000000000000001"), 2),
    "a target": ({}, ONE.replace("loss_b", "loss_c"), 2),
}


@pytest.mark.parametrize("differs", OTHERS)
def test_models_are_one_where_nothing_but_their_command_differs(tmp_path: Path, differs: str):
    """Two seeds of a mixture whose losses are equal are two runs, and so are two commands whose losses differ."""

    def trained(name: str, text: str, mixture: int = 0, **of: object) -> tuple[Plan, Layout]:
        games = coalitions(("a", "b"))
        alone = Listed(games.sources, games.names[mixture : mixture + 1], games.p[mixture : mixture + 1])
        plan = grid(alone, **{"N": 1000, "D": 2000, "command": f"{name} {COMMAND}"} | of)
        layout = Layout.of(tmp_path / f"{name}.jsonl")
        leave(plan, layout, 0, text)
        take(plan, layout, 0)
        return plan, layout

    of, text, models = OTHERS[differs]
    found = collect([trained("first", ONE), trained("second", text, **of)])
    assert len(set(found.log.runs)) == models
    told = "1 runs are others again (mixture, N, D, seed and losses), and are there once"
    assert [said for said in found.notices if "again" in said] == ([told] if models == 1 else [])


def test_of_two_forms_the_newer_counts(plan: Plan, layout: Layout):
    leave(plan, layout, 0, GOOD)
    leave(plan, layout, 0, '{"run": "1", "N": 1000, "D": 2000, "loss_a": 1.25}\n', "runs.jsonl")
    out = layout.place(plan.runs[0].id).out
    for newer, loss in (("runs.jsonl", 1.25), ("runs.csv", 2.0)):
        os.utime(out / newer, (2e9, 2e9 + ["runs.jsonl", "runs.csv"].index(newer)))
        take(plan, layout, 0)
        assert collect([(plan, layout)]).log.loss[-1, 0] == loss


WRONG = {
    "no log": (None, "left no runs.csv or runs.jsonl"),
    "another mixture": (GOOD.replace(",1,0,", ",0.5,0.5,"), "trained on a=0.5,b=0.5, planned was a=1"),
    "another source": (GOOD.replace("p_b", "p_c").replace(",1,0,", ",0.9,0.1,"), "trained on c"),
    "stopped early": (GOOD.rsplit("x,1000,2000", 1)[0], "ended at D = 1k, planned was 2k"),
    "too long": (GOOD.replace("2000", "9000"), "ended at D = 9k"),
    "no loss": (GOOD.replace("2,4\n", ",\n"), "no loss at its end"),
    "two runs": (GOOD.replace("x,1000,1000", "y,1000,1000"), "holds 2 trained runs"),
    "two sizes": (GOOD.replace("x,1000,1000", "x,2000,1000"), "holds N from 1k to 2k"),
    "untrained only": (GOOD.split("x,1000,1000")[0], "holds 0 trained runs"),
    "not finite": (GOOD.replace("2,4\n", "nan,4\n"), "expected a finite number"),
    "empty": ("", "empty"),
    "half": ("run,N,D,p_a", "(?s)."),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_result_of_the_run_is_refused(plan: Plan, layout: Layout, case: str):
    text, told = WRONG[case]
    make_folder(layout.place(plan.runs[0].id))
    if text is not None:
        leave(plan, layout, 0, text)
    with pytest.raises(DataError, match=told):
        take(plan, layout, 0)
    assert not layout.place(plan.runs[0].id).result.exists()
    with pytest.raises(DataError, match="none of 6 runs is finished"):
        collect([(plan, layout)])


def test_sizes_that_are_a_little_off_are_realised_and_told(plan: Plan, layout: Layout):
    leave(plan, layout, 0, "run,N,D,p_a,p_b,loss_a\nx,1100,2048,1,0,2\n")
    take(plan, layout, 0)
    found = collect([(plan, layout)])
    assert (found.log.N.tolist(), found.log.D.tolist()) == ([1100], [2048])
    assert "1 of 1 runs: N is 1.1k, planned was 1k" in found.notices
    assert "1 of 1 runs: D is 2.048k, planned was 2k" in found.notices


def test_failures_are_counted_and_a_result_ends_them(plan: Plan, layout: Layout):
    place = layout.place(plan.runs[0].id)
    make_folder(place)
    assert [note_failure(place, "exit code 1").attempts, note_failure(place, "exit code 9").attempts] == [1, 2]
    state = state_of(plan, layout)
    assert state.status == ("failed", *["open"] * 5)
    assert state.failures[0].reason == "exit code 9"
    leave(plan, layout, 0, GOOD)
    take(plan, layout, 0)
    assert state_of(plan, layout).status == ("finished", *["open"] * 5)
    assert not place.failure.exists()


def test_results_of_an_earlier_plan_are_left_out_and_counted(plan: Plan, layout: Layout):
    leave(plan, layout, 0, GOOD)
    leave(plan, layout, 1, GOOD.replace(",1,0,", ",0,1,"))
    take(plan, layout, 0)
    take(plan, layout, 1)
    other = grid(coalitions(("a", "b")), 1000, 2000, seeds=(1,), command=COMMAND)
    both = Plan(plan.sources, (plan.runs[0], *other.runs))
    found = collect([(both, layout)])
    assert set(found.log.runs) == {plan.runs[0].label, f"{plan.runs[0].label}-untrained"}
    assert any(said.startswith("1 folder is of no run of this plan") for said in found.notices)


def test_a_result_that_was_broken_or_swapped_is_left_out_and_told(plan: Plan, layout: Layout):
    leave(plan, layout, 0, GOOD)
    take(plan, layout, 0)
    first, second = (layout.place(plan.runs[index].id) for index in (0, 1))
    make_folder(second)
    for text, told in ((first.result.read_text(), f"is the result of run {plan.runs[0].id}"), ("", "not valid JSON")):
        second.result.write_text(text)
        found = collect([(plan, layout)])
        assert set(found.log.runs) == {plan.runs[0].label, f"{plan.runs[0].label}-untrained"}
        assert any("the result of run 1" in said and told in said for said in found.notices), found.notices
        assert found.states[0].status == ("finished", *["open"] * 5)


def test_a_note_of_a_failure_that_was_broken_is_one_failure(plan: Plan, layout: Layout):
    place = layout.place(plan.runs[0].id)
    make_folder(place)
    place.failure.write_text("")
    assert state_of(plan, layout).failures[0].attempts == 1
    assert note_failure(place, "exit code 1").attempts == 2


def test_ten_thousand_results_are_collected_in_seconds(layout: Layout):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), 10_000)
    names = tuple("abcde")
    plan = grid(Listed(names, tuple(f"m{row}" for row in range(10_000)), p), 1000, 2000, command=COMMAND)
    leave(
        plan,
        layout,
        0,
        json.dumps({"run": "x", "N": 1000, "D": 2000, **{f"loss_{n}": 1.5 for n in names}}) + "\n",
        "runs.jsonl",
    )
    take(plan, layout, 0)
    template = layout.place(plan.runs[0].id).result.read_text()
    ratios = json.loads(template)["p"]
    for run in plan.runs[1:]:
        place = layout.place(run.id)
        place.folder.mkdir()
        told = json.loads(template) | {"id": run.id, "p": [list(run.mixture.values())]}
        place.result.write_text(json.dumps(told))
    assert len(ratios) == 1
    began = time.process_time()
    found = collect([(plan, layout)])
    assert time.process_time() - began < 20
    assert len(set(found.log.runs)) == 10_000
    np.testing.assert_allclose(found.log.p, [list(run.mixture.values()) for run in plan.runs])
