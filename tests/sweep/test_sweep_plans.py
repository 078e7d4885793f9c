"""Mixtures to train, and plans of their runs: what is in them, and that nobody edits one unnoticed."""

import json
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import Run
from shapleymix_sweep.grids import SMALL_RATE, grid
from shapleymix_sweep.mixtures import Mixtures, coalitions, empirical, random_mixtures, read_mixtures
from shapleymix_sweep.plans import Plan, read_plan

import shapleymix as sm
from shapleymix.errors import DataError, UsageError
from shapleymix.game.kriging import estimate_shapley
from shapleymix.tables.mixtures import parse_mixture

COMMAND = "train --mixture {mixture} --n {N} --d {D} --seed {seed} --out {out}"
FIVE = ("en", "de", "fr", "zh", "ja")


def small(**changes: Any) -> Plan:
    given: dict[str, Any] = {"D": ["1M"], "seeds": (0, 1), "command": COMMAND} | changes
    return grid(coalitions(("en", "de")), [1000, 2000], **given)


# -- mixtures


@pytest.mark.parametrize("players", [1, 2, 5])
def test_a_game_has_every_coalition_once_as_a_uniform_mixture(players: int):
    found = coalitions(FIVE[:players])
    held = found.p > 0
    assert len({tuple(row) for row in held.tolist()}) == len(found) == 2**players - 1
    np.testing.assert_allclose(found.p * held.sum(axis=1, keepdims=True), held)
    assert (found.names[0], found.names[-1]) == ("en", "+".join(FIVE[:players]))


def test_many_players_are_sampled_so_that_values_can_be_estimated():
    found = coalitions([f"l{place:02d}" for place in range(11)])
    assert len({tuple(row) for row in (found.p > 0).tolist()}) == len(found) == 12 * 11 + 1
    with_empty = np.concatenate([np.zeros((1, 11), bool), found.p > 0])
    estimate_shapley(with_empty, with_empty.sum(axis=1, keepdims=True).astype(float))  # is not refused
    drawn = [coalitions(FIVE, samples=12, seed=seed).names for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(UsageError):
        coalitions(FIVE, samples=4)


def test_empirical_mixtures_are_those_in_use(fixtures: Path):
    languages = sm.read_languages(fixtures / "multilingual5_languages.csv")
    table = read_mixtures(fixtures / "multilingual5_runs.csv")
    named = ["natural", "temperature:2", "uniform", "zh=1", "zh=100%", "en=0.5,de=0.5"]
    found = empirical([*named, table], FIVE, languages)
    tokens = languages.available_tokens[[languages.names.index(name) for name in FIVE]]
    np.testing.assert_allclose(found.p[0], tokens / tokens.sum())
    np.testing.assert_allclose(found.p[1], np.sqrt(tokens) / np.sqrt(tokens).sum())
    assert len(table) == len(set(sm.read_runs(fixtures / "multilingual5_runs.csv").mixture_keys))
    assert found.p[2:4].tolist() == [pytest.approx([0.2] * 5), [0, 0, 0, 1, 0]]
    assert len(found) == 3 + len(table), "uniform and zh alone are in the table, and listed once"
    with pytest.raises(UsageError):
        empirical(["unimax:1"], FIVE, languages)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 30.0])
def test_random_mixtures_scatter_around_their_mean_within_bounds(concentration: float):
    base = np.array([0.6, 0.3, 0.1])
    found = random_mixtures(4000, FIVE[:3], base=base, concentration=concentration)
    assert (len(found), found.names[-1]) == (4000, "random-4000")
    np.testing.assert_allclose(found.p.mean(axis=0), base, atol=0.03 if concentration >= 1 else 0.1)
    kept = random_mixtures(50, FIVE[:3], concentration=concentration, seed=5, moved=lambda p: 0.7 * p + 0.1)
    assert kept.p.min() >= 0.1 - 1e-9
    np.testing.assert_allclose(kept.p.sum(axis=1), 1)
    for wrong in ({"count": 0}, {"count": 3, "concentration": -1.0}):
        with pytest.raises(UsageError):
            random_mixtures(sources=("a", "b"), **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "line"), [("run,p_a,p_b\nx,0.7,0.7\n", 1), ("run,N,D\nx,1,2\n", None), ("", None)])
def test_a_table_that_holds_no_mixtures_is_refused_by_its_name(tmp_path: Path, text: str, line: int | None):
    path = tmp_path / "mix.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_mixtures(path)
    assert (caught.value.location.file, caught.value.location.line) == (str(path), line)


# -- what is in a plan


def test_a_grid_is_the_whole_product_and_its_runs_are_told_apart():
    plan = small()
    told = {(run.name, run.N, run.D, run.seed) for run in plan.runs}
    assert told == set(product(("en", "de", "en+de"), (1000, 2000), (1e6,), (0, 1)))
    assert len({run.id for run in plan.runs}) == len(plan) == 12
    words = plan.runs[2].command
    assert (words[0], words[words.index("--n") + 1], words[-1]) == ("train", "1000", "{out}")
    assert parse_mixture(words[2], ("en", "de")).tolist() == [0.5, 0.5]
    named = grid(coalitions(("a",)), {"tiny": 23712, "mini": "97.6k"}, "1M", command="train {model} {out}").runs
    assert [(run.N, run.command[1]) for run in named] == [(23712, "tiny"), (97600, "mini")]


def test_all_runs_of_a_size_have_one_recipe(tmp_path: Path):
    command = f"{COMMAND} --lr {{learning_rate}} --batch {{batch_tokens}}"
    plan = small(command=command, learning_rate="3e-3,1e-3", batch_tokens="64k")
    plan.write(tmp_path / "plan.jsonl")
    for run in read_plan(tmp_path / "plan.jsonl").runs:
        rate = {1000: 3e-3, 2000: 1e-3}[run.N]
        assert run.recipe == {"learning_rate": rate, "batch_tokens": 64e3}
        assert run.command[-4:] == ("--lr", str(rate), "--batch", "64000")
    assert small().runs[0].id not in {run.id for run in plan.runs}
    for wrong in ({"learning_rate": "1,2,3", "batch_tokens": 1}, {"learning_rate": 1e-3}, {"learning_rate": 0}, {}):
        with pytest.raises(UsageError):
            small(command=command, **wrong)
    for untold in ({"learning_rate": 1e-3}, {"available": {"en": "40M"}}):
        with pytest.raises(UsageError):
            small(**untold)
    tiny = small(command=f"{COMMAND} --lr {{learning_rate}}", learning_rate="small")
    assert {run.recipe["learning_rate"] for run in tiny.runs} == {SMALL_RATE}
    assert any("1e-05" in text for text in tiny.notices)


def test_what_runs_are_trained_on_is_said_and_artificial_languages_have_no_real_names():
    named = grid(coalitions(("toy_a", "toy_b")), {"tiny": 1000}, "1M", corpus="toy")
    assert all({"--corpus", "toy"} <= {*run.command} for run in named.runs)
    texts = {grid(coalitions(("en",)), {"tiny": 1000}, "1M", corpus=one).runs[0].id for one in ("texts", "others")}
    assert len(texts) == 2
    for corpus in (None, "toy"):
        with pytest.raises(UsageError):
            grid(coalitions(("en", "de")), {"tiny": 1000}, "1M", corpus=corpus)


def test_a_run_that_comes_twice_is_planned_once():
    one = coalitions(("en", "de"))
    twice = Mixtures(one.sources, (*one.names, "again"), np.concatenate([one.p, one.p[:1]]))
    plan = grid(twice, 1000, "1M", command=COMMAND)
    assert [run.name for run in plan.runs] == ["en", "de", "en+de"]
    assert plan.notices


def test_one_factor_cuts_the_model_the_tokens_and_the_pools(tmp_path: Path):
    """And one whose pools alone are cut says so; the pools are in the file."""
    pools = {"available": {"en": "40M"}, "scale_down": "1/4", "cut_pools": 0.5, "learning_rate": 1e-3}
    plan = small(**pools, command=COMMAND + " {learning_rate} {unique}")
    run = plan.runs[0]
    assert (run.N, run.D, run.unique, run.command[-2:]) == (250, 2.5e5, {"en": 5e6}, ("0.001", "en=5000000"))
    assert len(plan.notices) == len(small().notices) + 1
    plan.write(tmp_path / "plan.jsonl")
    assert read_plan(tmp_path / "plan.jsonl").runs == plan.runs
    with pytest.raises(UsageError):
        small(scale_down="1/4")


WRONG = {
    "unclosed": ({"command": "train 'unclosed"}, "words"),
    "no folder": ({"command": "train {mixture} {N} {seed}"}, "{out}"),
    "unknown": ({"command": COMMAND + " {mixtur}"}, "{mixtur}"),
    "format": ({"command": COMMAND + " {N:.2f}"}, "{N:.2f}"), "source": ({"command": COMMAND + " {p_xx}"}, "{p_xx}"),
    "seeds alike": ({"command": COMMAND.replace("{seed}", "0")}, "{seed}"),
    "sizes alike": ({"command": COMMAND.replace("{N}", "0")}, "{N}"),
    "mixtures alike": ({"command": COMMAND.replace("{mixture}", "0")}, "{mixture}"),
    "no model": ({"command": COMMAND + " {model}"}, "{model}"), "nothing": ({"seeds": ()}, "nothing"),
    "no tokens": ({"D": 0}, "at least 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_plan_that_cannot_be_trained_is_refused(case: str):
    changes, told = WRONG[case]
    with pytest.raises(UsageError) as caught:
        small(**changes)
    assert told in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["zh-Hans", "zh!r", "a[0].b", "it's", "a b", "{x}", "$HOME", "ą", "100%", "a/b", "*"])
def test_odd_names_reach_the_program_as_one_word(name: str, tmp_path: Path):
    command = "train 'two words' --json '{{\"a\": 1}}' --m {mixture} --r {p_other} --name {name} --to {out}/{id}"
    run = grid(coalitions((name, "other")), 1000, "1M", command=command).runs[-1]
    place = tmp_path / "some where" / "{odd}"
    words = run.words(place)
    assert words[:4] == ("train", "two words", "--json", '{"a": 1}')
    assert words[4:8] == ("--m", f"{name}=0.5,other=0.5", "--r", "0.5")
    assert words[8:] == ("--name", f"{name}+other", "--to", f"{place}/out/{run.id}")
    assert shlex.split(shlex.join(words)) == list(words)


# -- the file


def test_the_same_plan_gives_the_same_bytes_and_is_read_back(tmp_path: Path):
    for name in ("one.jsonl", "two.jsonl"):
        small().write(tmp_path / name)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    found = read_plan(tmp_path / "one.jsonl")
    assert (found.sources, found.runs) == (small().sources, small().runs)
    assert found.place(0) == tmp_path / "one-sweep" / found.runs[0].id
    first = json.loads((tmp_path / "one.jsonl").read_text().splitlines()[0])
    assert list(first) == ["index", "id", "name", "mixture", "N", "D", "seed", "command"]
    with pytest.raises(UsageError):
        small().write(tmp_path / "one.jsonl")


@pytest.mark.parametrize(
    "change",
    [
        {"mixture": {"en": 0.5, "de": 0.5}}, {"D": 2_000_000}, {"seed": 7}, {"command": ["train", "--fast"]},
        {"id": "0" * 16}, {"index": 5}, {"N": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_plan_that_was_edited_is_refused_by_line(tmp_path: Path, change: dict[str, object]):
    path = tmp_path / "plan.jsonl"
    small().write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1] |= change
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError) as caught:
        read_plan(path)
    assert caught.value.location.line == 2


@pytest.mark.parametrize("text", ["", "{", "[]\n", None])
def test_a_file_that_holds_no_plan_is_refused(tmp_path: Path, text: str | None):
    if text is not None:
        (tmp_path / "plan.jsonl").write_text(text)
    with pytest.raises(DataError):
        read_plan(tmp_path / "plan.jsonl")


# -- commands


def test_a_folder_without_text_of_a_source_is_refused_when_runs_are_planned(run: Run, tmp_path: Path):
    (tmp_path / "a.txt.gz").touch()
    for sources, code in (("a", 0), ("a,b", 2)):
        assert run(f"plan game --sources {sources} --corpus {tmp_path} -N tiny=23712 -D 1M").code == code


def test_listed_mixtures_become_a_grid_of_runs(run: Run, fixtures: Path):
    drawn = ("--random", 5, "--floors", "0.05")
    words = ("--empirical", "uniform", "--empirical", "en=1", "--empirical", "natural", *drawn)
    languages = str(fixtures / "multilingual5_languages.csv")
    made = run("plan", "mixtures", "--languages", languages, *words, "-o", "mix.csv")
    assert made.code == 0, made.err
    table = read_mixtures("mix.csv")
    drawn = [row for row, name in enumerate(table.names) if name.startswith("random-")]
    assert len(drawn) == 5
    assert table.p[drawn].min() >= 0.05 - 1e-9
    words = ("-N", "tiny=23712,mini=97600", "-D", "1M,2M", "--seeds", "0,1", "--corpus", "t", "-o", "g.jsonl")
    assert run("plan", "grid", "mix.csv", *words).code == 0
    plan = read_plan("g.jsonl")
    assert (len(plan), {one.name for one in plan.runs}) == (len(table) * 2 * 2 * 2, set(table.names))
    assert run("plan", "grid", "mix.csv", *words[:3], "1M,1.2M", *words[4:-1], "h.jsonl").code == 2  # as one D


@pytest.mark.parametrize(("words", "code"), [("--random 3 --caps a=.4", 0), ("--empirical c=1", 2)])
def test_what_is_asked_of_listed_mixtures_must_fit(run: Run, words: str, code: int):
    assert run(f"plan mixtures --sources a,b {words}").code == code
