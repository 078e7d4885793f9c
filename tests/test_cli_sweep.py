"""`shapleymix plan game|grid`, `launch`, `run` and `collect`, with a small script in the trainer's place."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.sweeps.gpus import environments, gpus_of
from sweep_tools import check_log, game_plan, lines_of, template, trainer

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.sweeping.collecting import state_of
from shapleymix.sweeping.layout import Layout, Place
from shapleymix.sweeping.plans import Plan, read_plan


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


def test_a_run_that_fails_is_tried_again_and_told(run: Run, tmp_path: Path):
    path = trainer(tmp_path)
    plan = game_plan(path, "--fail 2")
    first = run("launch", "plan.jsonl", "--retries", 0)
    assert first.code == 1
    assert "0 of 3 runs finished" in first.out
    assert "3 failed, each tried 1 time:" in first.out
    assert first.out.count("exit code 3: out of memory") == 3
    told = run("launch", "plan.jsonl", "--retries", 0, "--json")
    assert told.code == 1
    assert [one["reason"] for one in told.document["failed"]] == ["exit code 3"] * 3
    state = run("collect", "plan.jsonl", "--json").document
    assert [(one["status"], one["attempts"]) for one in state["runs"]] == [("failed", 2)] * 3
    assert run("collect", "plan.jsonl", "-o", "log.csv").code == 1
    last = run("launch", "plan.jsonl", "--jobs", 3)
    assert "3 of 3 runs finished, 3 of them now" in last.out
    assert [len(lines_of(tmp_path / "plan-sweep", one.id, "starts")) for one in plan.runs] == [3, 3, 3]
    assert run("collect", "plan.jsonl", "-o", "log.csv").code == 0
    check_log(tmp_path / "log.csv", plan)


def test_a_run_that_always_fails_ends_and_leaves_the_others(run: Run, tmp_path: Path):
    path = trainer(tmp_path)
    good = game_plan(path)
    lines = (tmp_path / "plan.jsonl").read_text().splitlines()
    bad = game_plan(path, "--fail 99")
    worse = (tmp_path / "plan.jsonl").read_text().splitlines()
    mixed = [json.dumps(json.loads(line) | {"of": 2}) for line in (lines[0], worse[1])]
    (tmp_path / "plan.jsonl").write_text("\n".join(mixed) + "\n")
    ended = run("launch", "plan.jsonl", "--retries", 3)
    assert (ended.code, "1 of 2 runs finished" in ended.out) == (1, True)
    assert "1 failed, each tried 4 times:" in ended.out
    assert len(lines_of(tmp_path / "plan-sweep", bad.runs[1].id, "starts")) == 4
    half = run("collect", "plan.jsonl", "-o", "log.csv")
    assert half.code == 0
    assert "1 of 2 runs are missing, 1 of which failed: index 1" in half.err
    assert sm.read_runs("log.csv").runs == (good.runs[0].label,)
    strict = run("collect", "plan.jsonl", "-o", "other.csv", "--strict")
    assert (strict.code, (tmp_path / "other.csv").exists()) == (1, False)


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
    assert run("run", "plan.jsonl", "--index", 0, "--dry-run").code == 0
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


def test_a_program_that_cannot_be_started_is_a_failure_with_its_name(run: Run, tmp_path: Path):
    words = ("plan", "game", "--sources", "a", "-N", 10, "-D", 10, "-o", "p.jsonl")
    assert run(*words, "--command", "no-such-program {mixture} {out}").code == 0
    outcome = run("launch", "p.jsonl", "--retries", 0)
    assert outcome.code == 1
    assert "'no-such-program' cannot be started: No such file or directory" in outcome.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told_once(run: Run, tmp_path: Path):
    game_plan(trainer(tmp_path))
    (tmp_path / "plan-sweep").mkdir(mode=0o500)
    outcome = run("launch", "plan.jsonl", "--jobs", 2)
    assert outcome.code == 2
    assert "cannot be written: Permission denied" in outcome.err


def test_a_full_disk_ends_the_sweep_with_its_reason(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    game_plan(trainer(tmp_path))

    def full(*given: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shapleymix.sweeping.results.NamedTemporaryFile", full)
    outcome = run("launch", "plan.jsonl", "--jobs", 2)
    assert outcome.code == 2
    assert "No space left on device" in outcome.err
    assert "make room" in outcome.err


# -- what an earlier program left


def leave(tmp_path: Path, plan: Plan, D: float) -> Place:
    """The run log of a program whose launcher was killed."""
    place = Layout.of(tmp_path / "plan.jsonl").place(plan.runs[0].id)
    place.out.mkdir(parents=True, exist_ok=True)
    place.out.joinpath("runs.jsonl").write_text(json.dumps({"run": "x", "N": 1000, "D": D, "loss_a": 2}) + "\n")
    return place


@pytest.mark.parametrize(("D", "starts"), [(2000, 0), (1000, 1), (1950, 1)])
def test_a_run_that_is_there_whole_is_taken_and_not_trained_again(run: Run, tmp_path: Path, D: float, starts: int):
    """A part of it, or one within a twentieth of D, which a program that is stopped may leave, is none."""
    plan = game_plan(trainer(tmp_path), sources=("a",))
    leave(tmp_path, plan, D)
    outcome = run("launch", "plan.jsonl")
    assert f"1 of 1 run finished, {starts} of them now" in outcome.out, outcome.err
    assert len(lines_of(tmp_path / "plan-sweep", plan.runs[0].id, "starts")) == starts
    assert run("collect", "plan.jsonl", "--strict").code == 0


def test_what_a_failure_left_is_not_taken_and_what_came_after_it_is(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path), "--fail 9", sources=("a",))
    place = leave(tmp_path, plan, 1000)
    assert run("launch", "plan.jsonl", "--retries", 0).code == 1
    leave(tmp_path, plan, 2000)
    os.utime(place.out / "runs.jsonl", ns=(0, place.failure.stat().st_mtime_ns - 1))
    assert run("run", "plan.jsonl", "--index", 0).code == 1
    os.utime(place.out / "runs.jsonl", ns=(0, place.failure.stat().st_mtime_ns + 1))
    assert "was finished before" in run("run", "plan.jsonl", "--index", 0).out
    assert not place.failure.exists()


def test_many_failures_are_cut_as_other_lists_are(run: Run, tmp_path: Path):
    words = ("plan", "game", "--sources", "a,b,c,d,e", "-N", 10, "-D", 10, "-o", "p.jsonl")
    assert run(*words, "--command", "no-such-program {mixture} {out}").code == 0
    for command in (("launch", "p.jsonl", "--retries", 0), ("collect", "p.jsonl")):
        outcome = run(*command)
        assert outcome.out.count("cannot be started") == 20
        assert "31 failed" in outcome.out
        assert "... and 11 runs more: -v and --json show all" in outcome.out
        assert run(*command, "-v").out.count("cannot be started") == 31


def test_a_broken_result_is_mended_by_the_next_launch(run: Run, tmp_path: Path):
    plan = game_plan(trainer(tmp_path))
    assert run("launch", "plan.jsonl").code == 0
    Layout.of("plan.jsonl").place(plan.runs[1].id).result.write_text("")
    assert run("collect", "plan.jsonl").out.startswith("2 of 3 runs finished")
    assert "3 of 3 runs finished" in run("launch", "plan.jsonl").out
    assert run("collect", "plan.jsonl", "-o", "log.csv", "--strict").code == 0
    check_log(tmp_path / "log.csv", plan)


def test_what_is_not_as_planned_is_told_when_it_is_trained(run: Run, tmp_path: Path):
    """A program that passes over {N} and one language: all runs are finished, and none is what was planned."""
    path = trainer(tmp_path)
    text = path.read_text().replace('"N": float(given.N)', '"N": 123456.0')
    path.write_text(text.replace("row |=", "ratios.pop('b', None)\nratios['zz'] = 0.0\nrow |="))
    game_plan(path)
    for words in (("run", "plan.jsonl", "--index", 2), ("launch", "plan.jsonl"), ("collect", "plan.jsonl", "--strict")):
        told = run(*words)
        assert told.code == 0
        for part in ("N is 123.5k, planned was 1k", "no loss of b at its end", "losses of zz, of which the plan says"):
            assert part in told.err, (words, told.err)


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
