"""Several logs in one call, each of another tool: map files in their place, or a refusal that says what to do."""

from __future__ import annotations

import json
import os
import shlex
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError, MixedError, ShapleyMixError, UsageError
from shapleymix.tables.examining import examined

GOLDEN = Path(__file__).with_name("golden")
OWN = "run,N,D,p_en,p_de,loss_en,loss_de\nown-1,1M,20M,0.5,0.5,3.5,3.25\nown-2,1M,20M,0.25,0.75,3.75,2.5\n"
WANDB = (
    "Name,State,params,tokens,w_en,w_de,l/en,l/de\na,finished,2000000,20M,50,50,5,4\nb,finished,2000000,20M,25,75,6,4\n"
)
TIDY = "run,N,D,language,ratio,loss\nc,3M,20M,en,.5,3.5\nc,3M,20M,de,.5,3.25\n"
WRITTEN = {"own.csv": OWN, "wandb.csv": WANDB, "tidy.csv": TIDY}
DESIGN = str(GOLDEN / "design.csv")
KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "ours": (["own.csv"], {}),
    "W&B": (
        ["wandb.csv"],
        {
            "map": {"run": "Name", "N": "params", "D": "tokens", "p": "w_{lang}", "loss": "l/{lang}"},
            "ratio_unit": "percent",
            "unit": "bits",
        },
    ),
    "tidy": (["tidy.csv"], {"long": True, "map": {"N": 3e6}}),
    "MLflow": (
        [str(GOLDEN / "mlflow_experiments.csv")],
        {
            "map": {"run": "tags.mlflow.runName", "D": "metrics.tokens", "loss": "metrics.val/loss_{lang}", "N": 4e6}
            | {"p": "params.w_{lang}"}
        },
    ),
    "Megatron": (
        [str(GOLDEN / f"megatron/{name}.log") for name in ("mix-01", "mix-02")],
        {"map": {"languages": {"0": "en", "1": "de"}}, "join": DESIGN},
    ),
    "Hugging Face": ([str(GOLDEN / "mix-07/checkpoint-4/trainer_state.json")], {"join": DESIGN}),
    "TensorBoard": ([str(GOLDEN / "tensorboard")], {"map": {"loss": "eval/loss/{lang}"}, "join": DESIGN}),
}


def rows(log: sm.RunLog) -> list[tuple[object, ...]]:
    """What a log holds, without the ids of runs, which several logs may prefix."""
    log = log.aligned(("en", "de"), ("en", "de"))
    return sorted(zip(log.N.tolist(), log.D.tolist(), log.p.tolist(), log.loss.tolist(), strict=True))


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tables, and a map file of each kind in a folder of its own, which names its logs from there."""
    (tmp_path / "maps").mkdir()
    for name, text in WRITTEN.items():
        (tmp_path / name).write_text(text)
    for kind, (logs, how) in KINDS.items():
        given = {key: value for key, value in how.items() if key != "map"} | how.get("map", {})
        given["log"] = [os.path.relpath(tmp_path / log, tmp_path / "maps") for log in logs]
        text = "".join(f"{key} = {toml(value)}\n" for key, value in given.items())
        (tmp_path / f"maps/{kind}.toml").write_text(text)
    return tmp_path


def alone(folder: Path, kind: str) -> sm.RunLog:
    logs, how = KINDS[kind]
    return sm.read_runs([folder / log for log in logs], **how)


@pytest.mark.parametrize("pair", [*combinations(KINDS, 2)], ids=" and ".join)
def test_map_files_in_the_place_of_logs(folder: Path, pair: tuple[str, str]) -> None:
    """Two kinds at once are what each is alone, and what made them what they are is among the files."""
    maps = [folder / f"maps/{kind}.toml" for kind in pair]
    found = sm.read_runs(maps)
    assert rows(found) == sorted(rows(alone(folder, pair[0])) + rows(alone(folder, pair[1])))
    assert {str(one) for one in maps} <= {one.file for one in found.files}


@pytest.mark.parametrize("pair", [*permutations(KINDS, 2)], ids=" read as ".join)
def test_one_reading_of_two_kinds_is_right_or_refused(folder: Path, pair: tuple[str, str]) -> None:
    """What is said of one kind and given for both never makes a log of what the other does not say."""
    other, kind = pair
    how = KINDS[kind][1]
    logs = [folder / log for name in pair for log in KINDS[name][0]]
    try:
        found = sm.read_runs(logs, **how)
    except ShapleyMixError:
        return
    assert rows(found) == sorted(rows(alone(folder, other)) + rows(alone(folder, kind)))


def test_a_map_beside_a_plain_log(folder: Path) -> None:
    """What is asked for is of the plain one alone."""
    found = sm.read_runs([folder / "maps/W&B.toml", folder / "tidy.csv"], long=True)
    assert rows(found) == sorted(rows(alone(folder, "W&B")) + rows(alone(folder, "tidy")))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    return runner(capsys)


def typed(hint: str, start: str) -> list[list[str]]:
    """The commands in a hint that begin in a way, as words without the program's name."""
    parts = [part.partition("shapleymix ")[2] for part in hint.split("; or: ")]
    return [shlex.split(part) for part in parts if part.startswith(start)]


def test_the_ways_that_a_refusal_names_are_ways(run: Run, folder: Path) -> None:
    """A log of ours beside a W&B export: either way of the hint gives both logs."""
    switches = ["--map", "run=Name", "--map", "N=params", "--map", "D=tokens", "--map", "p=w_{lang}"]
    switches += ["--map", "loss=l/{lang}", "--ratio-unit", "percent", "--unit", "bits"]
    refused = run("import", "wandb.csv", "own.csv", *switches, "--json")
    assert refused.code == 2
    error = refused.document["error"]
    assert error["message"] == "is a run log as it stands, and wandb.csv is not: no map or unit holds for both"
    by_map, by_import = typed(error["hint"], "import")
    wanted = sorted(rows(alone(folder, "ours")) + rows(alone(folder, "W&B")))
    assert run(*by_import).code == 0
    assert rows(sm.read_runs([by_import[-1], "own.csv"])) == wanted
    assert run(*by_map).code == 0
    assert rows(sm.read_runs([by_map[-1], "own.csv"])) == wanted
    assert run("import", by_map[-1], "own.csv", "-o", "both.csv").code == 0
    assert rows(sm.read_runs("both.csv")) == wanted


def test_two_tools_and_the_map_of_one(folder: Path) -> None:
    with pytest.raises(MixedError, match=r"is written otherwise than .*wandb.csv, for which the map holds: has no"):
        sm.read_runs([folder / "wandb.csv", KINDS["MLflow"][0][0]], **KINDS["W&B"][1])


@pytest.mark.parametrize(
    ("text", "how", "message"),
    [
        ('run = "Name"\n', {}, "is a map that names no log"),
        ('log = ["own.csv", 3]\n', {}, "log is an int, expected a file"),
        ('log = ""\n', {}, "log is empty, expected a file"),
        ('log = "absent.csv"\n', {}, "absent.csv: cannot be read"),
        ('log = "own.csv"\n', {"unit": "bits"}, "(unit) does nothing here"),
        ('log = "map.toml"\n', {}, "map.toml"),
        ('logs = "own.csv"\n', {}, "did you mean 'log'?"),
    ],
)
def test_map_files_that_name_no_log(folder: Path, text: str, how: Any, message: str) -> None:
    (folder / "map.toml").write_text(text)
    with pytest.raises((UsageError, DataError)) as caught:
        sm.read_runs(folder / "map.toml", **how)
    assert message in str(caught.value)
    with pytest.raises(UsageError, match="'log' is no key of a map"):
        sm.read_runs(folder / "own.csv", map={"log": "own.csv"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_map_is_the_log(folder: Path, kind: str) -> None:
    """With all that was said: units, joined tables, names of languages, columns one by one."""
    logs, how = KINDS[kind]
    goal = folder / "maps/new.toml"
    goal.write_text(examined(folder / logs[0], **how).toml(folder / "maps"))
    assert rows(sm.read_runs(goal)) == rows(sm.read_runs(folder / logs[0], **how))
    keywords: dict[str, Any] = dict(examined(goal).keywords)
    assert sm.read_runs(folder / logs[0], **keywords).digest == sm.read_runs(goal).digest


def test_columns_one_by_one_come_through(run: Run, folder: Path) -> None:
    """They were written as one column with commas in its name."""
    given = ["--map", "run=Name", "--map", "N=1M", "--map", "D=tokens", "--map", "p.en=w_en", "--map", "p.de=w_de"]
    shown = run("import", "wandb.csv", *given, "--map", "loss=l/{lang}", "--ratio-unit", "percent", "--show")
    command = shown.out.strip().splitlines()[-1]
    assert run(*shlex.split(command)[1:]).code == 0, command
    assert rows(sm.read_runs("runs.csv"))[0][2:] == ([0.25, 0.75], [6.0, 4.0])


def test_a_file_that_a_map_names_is_not_overwritten(run: Run, folder: Path) -> None:
    outcome = run("import", "maps/W&B.toml", "-o", "wandb.csv", "--force")
    assert (outcome.code, "is an input as well" in outcome.err) == (2, True)
    assert (folder / "wandb.csv").read_text() == WANDB
