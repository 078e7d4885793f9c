"""What commands print is what the library answers, and every example of every help runs as it stands."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from cli_tools import Run, every_command, runner

import shapleymix as sm

pytestmark = pytest.mark.usefixtures("one_prior")

BUDGET = "-N 97600 -D 2M"
QUICK = "--law learned-base --bootstrap 30 --folds 3 --min-own-tokens 20k"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's tables, a matrix and a fit."""
    from shapleymix_cli.main import commands

    folder = tmp_path_factory.mktemp("home")
    lines = ("example", "shapley example/coalitions.csv -o sv.csv", f"fit example/runs.csv {QUICK} -o fit.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in (*lines, "downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o tasks.json"):
            assert commands.main(f"{line} -q".split(), standalone_mode=False) == 0
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(home)
    return runner(capsys)


@pytest.fixture(scope="module")
def fit(home: Path) -> sm.Fit:
    return sm.Fit.load(home / "fit.json")


def examples() -> list[str]:
    """The examples of all helps in the order of the work, each once; fits are made quickly."""
    lines = dict.fromkeys(line for made in every_command().values() for line in getattr(made, "examples", ()))
    quick = [line.replace("runs.csv -o fit.json", f"runs.csv {QUICK} -o fit.json") for line in lines]
    return [line.removeprefix("shapleymix ") for line in quick]


def test_every_example_of_every_help_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runner(capsys)
    for line in examples():
        done = run(line)
        assert done.code == 0, f"{line}\n{done.err}"
        assert done.out


@pytest.mark.parametrize(
    "line",
    [
        "transfer sv.csv", "transfer example/irds_raw.csv sv.csv --calibrate",
        "evaluate fit.json example/coalitions.csv", "fit example/runs.csv --law chinchilla --bootstrap 0 --folds 0",
        f"predict fit.json --mixture uniform {BUDGET}", f"predict fit.json --mixture uniform --mixture en=1 {BUDGET}",
        f"optimize fit.json {BUDGET}", f"optimize fit.json {BUDGET} --frontier zh+ja:rest --points 3",
        "optimize fit.json -N 97600 -D 1M,2M", f"plan mixtures example/runs.csv --n 2 {BUDGET}",
    ],
)  # fmt: skip
def test_json_is_the_record_itself(run: Run, line: str, tmp_path: Path) -> None:
    """What is printed is what is saved, and is read back to the same bytes."""
    from shapleymix.records import Record

    shown = run(f"{line} --json -q")
    assert shown.code == 0
    path = tmp_path / "saved.json"
    path.write_text(shown.out)
    record = Record.load(path)
    assert record.kind == shown.document["kind"]
    record.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == shown.document


def test_fit_is_the_librarys(run: Run) -> None:
    line = "fit example/runs.csv --law chinchilla --bootstrap 0 --folds 0 --json"
    found = sm.fit("example/runs.csv", "chinchilla", bootstrap=0, folds=0)
    assert run(line).document["law"] == json.loads(json.dumps(found.to_document()["law"]))


@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        ("", {}),
        ("--caps zh=0.1 --caps ja=0.2", {"caps": {"zh": 0.1, "ja": 0.2}}),
        ("--floors fr=0.3 --fix de=0.2", {"floors": {"fr": 0.3}, "fix": {"de": 0.2}}),
        ("--weights ja=5,en=1 --objective worst", {"weights": {"ja": 5, "en": 1}, "objective": "worst"}),
        ("--groups 'en+de<=0.3' --groups 'zh+ja>=0.5'", {"groups": ["en+de<=0.3", "zh+ja>=0.5"]}),
        ("--available zh=100k --max-epochs 2", {"available": {"zh": 1e5}, "max_epochs": 2}),
        ("--min-tokens en=50k", {"min_tokens": {"en": 5e4}}),
        ("--near uniform --within 0.1 --distance kl", {"near": "uniform", "within": 0.1, "distance": "kl"}),
        ("--anchor uniform --kl 0.5", {"anchor": "uniform", "kl": 0.5}),
        ("--languages example/languages.csv", {"languages": "example/languages.csv"}),
        ("--downstream tasks.json", {"downstream": "tasks.json"}),
    ],
)  # fmt: skip
def test_the_options_are_the_keywords(run: Run, fit: sm.Fit, words: str, keywords: dict[str, object]) -> None:
    found = run(f"optimize fit.json {BUDGET} {words} --json -q").document
    same = sm.optimize(fit, 97600, "2M", **keywords)  # type: ignore[arg-type]
    np.testing.assert_array_equal(found["p"], same.p)
    assert found["objective"] == same.objective
    gap = found["certificate"]["gap"]  # none where scores are not convex in the mixture
    assert gap is None if "downstream" in keywords else gap <= 1e-6


def test_what_is_shown_of_a_mixture_is_in_the_record(run: Run) -> None:
    line = f"optimize fit.json {BUDGET} --caps ja=0.2 --what-if zh+1M --available zh=200k --max-epochs 1"
    record, text = run(f"{line} --json").document, run(line).out
    assert f"{record['objective']:.4f}" in text
    for name, ratio in zip(record["sources"], record["p"], strict=True):
        assert any(row.split()[:2] == [name, f"{ratio:.4f}"] for row in text.splitlines() if row)
    assert all(rival["name"] in text for rival in record["baselines"])
    assert {one["source"] for one in record["binding"]} == {"ja", "zh"}
    assert len(run(line).err.splitlines()) <= 3
    assert "Predicted loss" in run(f"{line} -v").out


def test_a_budget_that_the_fit_does_not_tell_is_asked_for(run: Run) -> None:
    assert run("optimize fit.json --json").document["error"]["code"] == "usage"
    for words in ("-N 97600 --flops 1e12", "--flops 1e12 --frontier zh:rest", f"{BUDGET} --points 3"):
        assert run(f"optimize fit.json {words}").code == 2
    for words in ("-N 97600", "--downstream tasks.json", "--weights ja=5", "--objective worst"):
        assert run(f"predict fit.json example/runs.csv {words}").code == 2


def test_several_mixtures_are_compared_with_the_first(run: Run, fit: sm.Fit) -> None:
    mine = "mine=en=0.6,de=0.1,fr=0.1,zh=0.1,ja=0.1"
    found = run(f"predict fit.json --mixture uniform --mixture {mine} {BUDGET} --json -q").document
    same = sm.compare_mixtures(fit, ["uniform", mine], 97600, "2M")
    assert [one["gain"] for one in found["entries"]][1:] == [one.gain for one in same.entries][1:]
    assert "mine" in run(f"predict fit.json --mixture uniform --mixture mine=en=1 {BUDGET} -q").out


def test_predictions_of_a_table_are_those_of_its_rows(run: Run, fit: sm.Fit) -> None:
    found = run("predict fit.json example/runs.csv --json -q").document
    log = sm.read_runs("example/runs.csv").align(fit.sources)
    told, log = fit.predict(log), log.select(log.trained)
    for losses in (np.array(found["losses"], float), told.losses):
        np.testing.assert_allclose(losses, fit.predict(log.p, log.N, log.D).losses)


def test_scores_are_predicted_and_shown_as_scores(run: Run) -> None:
    line = f"predict fit.json --mixture uniform --mixture en=1 {BUDGET} --downstream tasks.json"
    found, text = run(f"{line} --json -q").document, run(f"{line} -q").out
    assert found["measure"] == "error"
    assert f"{1 - found['entries'][0]['objective']:.4f}" in text


def test_tables_name_units_and_have_ratios_of_bytes(run: Run) -> None:
    Path("sizes.csv").write_text("language,bytes_per_token\nen,4\nde,5\nfr,4\nzh,3\nja,3\n")
    begun, mixtures = f"optimize fit.json {BUDGET}", f"predict fit.json --mixture uniform {BUDGET}"

    def table(line: str) -> pl.DataFrame:
        assert run(f"{line} --unit bpb --languages sizes.csv -o table.csv --force").code == 0
        return pl.read_csv("table.csv")

    mixture, grid, compared = table(begun), table(f"{begun},1M"), table(f"{mixtures} --mixture en=1")
    in_bytes = mixture["p"] * np.array([4, 5, 4, 3, 3])
    np.testing.assert_allclose(mixture["p_bytes"], in_bytes / in_bytes.sum())
    np.testing.assert_allclose(grid.select("^p_bytes_.*$").sum_horizontal(), 1)
    told = [table(line)["unit"] for line in (f"{begun} --frontier zh:rest --points 3", mixtures)]
    assert {*pl.concat([*told, grid["objective_unit"], compared["objective_unit"]])} == {"bits a byte"}


def test_a_point_of_a_curve_is_exported(run: Run) -> None:
    assert run(f"optimize fit.json {BUDGET} --frontier zh+ja:rest --points 3 -o curve.json --force").code == 0
    assert run("export curve.json --format json --json").code == 2
    made = run("export curve.json --format json --point 2 --json -q").document
    curve = sm.Frontier.load("curve.json")
    assert list(made["mixture"].values()) == pytest.approx(curve.entries[1].p.tolist())


def optimum(run: Run, words: str = "", fit: str = "fit.json", budget: str = BUDGET, code: int = 0) -> dict[str, Any]:
    """The document of `optimize`."""
    found = run(f"optimize {fit} {budget} {words} --json -q")
    assert found.code == code, found.err
    return found.document


def test_the_rest_of_a_run_already_begun(run: Run) -> None:
    run(f"optimize fit.json {BUDGET} -o begun.json")
    at_hand = "--available en=1M,de=1M,fr=1M,zh=1M,ja=1M -o rest.json"
    found = optimum(run, f"--after begun.json --trained 2M {at_hand}", budget="-N 97600 -D 4M")
    whole, read = found["p"], found["read"]
    assert all(4e6 * ratio >= tokens * (1 - 1e-9) for ratio, tokens in zip(whole, read, strict=True))
    written = run("export rest.json --format json --json").document
    assert written["D"] == pytest.approx(2e6)
    zh = found["sources"].index("zh")
    assert written["tokens"]["zh"] == pytest.approx(4e6 * whole[zh] - read[zh])
    drawn = run("plot mixture rest.json --json").document["numbers"]
    assert dict(zip(drawn["source"], drawn["rest"], strict=True)) == pytest.approx(written["mixture"])
    assert found["rest"] == pytest.approx(written["mixture"])
    further = optimum(run, "--after rest.json --trained 3M", budget="-N 97600 -D 4M")["read"]
    by_hand = [tokens + 1e6 * part for tokens, part in zip(read, found["rest"].values(), strict=True)]
    np.testing.assert_allclose(further, by_hand, atol=1)
    optimum(run, "--after rest.json --trained 1M", budget="-N 97600 -D 4M", code=1)


def test_parts_of_languages_are_groups_that_move_as_one(run: Run, fixtures: Path) -> None:
    quick = "--bootstrap 0 --folds 0 -q"
    run(f"fit {fixtures / 'nested_runs.csv'} {quick} -o parts.json")
    kept = "--groups en<=0.2 --keep-within en --kept en/clean=.6,en/noised=.2,fr/clean=.2"
    asked = {"fit": "parts.json", "budget": "-N 23712 -D 1M"}
    found = optimum(run, kept, **asked)
    p = dict(zip(found["sources"], found["p"], strict=True))
    assert p["en/clean"] == pytest.approx(3 * p["en/noised"])
    assert p["en/clean"] + p["en/noised"] <= 0.2 + 1e-9
    printed = run(f"optimize parts.json -N 23712 -D 1M {kept}").out
    assert all(f"{p[f'{one}/clean'] + p[f'{one}/noised']:.4f}" in printed for one in ("en", "de", "fr"))
    Path("parents.csv").write_text("language,parent\nen,west\nde,west\nfr,west\nzh,east\nja,east\n")
    run(f"fit example/runs.csv {quick} --languages parents.csv -o east.json")
    told, same = (optimum(run, f"--groups {one}<=0.2", fit="east.json") for one in ("east", "zh+ja"))
    assert told["p"] == same["p"]


def test_what_no_mixture_meets_and_what_no_run_holds(run: Run) -> None:
    assert optimum(run, "--caps 0.1", code=1)["error"]["hint"]
    assert "nl" in optimum(run, "--like nl=de")["sources"]


def test_four_runs_are_enough_for_the_default(run: Run) -> None:
    log = pl.read_csv("example/runs.csv").filter(pl.col("N") == 97600, pl.col("D") < 1.5e6)
    log.tail(4).write_csv("four.csv")
    run("fit four.csv --bootstrap 20 -o four.json")
    assert sum(optimum(run, fit="four.json")["p"]) == pytest.approx(1, abs=1e-9)


def test_a_project_file_and_what_is_typed_merge_by_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "shapleymix.toml").write_text("caps = {ja = 0.1}\n")
    caps = optimum(run, f"--caps zh=0.1 --project {tmp_path / 'shapleymix.toml'}")["caps"]
    assert caps == [1, 1, 1, 0.1, 0.1]


OWN = '''
from dataclasses import dataclass
import numpy as np
import shapleymix as sm
from shapleymix.laws import BlackBox

@dataclass(frozen=True)
class Flat(sm.Law):
    """L_j = E_j."""
    name = "flat"
    kind = "law/flat"
    E: object = sm.fitted("K", positive=True)

    def losses(self, p, N, D):
        return self.E[..., None, :] * np.ones((len(p), 1))

@dataclass(frozen=True)
class Mean(BlackBox):
    """Predicts two everywhere."""
    name = "two"
    kind = "law/two"

    @classmethod
    def learn(cls, seen, groups, seed):
        return cls()

    def __call__(self, p, N, D):
        return np.full((len(p), 5), 2.0)
'''


@pytest.mark.parametrize("given", ["", BUDGET, "--mixture uniform", f"--mixture uniform {BUDGET}"])
@pytest.mark.parametrize(
    "words", ["--available fr=100k", "--weights ja=5,en=1 --available zh=10k", "--objective worst --floors 0.02"]
)
def test_a_saved_mixture_is_judged_by_what_it_was_found_for(run: Run, words: str, given: str) -> None:
    """Whichever way its budget and its rivals are named."""
    run(f"optimize fit.json {BUDGET} {words} -o asked.json --force -q")
    best = sm.Mixture.load("asked.json")
    found = run(f"predict fit.json --mixture asked.json {given} --json -q").document
    if "uniform" not in given:
        np.testing.assert_allclose(found["losses"][0], best.losses, rtol=1e-9)
        return
    (mine, rival), uniform = found["entries"], next(one for one in best.baselines if one.name == "uniform")
    np.testing.assert_allclose(mine["losses"], best.losses, rtol=1e-9)
    told = [-rival[name] for name in ("gain", "gain_high", "gain_low")]
    np.testing.assert_allclose(told, [uniform.gain, uniform.gain_low, uniform.gain_high], rtol=1e-6, atol=1e-12)
    assert rival["probability"] == pytest.approx(1 - uniform.probability, abs=1e-9)


def test_the_first_saved_mixture_says_what_others_and_scores_are_judged_by(run: Run) -> None:
    run(f"optimize fit.json {BUDGET} --weights ja=5,en=1 --available fr=100k -o first.json --force -q")
    run(f"optimize fit.json {BUDGET} --available zh=10k -o second.json --force -q")
    pair = run("predict fit.json --mixture first.json --mixture second.json --json -q").document
    assert [one == one for one in np.array(pair["available"], float)] == [False, False, True, False, False]
    scores = run("predict fit.json --mixture first.json --mixture uniform --downstream tasks.json --json -q").document
    assert (scores["measure"], scores["available"]) == ("error", pair["available"])


def test_ratios_alone_say_no_budget(run: Run) -> None:
    Path("ratios.json").write_text('{"en": 1}')
    assert run("predict fit.json --mixture ratios.json").code == 2


def test_a_law_of_ones_own_takes_part(run: Run) -> None:
    Path("own.py").write_text(OWN)
    found = run("compare example/runs.csv --laws own.py:Mean,chinchilla --folds 3 --json -q").document
    assert {one["law"] for one in found["entries"]} == {"two", "chinchilla"}


@pytest.mark.parametrize(("text", "line"), [("x = 1\n1 / 0\n", 2), ("x = 1\n\nclass (\n", 3)])
def test_a_fault_of_ones_own_file_has_its_line(run: Run, text: str, line: int) -> None:
    Path("bad.py").write_text(text)
    error = run("fit example/runs.csv --law bad.py:Mean --json").document["error"]
    assert error["location"]["file"].endswith("bad.py")
    assert error["location"]["line"] == line
