"""What a run leaves is held to the plan, and collected once."""

from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run
from shapleymix_sweep.grids import grid
from shapleymix_sweep.mixtures import coalitions
from shapleymix_sweep.plans import FAILED, OUT, Plan, collect, read_plan, result_of, state_of
from sweep_tools import check_log, game_plan

import shapleymix as sm
from shapleymix.errors import DataError, UsageError

COMMAND = "train {mixture} {N} {D} {seed} {out}"
GOOD = "run,N,D,p_a,p_b,loss_a,loss_b\nx-untrained,1000,0,0,0,5,6\nx,1000,1000,1,0,3,4\nx,1000,2000,1,0,2,4\n"


def planned(path: Path, command: str = COMMAND, sources: tuple[str, ...] = ("a", "b"), N: float = 1000) -> Plan:
    grid(coalitions(sources), N, 2000, seeds=(0, 1), command=command).write(path, force=True)
    return read_plan(path)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return planned(tmp_path / "runs.jsonl")


def leave(plan: Plan, index: int, text: str, name: str = "runs.csv") -> None:
    """Put a run log where the program of a run would."""
    out = plan.place(index) / OUT
    out.mkdir(parents=True, exist_ok=True)
    (out / name).write_text(text, encoding="utf-8")


def test_checkpoints_and_the_untrained_model_are_rows_of_their_run(plan: Plan):
    leave(plan, 0, GOOD)
    log, name = collect([state_of(plan)]), plan.runs[0].label
    assert (log.runs, log.D.tolist()) == ((f"{name}-untrained", name, name), [0, 1000, 2000])
    np.testing.assert_array_equal(log.loss, [[5, 6], [3, 4], [2, 4]])
    np.testing.assert_array_equal(log.p, [[0, 0], [1, 0], [1, 0]])
    assert log.seed == ("0",) * 3


def test_what_a_log_leaves_out_the_plan_knows(plan: Plan):
    leave(plan, 2, '{"run": "1", "N": 1000, "D": 2000, "loss_b": 2, "loss_c": 1.5}\n', "runs.jsonl")
    leave(plan, 0, "run,N,D,p_a,tokens_unique_a,loss_a\nx,1100,2048,1,500,2\n")
    log = collect([state_of(plan)])
    np.testing.assert_array_equal(log.p, [[1, 0], [0.5, 0.5]])
    assert (log.N.tolist(), log.D.tolist()) == ([1100, 1000], [2048, 2000]), "as realised"
    np.testing.assert_array_equal(log.unique, [[500, np.nan], [np.nan, np.nan]])
    wanted = {"a": [2, np.nan], "b": [np.nan, 2], "c": [np.nan, 1.5]}
    np.testing.assert_array_equal(log.loss.T, [wanted[name] for name in log.targets])


def test_the_recipe_of_the_plan_stands_in_the_log_unless_the_program_says_another(tmp_path: Path):
    command = f"{COMMAND} {{learning_rate}}"
    grid(coalitions(("a", "b")), 1000, 2000, command=command, learning_rate=1e-3).write(tmp_path / "runs.jsonl")
    plan = read_plan(tmp_path / "runs.jsonl")
    leave(plan, 0, GOOD)
    leave(plan, 1, "run,N,D,p_a,p_b,loss_a,learning_rate,batch,tokenizer\nx,1000,2000,0,1,2,2e-3,64,bytes\n")
    log = collect([state_of(plan)])
    np.testing.assert_array_equal(log.learning_rate, [1e-3, 1e-3, 1e-3, 2e-3])
    np.testing.assert_array_equal(log.batch_tokens, [np.nan, np.nan, np.nan, 64])
    assert log.tokenizer == ("", "", "", "bytes")


def test_a_model_is_there_once_whoever_trained_it(plan: Plan, tmp_path: Path):
    """The untrained model of a seed, a run of two plans, and one whose command alone differs."""
    other = planned(tmp_path / "other.jsonl", f"another {COMMAND}")
    same = planned(tmp_path / "same.jsonl")
    for index, run in enumerate(plan.runs):
        p = ",".join(map(str, run.mixture.values()))
        rows = f"u,1000,0,0,0,{5 + run.seed},6\nx,1000,2000,{p},{2 + run.seed / 10},4\n"
        for one in (plan, other, same):
            leave(one, index, "run,N,D,p_a,p_b,loss_a,loss_b\n" + rows)
    log = collect([state_of(one) for one in (plan, other, same)])
    assert ((log.D == 0).sum(), (log.D > 0).sum()) == (2, 6)
    assert {log.seed[row] for row in np.flatnonzero(log.D == 0)} == {"0", "1"} if log.seed else False


def test_the_shares_that_a_run_read_are_kept_and_a_difference_is_said(run: Run, plan: Plan):
    """By tokens, where planned ones are rounded to batches; the first checkpoint may differ."""
    rows = "x,1000,50,25,25,,\nx,1000,2000,{},{},2,3\n"
    for index, read in {0: (2000, 0), 1: (40, 1960), 2: (1008, 992)}.items():
        leave(plan, index, "run,N,D,tokens_a,tokens_b,loss_a,loss_b\n" + rows.format(*read))
    state = state_of(plan)
    assert list(state.results) == [0, 1, 2]
    log = collect([state])
    np.testing.assert_allclose(log.p[log.D == 2000], [[1, 0], [0.02, 0.98], [0.504, 0.496]])
    (told,) = state.warnings
    assert all(word in told for word in (plan.runs[1].label, "0.98 of b", "planned 1"))
    assert told in run("collect runs.jsonl").err


WRONG = {
    "no log": None, "different mixture": GOOD.replace(",1,0,", ",0.5,0.5,"),
    "different source": GOOD.replace("p_b", "p_c").replace(",1,0,", ",0.9,0.1,"),
    "stopped early": GOOD.rsplit("x,1000,2000", 1)[0], "too long": GOOD.replace("2000", "9000"),
    "N and D swapped": GOOD.replace("N,D", "D,N"), "no loss": GOOD.replace("2,4\n", ",\n"),
    "not finite": GOOD.replace("2,4\n", "nan,4\n"), "empty": "", "half": "run,N,D,p_a",
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_result_of_the_run_is_refused(plan: Plan, case: str):
    text = WRONG[case]
    if text is not None:
        leave(plan, 0, text)
    with pytest.raises(DataError):
        result_of(plan.runs[0], plan.place(0))
    with pytest.raises(DataError):
        collect([state_of(plan)])


def test_a_plan_in_memory_has_no_runs():
    with pytest.raises(UsageError):
        state_of(grid(coalitions(("a", "b")), 1000, 2000, command=COMMAND))


# -- the command


def test_collect_tells_what_is_missing_and_why(run: Run, plan: Plan):
    leave(plan, 0, GOOD)
    leave(plan, 1, WRONG["stopped early"] or "")
    (plan.place(2) / OUT).mkdir(parents=True)
    (plan.place(2) / FAILED).write_text("exit code 3: out of memory")
    found = run("collect runs.jsonl --json").document["runs"]
    assert [one["status"] for one in found] == ["finished", "open", "failed", "open", "open", "open"]
    assert "out of memory" in found[2]["reason"]
    assert run("collect runs.jsonl -o log.csv").code == 0
    assert len(sm.read_runs("log.csv")) == 3
    assert run("collect runs.jsonl -o strict.csv --strict").code == 1
    assert not Path("strict.csv").exists()


def test_plans_of_two_sizes_and_languages_are_one_log(run: Run, tmp_path: Path):
    folders = [tmp_path / name for name in ("one", "two")]
    plans = []
    for folder, sources in zip(folders, (("a", "b"), ("b", "c")), strict=True):
        folder.mkdir()
        plans.append(game_plan(folder, sources=sources))
        assert run("launch", folder / "plan.jsonl", "--jobs", 2).code == 0
    names = [folder / "plan.jsonl" for folder in folders]
    assert run("collect", *names, "-o", "log.csv", "--strict").code == 0
    assert sm.read_runs("log.csv").sources == ("a", "b", "c")
    assert run("collect", names[0], "-o", "a.csv").code == 0
    check_log(Path("a.csv"), plans[0])
