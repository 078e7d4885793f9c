"""`shapleymix import` and `shapleymix export`: what is typed, shown, written and refused."""

import json
import os
import re
import shlex
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from cli_tools import Run, runner
from known_fits import KnownFit
from shapleymix_io.export import FORMATS
from sweep_tools import start

import shapleymix as sm

GOLDEN, ROOT = Path(__file__).parents[1] / "golden", Path(__file__).parents[2]
TOKENS = "en=1T,de=100B,fi=2B,code=50B"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What holds a mixture: an optimum, a frontier, ratios by name, a run log; and a table of paths."""
    place, fit = tmp_path_factory.mktemp("mixtures"), KnownFit()
    sm.optimize(fit, "1B", "100B", available=TOKENS).save(place / "best.json")
    sm.frontier(fit, "1B", "100B", "en:rest", points=3).save(place / "frontier.json")
    (place / "ratios.json").write_text('{"en": 0.5, "de": 0.5}')
    (place / "log.csv").write_text("run,N,D,p_en,p_de,loss_en\nfirst,1e9,1e10,0.5,0.5,2\nsecond,1e9,1e10,0.2,0.8,2.1\n")
    rows = ["language,path,available_tokens", "en,d/en,1T", "de,d/de,100B", "fi,d/fi,2B", "code,d/code,50B"]
    (place / "paths.csv").write_text("\n".join(rows) + "\n")
    (place / "wandb.csv").write_bytes((ROOT / "fixtures/multilingual5_wandb.csv").read_bytes())
    return place


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_what_is_shown_reads_the_table(run: Run, tmp_path: Path) -> None:
    """The printed command makes the log, whose ranges are said."""
    shown = run("import wandb.csv --show")
    words = shlex.split(shown.out.strip().splitlines()[-1])
    assert (words[:3], words[-2:]) == (["shapleymix", "import", "wandb.csv"], ["-o", "runs.csv"])
    document = run("import wandb.csv --show --json").document
    assert (document["missing"], document["entries"]["N"], "Runtime" in document["columns"]) == ([], "params", True)
    made = run(*words[1:-1], tmp_path / "runs.csv", "--json").document
    assert (made["rows"], made["losses"]) == (24, 120)
    assert "999.4k to 1.999M" in made["extent"]
    assert made["provenance"]["inputs"].keys() == {"wandb.csv"}
    assert sm.read_runs(tmp_path / "runs.csv").targets == ("en", "de", "fr", "zh", "ja")


def test_the_page_of_olmix_as_it_is_printed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the swarm's folder to a blend: within olmix's repetitions, pulled as its configuration says, and proved."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "cli/docs/olmix.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```", text, flags=re.M | re.S)
    words = [shlex.split(one)[1:] for one in "".join(blocks).replace("\\\n", " ").splitlines()]
    said = [run(*one) for one in words]
    assert [one.code for one in said] == [0] * len(said), [one.err for one in said]
    asked = [shlex.split(one)[1:] for one in said[1].out.splitlines() if one.startswith("  shapleymix")]
    assert asked == words[2:4], "the commands that the import prints"
    config, best = yaml.safe_load(Path("example/olmix/fit.yaml").read_text()), sm.Mixture.load("mix.json")
    priors = (config["priors"][key] for key in ("relative_sizes", "token_counts"))
    sizes, tokens = (np.array([known[one] for one in best.sources]) for known in priors)
    assert (best.p * 6e12 <= 4 * tokens * (1 + 1e-9)).all()
    assert best.penalty == pytest.approx(0.05 * np.sum(best.p * np.log(best.p / sizes)), rel=1e-3)
    assert best.relative_gap < 1e-6
    lines = [one.split() for one in Path("blend.txt").read_text().splitlines()]
    assert [float(weight) for weight, _ in lines] == pytest.approx(best.p.tolist(), abs=1e-9)
    assert all(name in path for name, (_, path) in zip(best.sources, lines, strict=True))


@pytest.mark.parametrize("source", ["tensorboard", "megatron/mix-01.log", "mlflow_experiments.csv", "mlflow_sweep.csv"])
def test_what_a_tool_wrote_is_shown(source: str, run: Run) -> None:
    run_of = "--map run=tags.mlflow.runName" if "mlflow" in source else ""
    loss = "" if "mega" in source else "--map 'loss=eval/loss/{lang}'" if "tensor" in source else ""
    join = "" if "sweep" in source else f"--join {GOLDEN / 'design.csv'}"
    document = run(f"import {GOLDEN / source} {join} {run_of} {loss} --show --json").document
    assert document["missing"] == []


@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("import wandb.csv", 1, "--map N="), ("import wandb.csv --map run=Nme", 1, "Name"),
        ("import wandb.csv --map rum=Name", 2, "run"), ("import none.csv", 1, "none.csv"),
        ("import wandb.csv --map map.toml", 2, "KEY=VALUE"), ("export best.json --format megatronn", 2, "megatron"),
        ("export best.json --format megatron", 2, "paths"), ("export none.json --format hf", 1, "none.json"),
        ("export frontier.json --format json", 2, "--point"), ("export best.json --format json -D 1e15", 1, "bounds"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly(call: str, code: int, told: str, run: Run) -> None:
    failed = run(call)
    assert (failed.code, told in failed.err) == (code, True)
    assert run(f"{call} --json").document["error"]["message"]


def test_an_import_that_is_interrupted_ends_quietly(tmp_path: Path) -> None:
    """While it waits for its input, which is a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "pipe.csv")
    child = start("import", tmp_path / "pipe.csv", "--show")
    writer = os.open(tmp_path / "pipe.csv", os.O_WRONLY)  # opens when the command has begun to read
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    os.close(writer)
    told = child.communicate(timeout=60)[1]
    assert child.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in told


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("given", ["best.json", "frontier.json --point 2", "en=60%,de=40%", "ratios.json", "natural"])
def test_every_mixture_in_every_format(run: Run, form: str, given: str) -> None:
    """The document and the file on standard output say the same."""
    options = f"--format {form} --paths paths.csv --mean-tokens 2048 -D 100B"
    done = run(f"export {given} {options} --json")
    assert done.code == 0, done.err
    document = done.document
    assert sum(document["mixture"].values()) == pytest.approx(1, abs=1e-12)
    assert document["provenance"]["inputs"].keys() >= {"paths.csv"}
    printed = run(f"export {given} {options}").out
    if form == "json":
        assert json.loads(printed) == document
    else:
        assert printed.rstrip("\n") == document["text"].rstrip("\n")


def test_a_file_and_its_account_which_is_a_mixture_again(run: Run, tmp_path: Path) -> None:
    goal = tmp_path / "streams.yaml"
    call = ("export", "best.json", "--format", "mosaic", "--paths", "paths.csv", "-o", goal)
    done = run(*call)
    assert (done.code, str(goal) in done.err) == (0, True)
    account = json.loads((tmp_path / "streams.yaml.json").read_text())
    best = sm.Mixture.load("best.json")
    kept = {name: p for name, p in best.mixture.items() if p * best.D >= 1}
    assert account["mixture"] == pytest.approx(kept, abs=1e-9)
    assert yaml.safe_load(goal.read_text()) == account["config"]
    assert run(*call).code == 2
    again = run("export", f"{goal}.json", "--format", "megatron", "--paths", "paths.csv", "--json").document
    assert again["mixture"] == pytest.approx(account["mixture"])
