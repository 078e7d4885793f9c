"""`shapleymix export`: what other commands wrote as a trainer's file, its account, and what is refused by name."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml
from cli_tools import Run, runner
from known_fits import FakeFit
from shapleymix_cli.commands import export as command

import shapleymix as sm
from shapleymix.exporting.export import FORMATS
from shapleymix.mixing.frontier import frontier
from shapleymix.mixing.grids import MixtureGrid, grid_of
from shapleymix.mixing.optimization import optimize, optimize_scales
from shapleymix.tables.writing import write_table

TOKENS = "en=1T,de=100B,fi=2B,code=50B"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every document that holds mixtures, as `optimize -o` writes it."""
    place, fit = tmp_path_factory.mktemp("mixtures"), FakeFit()
    optimize(fit, "1B", "100B", available=TOKENS).save(place / "plain.json")
    optimize(fit, "1B", "100B", available=TOKENS, groups=["en+de<=0.5"], what_if="fi+2B").save(place / "grouped.json")
    grid_of("shapley", optimize_scales(fit, ["1B", "2B"], ["50B", "100B"])).save(place / "grid.json")
    frontier(fit, "1B", "100B", "en:rest", points=5).save(place / "frontier.json")
    (place / "ratios.json").write_text('{"en": 0.5, "de": 0.5}')
    write_table(grid_of("shapley", [optimize(fit, "1B", "1B")]).columns(), place / "numbers.csv")
    (place / "half.json").write_text('{"en": 0.5, "de": "half"}')
    (place / "percent.json").write_text('{"en": 50, "de": 50}')
    (place / "list.json").write_text("[0.5, 0.5]")
    (place / "log.csv").write_text("run,N,D,p_en,p_de,loss_en\nfirst,1e9,1e10,0.5,0.5,2\nsecond,1e9,1e10,0.2,0.8,2.1\n")
    rows = ["language,path,available_tokens", "en,d/en,1T", "de,d/de,100B", "fi,d/fi,2B", "code,d/code,50B"]
    (place / "paths.csv").write_text("\n".join(rows) + "\n")
    return place


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_command_knows_every_format() -> None:
    assert tuple(FORMATS) == command.FORMATS


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("given", ["plain.json", "grouped.json", "en=60%,de=40%", "ratios.json", "natural"])
def test_every_mixture_in_every_format(run: Run, form: str, given: str) -> None:
    """The document, the file on standard output and the file of -o say the same."""
    options = f"--format {form} --paths paths.csv --mean-tokens 2048 -D 100B"
    done = run(f"export {given} {options} --json")
    assert done.code == 0, done.err
    document = done.document
    assert document["kind"] == "export"
    assert sum(document["p"]) == pytest.approx(1, abs=1e-12)
    assert document["sources"] == [one["source"] for one in document["streams"]]
    assert document["provenance"]["inputs"].keys() == {"paths.csv"} | ({given} if given.endswith(".json") else set())
    printed = run(f"export {given} {options}").out
    if form == "json":
        assert json.loads(printed) == document
    else:
        assert printed.rstrip("\n") == document["text"].rstrip("\n")


def test_the_ratios_are_those_of_the_optimum(run: Run) -> None:
    best = sm.Mixture.load("grouped.json")
    document = run("export grouped.json --format json --json").document
    kept = {name: p for name, p in best.mixture.items() if p * best.D >= 1}
    assert document["config"]["mixture"] == pytest.approx(kept, abs=1e-9)
    assert document["D"] == best.D
    for name, epochs in zip(best.sources, best.epochs.tolist(), strict=True):
        if name in kept:
            assert document["config"]["by_source"][name]["epochs"] == pytest.approx(epochs)


def test_a_file_its_account_and_a_table(run: Run, tmp_path: Path) -> None:
    goal = tmp_path / "blend.txt"
    done = run("export", "plain.json", "--format", "megatron", "--paths", "paths.csv", "-o", goal)
    assert done.code == 0
    assert f"wrote {goal}, and {goal}.json" in done.err
    assert "sequences" in done.out
    account = json.loads((tmp_path / "blend.txt.json").read_text())
    assert account["text"] == goal.read_text()
    assert account["provenance"]["inputs"].keys() == {"plain.json", "paths.csv"}
    words = goal.read_text().split()
    assert words[1::2] == [path for one in account["streams"] for path in one["paths"]]
    again = run("export", "plain.json", "--format", "megatron", "--paths", "paths.csv", "-o", goal)
    assert (again.code, "exists already" in again.err) == (2, True)
    goal.unlink()
    again = run("export", "plain.json", "--format", "megatron", "--paths", "paths.csv", "-o", goal)
    assert (again.code, "blend.txt.json: exists already" in again.err) == (2, True)


def test_the_same_call_gives_the_same_bytes(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("export", "plain.json", "--format", "mosaic", "--paths", "paths.csv", "-o", tmp_path / f"{name}.yaml")
    assert (tmp_path / "a.yaml").read_bytes() == (tmp_path / "b.yaml").read_bytes()
    assert (tmp_path / "a.yaml.json").read_bytes() == (tmp_path / "b.yaml.json").read_bytes()


def test_one_of_a_grid_is_chosen_by_its_budget(run: Run) -> None:
    grid = MixtureGrid.load("grid.json")
    for one in grid.entries:
        document = run(f"export grid.json --format json -N {one.N:g} -D {one.D:g} --json").document
        assert document["D"] == one.D
        assert list(document["config"]["mixture"].values()) == pytest.approx(one.p[one.p * one.D >= 1], abs=1e-9)
    several = run("export grid.json --format json -N 1B")
    assert several.code == 2
    assert "grid.json: holds 2 mixtures, expected one" in several.err
    assert "-N 1000000000 -D 50000000000, -N 1000000000 -D 100000000000" in several.err
    assert "holds no mixture at that budget" in run("export grid.json --format json -D 1T").err


def test_one_of_a_frontier_is_chosen_by_its_number(run: Run) -> None:
    curve = sm.Frontier.load("frontier.json")
    for place, one in enumerate(curve.entries, start=1):
        document = run(f"export frontier.json --format json --point {place} --json").document
        assert list(document["config"]["mixture"].values()) == pytest.approx(one.p[one.p * curve.D >= 1], abs=1e-9)
        assert document["D"] == curve.D
    without = run("export frontier.json --format json")
    assert without.code == 2
    assert f"holds {len(curve.entries)} mixtures, expected one" in without.err
    assert "--point 1 (best for the second side)" in without.err
    assert "has no point 99" in run("export frontier.json --format json --point 99").err


def test_one_of_a_plan_is_chosen_by_its_name(run: Run, tmp_path: Path) -> None:
    assert run("export log.csv --format json --run second --json").document["p"] == [0.2, 0.8]
    plan = sm.design(3, sources=["en", "de"], seed=0)
    plan.save(tmp_path / "plan.json")
    for name, p in zip(plan.runs, plan.p, strict=True):
        done = run("export", tmp_path / "plan.json", "--run", name, "--format", "json", "--json").document
        assert done["D"] is None
        assert list(done["config"]["mixture"].values()) == pytest.approx(p[p > 0].tolist(), abs=1e-12)


def test_an_account_is_a_mixture_for_other_trainers(run: Run, tmp_path: Path) -> None:
    """The neutral file of one export is what the next begins with."""
    first = tmp_path / "neutral.json"
    run("export", "plain.json", "--format", "json", "-o", first)
    again = run("export", first, "--format", "megatron", "--paths", "paths.csv", "--json").document
    assert again["p"] == json.loads(first.read_text())["p"]
    assert again["D"] == 1e11


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("export plain.json", 2, "give --format, one of megatron, hf, mosaic"),
        ("export plain.json --format megatronn", 2, "did you mean 'megatron'?"),
        ("export plain.json --format megatron", 2, "give --paths paths.csv"),
        ("export none.json --format hf", 1, "none.json: cannot be read: No such file"),
        ("export paths.csv --format hf", 1, "paths.csv: has no p_<source>"),
        ("export numbers.csv --format json", 1, "of optimize give the document: optimize -o mixture.json"),
        ("export log.csv --format json", 2, "log.csv: holds 2 mixtures, expected one"),
        ("export log.csv --format json --run seconds", 2, "did you mean 'second'?"),
        ("export log.csv --format json --run first -N 1B", 2, "-N chooses nothing in a plan"),
        ("export plain.json --format json --run first", 2, "--run chooses nothing in one mixture"),
        ("export plain.json --format json --point 2", 2, "--point chooses nothing in one mixture"),
        ("export plain.json --format json -N 1B", 2, "-N chooses nothing in one mixture"),
        ("export grid.json --format json --point 1", 2, "--point chooses nothing in a grid"),
        ("export frontier.json --format json -N 1B", 2, "-N chooses nothing in a frontier"),
        ("export en=0.5,de=0.4 --format json", 2, "sums to 0.9, expected 1"),
        ("export natural --format json", 2, "nothing says what the languages are"),
        ("export nonsense --format json", 2, "'nonsense' is no mixture"),
        ("export half.json --format json", 1, "half.json: de: 'half' is not a number"),
        ("export percent.json --format json", 1, "percent.json: the mixture sums to 100, expected 1"),
        ("export list.json --format json", 1, "list.json: holds no mixture"),
        ("export plain.json --format hf --mean-tokens eng=3", 2, "'eng' is not one of the sources"),
        ("export plain.json --format hf --languages plain.json", 1, "plain.json"),
    ],
)
def test_wrong_questions(run: Run, call: str, code: int, message: str) -> None:
    done = run(call)
    assert (done.code, done.out) == (code, "")
    assert message in done.err


@pytest.mark.parametrize("kind", ["fit", "prediction", "baselines"])
def test_other_documents_are_refused_by_their_kind(run: Run, kind: str, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"schema_version": 1, "kind": kind, "p": [1.0]}))
    done = run("export", other, "--format", "json")
    assert done.code == 1
    assert f"holds a {kind}, expected a mixture" in done.err


def test_another_d_is_told(run: Run) -> None:
    done = run("export plain.json --format json -D 50B")
    assert "warning: the mixture was optimised for D = 100B, and is exported for 50B" in done.err


def test_standard_input_is_a_mixture(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    stream = io.TextIOWrapper(io.BytesIO(Path("plain.json").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    document = run("export - --format json --json").document
    assert document["D"] == 1e11
    assert document["provenance"]["inputs"].keys() == {"<stdin>"}


def test_documents_get_their_weights_and_a_warning_without_lengths(run: Run) -> None:
    done = run("export en=0.5,de=0.5 --format llama-factory --mean-tokens en=100,de=300")
    assert yaml.safe_load(done.out)["interleave_probs"] == "0.75,0.25"
    assert done.err == ""
    assert "warning: documents are drawn, and no mean_tokens say" in run("export en=0.5,de=0.5 --format hf").err


def test_names_of_files_cannot_move_the_cursor(run: Run, tmp_path: Path) -> None:
    evil = tmp_path / "paths.csv"
    evil.write_text("language,path\nen,a\x1b[2Jb\n", encoding="utf-8")
    done = run(shlex.join(["export", "en=1", "--format", "hf", "--paths", str(evil)]))
    assert done.code == 1
    assert "\x1b" not in done.err + done.out
