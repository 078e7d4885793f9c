"""The files for other engines: what they ask for, and that their own lines train a plan."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml
from cli_tools import Run
from shapleymix_sweep.engines import ENGINES
from shapleymix_sweep.plans import state_of
from sweep_tools import game_plan, own_program, written

CASES = {"kubernetes": "image=me/i,claim=c,queue=q", "skypilot": "image=me/i,volume=v", "dstack": "image=i,volume=/v"}
LONGEST = 30


@pytest.mark.parametrize("engine", CASES)
def test_the_line_of_a_file_trains_the_run_of_its_index(run: Run, tmp_path: Path, engine: str):
    plan = game_plan(tmp_path)
    text = written(run, engine, CASES[engine], "--timeout", "1h", "--retries", 0).replace("/sweep", str(tmp_path))
    found = yaml.safe_load(text)
    env = {**os.environ, "PATH": own_program(tmp_path), **found.get("envs", {}), "PLAN": "plan.jsonl"}
    if engine == "kubernetes":
        box = found["spec"]["template"]["spec"]["containers"][0]
        words = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in (*box["command"], *box["args"])]
    else:
        words = ["sh", "-c", found["run"] if engine == "skypilot" else found["commands"][0]]
    env |= {"SKYPILOT_JOB_RANK": "1", "INDEX": "1"}
    subprocess.run(words, env=env, cwd=tmp_path, check=True)
    assert list(state_of(plan).results) == [1]


def test_a_list_of_runs_is_trained_by_xargs(run: Run, tmp_path: Path):
    plan = game_plan(tmp_path, "--fail 1")
    (tmp_path / "all.sh").write_text(written(run, "parallel", "", "--jobs", 2))
    subprocess.run(["sh", "all.sh"], env={**os.environ, "PATH": own_program(tmp_path)}, cwd=tmp_path, check=True)
    assert len(state_of(plan).results) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_short_and_refuse_what_they_have_no_place_for(run: Run, tmp_path: Path, engine: str):
    game_plan(tmp_path)
    assert len(written(run, engine, CASES.get(engine, "")).splitlines()) <= LONGEST
    for wrong in ("colour=red", "image=", *(["image=i"] if engine in CASES else [])):
        assert run("launch", "plan.jsonl", "--engine", engine, "--set", wrong).code == 2
