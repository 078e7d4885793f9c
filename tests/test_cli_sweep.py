"""`shapleymix plan game|grid`, `launch`, `run` and `collect`, with a small script in the trainer's place."""

from __future__ import annotations

import os
import shlex
import threading
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.sweeps.attempts import words_of
from shapleymix_cli.sweeps.gpus import environments, gpus_of
from sweep_tools import check_log, game_plan, lines_of, template, trainer

from shapleymix.errors import UsageError
from shapleymix.sweeping.layout import Layout
from shapleymix.sweeping.plans import read_plan
from shapleymix.sweeping.states import state_of


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return runner(capsys)


def test_from_a_plan_to_a_log_that_is_complete(run: Run, tmp_path: Path):
    """The whole way: plan, launch, again, collect; the program has spaces and a quote in its name."""
    script = tmp_path / "it's a trainer.py"
    trainer(tmp_path).rename(script)
    command = template(script).replace("it's", "it'\"'\"'s")
    made = run("plan", "game", "--sources", "a,b,c", "-N", "1000", "-D", "2k", "--command", command, "-o", "g.jsonl")
    assert made.code == 0, made.err
    assert "7 runs, 14k tokens in all" in made.out
    assert "7 of 7 coalitions" in made.err
    first = run("launch", "g.jsonl", "--jobs", 2)
    assert first.code == 0, first.out + first.err
    assert "7 of 7 runs finished, 7 of them now" in first.out
    again = run("launch", "g.jsonl", "--jobs", 2)
    assert "7 of 7 runs finished, 0 of them now" in again.out
    assert run("collect", "g.jsonl").out.startswith("7 of 7 runs finished")
    assert run("collect", "g.jsonl", "-o", "log.csv", "--strict").code == 0
    plan = read_plan("g.jsonl")
    check_log(tmp_path / "log.csv", plan)
    assert all(len(lines_of(tmp_path / "g-sweep", one.id, "starts")) == 1 for one in plan.runs)
    assert run("collect", "g.jsonl", "-o", "log.csv").code == 2, "nothing is overwritten"


def test_run_trains_one_and_says_what_it_said_last(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 1")
    failed = run("run", "plan.jsonl", "--index", 1)
    assert failed.code == 1
    assert "run 1 failed: exit code 3" in failed.err
    assert "  out of memory\n" in failed.err
    done = run("run", "plan.jsonl", "--index", 1)
    assert (done.code, done.out.strip()) == (0, f"run 1 ({plan.runs[1].id}, b) is finished")
    assert "was finished before" in run("run", "plan.jsonl", "--index", 1).out
    assert state_of(plan, Layout.of("plan.jsonl")).status == ("open", "finished", "open")
    assert run("run", "plan.jsonl", "--index", 3).code == 2


def test_dry_runs_start_nothing(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path))
    shown = run("launch", "plan.jsonl", "--dry-run")
    assert "3 of 3 runs are to be trained" in shown.out
    assert plan.runs[0].id in shown.out
    words = words_of(plan.runs[0], Layout.of("plan.jsonl").place(plan.runs[0].id))
    alone = run("run", "plan.jsonl", "--index", 0, "--dry-run").out
    assert len(alone) > 120, "longer than a page"
    assert shlex.split(alone) == list(words), "one line, to be copied"
    assert shown.out.splitlines()[0] == alone.rstrip("\n")
    assert not (tmp_path / "plan-sweep").exists()


def test_an_edited_plan_is_refused_everywhere(run: Run, tmp_path: Path):
    game_plan(trainer(tmp_path))
    text = (tmp_path / "plan.jsonl").read_text()
    (tmp_path / "plan.jsonl").write_text(text.replace('"D": 2000', '"D": 3000', 1))
    for words in (("launch", "plan.jsonl"), ("run", "plan.jsonl", "--index", 0), ("collect", "plan.jsonl")):
        outcome = run(*words)
        assert outcome.code == 1
        assert "plan.jsonl:1: was edited" in outcome.err
    assert not (tmp_path / "plan-sweep").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("launch none.jsonl", 1, "cannot be read"),
        ("launch empty.jsonl", 1, "holds no runs"),
        ("launch plan.jsonl --jobs 0", 2, "at least 1"),
        ("launch plan.jsonl --jobs 3 --gpus 0,1", 2, "3 jobs with 1 each of 2 GPUs"),
        ("launch plan.jsonl --gpus 0 --gpus-per-run 2", 2, "1 jobs with 2 each of 1 GPUs"),
        ("launch plan.jsonl --grace 1e12", 2, "at most 1e+06"),
        ("launch plan.jsonl --gpus 0,", 2, "names no GPU"),
        ("launch plan.jsonl --slurm time=5", 2, "--slurm without --backend slurm"),
        ("launch plan.jsonl --backend slurm --gpus 0", 2, "--gpus does nothing with --backend slurm"),
        ("launch plan.jsonl --backend slurm --retries 1", 2, "--retries does nothing"),
        ("plan mixtures --sources a,b --controlled uniform --cap a=0.3", 2, "--cap does nothing to listed mixtures"),
        ("plan mixtures --sources a,b --random 2 --batches 2", 2, "--batches does nothing to listed mixtures"),
        ("plan mixtures --sources a,b --controlled uniform --seeds 0,1", 2, "--seeds without --command"),
        ("launch plan.jsonl --backend slurm --slurm time", 2, "no name=value"),
        ("launch plan.jsonl --folder plan.jsonl", 2, "cannot be written"),
        ("run plan.jsonl --index 0 --folder plan.jsonl", 2, "cannot be written"),
        ("collect plan.jsonl -o log.txt", 1, "none of 3 runs is finished"),
        ("collect plan.jsonl -o plan.jsonl", 2, "is an input as well"),
        ("plan game --sources a,a -N 1 -D 1", 2, "names 'a' twice"),
        ("plan game --sources a,b -N x=1,2 -D 1", 2, "give each size a name of its own"),
        ("plan game --sources a,b -N x=1,x=2 -D 1", 2, "give each size a name of its own"),
        ("plan game --sources a,b -N 1 -D 1", 2, "a size has none"),
        ("plan game --sources a,b -N t=1 -D 1 --seeds a", 2, "not a whole number"),
        ("plan game --sources a,b -N t=1 -D 1 -o g.csv", 2, "end it in .jsonl"),
        ("plan mixtures --sources a,b", 2, "nothing says what to plan"),
        ("plan mixtures --random 2", 2, "nothing says what the sources are"),
        ("plan mixtures --sources a,b --random 2 --n 2", 2, "--n with --controlled"),
        ("plan mixtures --sources a,b --controlled uniform --temperature 2", 2, "are of --random"),
        ("plan mixtures --sources a,b --random 2 --min-tokens 5", 2, "--run-D"),
        ("plan mixtures --sources a,b --random 2 --floor a=0.9,b=0.9", 1, "floors"),
        ("plan mixtures --sources a,b --controlled c", 2, "not one of the sources"),
        ("plan mixtures --sources a,b --controlled uniform --command 'x {mixture} {out}'", 2, "--run-N and --run-D"),
    ],
)
def test_odd_requests_are_told_by_name(run: Run, tmp_path: Path, words: str, code: int, told: str):
    game_plan(trainer(tmp_path))
    (tmp_path / "empty.jsonl").write_text("")
    outcome = run(words)
    assert outcome.code == code, outcome.err
    assert told in outcome.err


# -- where the runs lie


def test_what_is_no_run_s_folder_is_not_counted(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path))
    assert run("launch", "plan.jsonl").code == 0
    for name in ("slurm", "plots", plan.runs[0].id + ".old"):
        (tmp_path / "plan-sweep" / name).mkdir()
    found = run("collect", "plan.jsonl", "-o", "log.csv", "--json")
    assert (found.code, "of no run" in found.err, found.document["of_no_run"]) == (0, False, 0), found.err
    (tmp_path / "plan-sweep" / ("0" * 16)).mkdir()
    assert "1 folder is of no run of this plan" in run("collect", "plan.jsonl", "-o", "other.csv").err


def test_a_plan_has_one_folder_by_whatever_link_it_is_reached(run: Run, tmp_path: Path):
    game_plan(trainer(tmp_path))
    assert run("launch", "plan.jsonl").code == 0
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "game.jsonl").symlink_to("../plan.jsonl")
    assert run("collect", "links/game.jsonl").out.startswith("3 of 3 runs finished")
    assert "0 of 3 runs are to be trained" in run("launch", "links/game.jsonl", "--dry-run").out


@pytest.mark.parametrize("words", ["launch PLAN", "launch PLAN --dry-run", "run PLAN --index 0", "collect PLAN"])
def test_a_plan_without_a_file_needs_a_folder(run: Run, tmp_path: Path, words: str):
    game_plan(trainer(tmp_path))
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    text = (tmp_path / "plan.jsonl").read_text()
    for more, code in (("", 2), (" --folder here", 0)):
        writer = threading.Thread(target=pipe.write_text, args=(text,))
        writer.start()
        outcome = run(words.replace("PLAN", "pipe.jsonl") + more)
        writer.join()
        assert outcome.code == code, outcome.err
        assert ("the plan is no file" in outcome.err) == (code == 2)
    with pytest.raises(UsageError, match="no file"):
        Layout.of("-")


def test_strict_answers_whether_all_runs_are_finished(run: Run, tmp_path: Path):
    game_plan(trainer(tmp_path))
    none = run("collect", "plan.jsonl", "--strict")
    assert (none.code, "none of 3 runs is finished" in none.err) == (1, True)
    assert run("run", "plan.jsonl", "--index", 0).code == 0
    some = run("collect", "plan.jsonl", "--strict")
    assert (some.code, "2 of 3 runs are missing" in some.err) == (1, True)
    assert run("launch", "plan.jsonl").code == 0
    complete = run("collect", "plan.jsonl", "--strict")
    assert (complete.code, complete.out.startswith("3 of 3 runs finished")) == (0, True)


# -- GPUs


def test_each_place_has_gpus_of_its_own(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--sleep 0.3", sources=("a", "b"), seeds=(0, 1))
    assert run("launch", "plan.jsonl", "--gpus", "4,GPU-7,5,6", "--gpus-per-run", 2).code == 0
    seen = {lines_of(tmp_path / "plan-sweep", one.id, "starts")[0].split()[1] for one in plan.runs}
    assert seen == {"4,GPU-7", "5,6"}


def test_gpus_are_those_asked_for_or_visible(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5")
    assert gpus_of(None) == ("3", "5")
    assert gpus_of("none") == ()
    assert gpus_of("0,0") == ("0", "0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_of(None) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpus_of(None) == ()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,-1,3")
    assert gpus_of(None) == ("2",)
    assert environments((), 1, None) == [{}]
    assert environments((), 1, 3) == [{}, {}, {}]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments(("0", "1", "2"), 1, None)] == ["0", "1", "2"]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments(("0", "0"), 1, 2)] == ["0", "0"]
    assert len(environments(("0", "1", "2"), 2, None)) == 1
    with pytest.raises(UsageError, match="name a GPU several times"):
        environments(("0",), 1, 2)
