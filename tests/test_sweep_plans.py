"""Plans of runs: what is in them, that they are the same each time, and that nobody edits one unnoticed."""

from __future__ import annotations

import json
import shlex
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from shapleymix.errors import DataError, ShapleyMixError, UsageError
from shapleymix.game.exact import exact_shapley
from shapleymix.game.sampled import estimate_shapley
from shapleymix.mixing.demands import Demands
from shapleymix.sweeping.controlled import controlled, empirical
from shapleymix.sweeping.games import coalitions, standard_errors
from shapleymix.sweeping.grids import grid
from shapleymix.sweeping.listed import Listed, read_mixtures
from shapleymix.sweeping.plans import Plan, read_plan
from shapleymix.sweeping.random import random_mixtures
from shapleymix.sweeping.templates import Template, started
from shapleymix.tables.languages import read_languages
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.simplex import parse_mixture

COMMAND = "train --mixture {mixture} --n {N} --d {D} --seed {seed} --out {out}"
FIVE = ("en", "de", "fr", "zh", "ja")


def small(**changes: object) -> Plan:
    given: dict[str, object] = {"seeds": (0, 1), "command": COMMAND} | changes
    return grid(coalitions(("en", "de")), [1000, 2000], ["1M"], **given)  # type: ignore[arg-type]


# -- what is in a plan


@pytest.mark.parametrize("players", [1, 2, 5])
def test_a_game_has_every_coalition_once_as_a_uniform_mixture(players: int):
    listed = coalitions(FIVE[:players])
    assert len(listed) == 2**players - 1
    held = listed.p > 0
    assert len({tuple(row) for row in held.tolist()}) == 2**players - 1
    np.testing.assert_allclose(listed.p * held.sum(axis=1, keepdims=True), held)
    assert listed.names[0] == "en"
    assert listed.names[-1] == "+".join(FIVE[:players])
    assert "no sampling error" in listed.notices[0]


def test_eleven_players_are_sampled_and_the_values_can_be_told():
    listed = coalitions([f"l{place:02d}" for place in range(11)])
    assert len(listed) == 12 * 11 + 1
    assert len({tuple(row) for row in (listed.p > 0).tolist()}) == len(listed)
    assert ((listed.p > 0).sum(axis=1) == 11).sum() == 1
    assert "133 of 2047 coalitions" in listed.notices[0]
    assert "of 2^200 - 1 coalitions" in coalitions([f"l{place:03d}" for place in range(200)], samples=400).notices[0]
    with_empty = np.concatenate([np.zeros((1, 11), bool), listed.p > 0])
    estimate_shapley(with_empty, with_empty.sum(axis=1, keepdims=True).astype(float))  # is not refused
    assert coalitions(FIVE, samples=12, seed=3) == coalitions(FIVE, samples=12, seed=3)
    assert coalitions(FIVE, samples=12, seed=3) != coalitions(FIVE, samples=12, seed=4)
    with pytest.raises(UsageError, match="too few"):
        coalitions(FIVE, samples=4)


def test_the_stated_errors_are_those_that_random_games_have():
    players, games = 8, 300
    rng = np.random.default_rng(1)
    listed = coalitions([f"l{place}" for place in range(players)], samples=60)
    members = np.concatenate([np.zeros((1, players), bool), listed.p > 0])
    masks = members @ (1 << np.arange(players))
    noise, sampling = standard_errors(members)
    payoffs = rng.normal(size=(2**players, games))
    payoffs[[0, -1]] = 0.0
    found = estimate_shapley(members, payoffs[masks], method="kernel").values
    assert np.sqrt(((found - exact_shapley(payoffs)) ** 2).mean()) == pytest.approx(sampling, rel=0.15)
    still = rng.normal(size=(len(members), games))
    still[~members.any(axis=1)] = 0.0
    moved = estimate_shapley(members, still, method="kernel").values
    assert np.sqrt((moved**2).mean()) == pytest.approx(noise, rel=0.15)
    exact = np.ones((2**players, games)) * rng.normal(size=(2**players, games))
    exact[0] = 0.0
    everyone = (np.arange(2**players)[:, None] >> np.arange(players)) & 1
    assert np.sqrt((exact_shapley(exact) ** 2).mean()) == pytest.approx(standard_errors(everyone > 0)[0], rel=0.1)


def test_a_grid_is_the_whole_product_and_its_runs_are_told_apart():
    plan = small()
    assert len(plan) == 3 * 2 * 1 * 2
    told = {(run.name, run.N, run.D, run.seed) for run in plan.runs}
    assert told == set(product(("en", "de", "en+de"), (1000, 2000), (1e6,), (0, 1)))
    assert len({run.id for run in plan.runs}) == 12
    words = plan.runs[0].command
    assert words[:2] == ("train", "--mixture")
    assert words[words.index("--n") + 1] == "1000"
    assert words[-1] == "{out}"
    assert parse_mixture(plan.runs[2].command[2], ("en", "de")).tolist() == [0.5, 0.5]


def test_named_sizes_are_models():
    plan = grid(coalitions(("a", "b")), {"tiny": 23712, "mini": "97.6k"}, "1M")
    assert {(run.N, run.command[run.command.index("--model") + 1]) for run in plan.runs} == {
        (23712, "tiny"),
        (97600, "mini"),
    }


def test_a_run_that_comes_twice_is_planned_once():
    one = coalitions(("en", "de"))
    twice = Listed(one.sources, (*one.names, "again"), np.concatenate([one.p, one.p[:1]]))
    plan = grid(twice, 1000, "1M", command=COMMAND)
    assert len(plan) == 3
    assert "planned once" in plan.notices[-1]


# -- the file


def test_the_same_plan_gives_the_same_bytes_and_is_read_back(tmp_path: Path):
    small().write(tmp_path / "one.jsonl")
    small().write(tmp_path / "two.jsonl")
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    found = read_plan(tmp_path / "one.jsonl")
    assert (found.sources, found.runs) == (small().sources, small().runs)
    first = json.loads((tmp_path / "one.jsonl").read_text().splitlines()[0])
    assert list(first) == ["index", "of", "id", "name", "mixture", "N", "D", "seed", "command"]


EDITS = {
    "ratio": (lambda one: one["mixture"].update(en=0.5, de=0.5), "was edited"),
    "D": (lambda one: one.update(D=2_000_000), "was edited"),
    "seed": (lambda one: one.update(seed=7), "was edited"),
    "command": (lambda one: one["command"].append("--fast"), "was edited"),
    "id": (lambda one: one.update(id="0" * 16), "was edited"),
    "index": (lambda one: one.update(index=5), "lines were moved or left out"),
    "of": (lambda one: one.update(of=5), "is one of 5 runs"),
    "sum": (lambda one: one["mixture"].update(en=0.7), "sum of 1"),
    "kind": (lambda one: one.pop("seed"), "is no planned run"),
    "placeholder": (lambda one: one["command"].append("{size}"), "no placeholder"),
    "words": (lambda one: one.update(command="train"), "not a list of words"),
    "size": (lambda one: one.update(N=0), "above 0"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_plan_that_was_edited_is_refused_by_line(tmp_path: Path, edit: str):
    path = tmp_path / "plan.jsonl"
    small().write(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change, told = EDITS[edit]
    change(lines[1])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match=told) as caught:
        read_plan(path)
    assert caught.value.location.line == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "holds no runs"), ("\n\n", "holds no runs"), ("{", "not valid JSON"), ("[]\n", "no planned run")],
)
def test_a_file_that_holds_no_plan_is_refused(tmp_path: Path, text: str, told: str):
    path = tmp_path / "plan.jsonl"
    path.write_text(text)
    with pytest.raises(DataError, match=told):
        read_plan(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_plan(tmp_path / "none.jsonl")


def test_a_line_that_comes_twice_is_refused(tmp_path: Path):
    path = tmp_path / "plan.jsonl"
    small().write(path)
    lines = path.read_text().splitlines()
    plan = [*map(json.loads, lines), json.loads(lines[0]) | {"index": len(lines)}]
    path.write_text("".join(json.dumps(one | {"of": len(plan)}) + "\n" for one in plan))
    with pytest.raises(DataError, match="is the run of line 1 again"):
        read_plan(path)


def test_a_plan_that_was_cut_between_two_lines_is_refused(tmp_path: Path):
    path = tmp_path / "plan.jsonl"
    small().write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    with pytest.raises(DataError, match=f"is one of {len(lines)} runs, the file holds 3: lines were cut"):
        read_plan(path)


def test_ten_thousand_runs_are_planned_and_read_in_seconds(tmp_path: Path):
    began = time.process_time()
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(10), 5000)
    listed = Listed(tuple(f"l{place}" for place in range(10)), tuple(f"m{place}" for place in range(5000)), p)
    plan = grid(listed, 1000, "1M", seeds=(0, 1), command=COMMAND)
    plan.write(tmp_path / "plan.jsonl")
    assert read_plan(tmp_path / "plan.jsonl").runs == plan.runs
    assert time.process_time() - began < 15


# -- commands


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("train 'unclosed", "cannot be split"),
        ("train --mixture {mixture}", "never says {out}"),
        ("train --out {out}", "never says {mixture}"),
        ("train {mixtur} {out}", "did you mean 'mixture'"),
        ("train {mixture} {out} {p_xx}", "no placeholder"),
        ("train {mixture} {out} {N:.2f}", "formats"),
        ("train {mixture!r} {out}", "formats"),
        ("train {mixture} {out} {", "braces"),
        ("train {mixture} {out} {}", "no placeholder"),
    ],
)
def test_a_command_is_checked_by_name(text: str, told: str):
    with pytest.raises(UsageError) as caught:
        Template.of(text, ("en", "de"))
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": "train {mixture} {out} {N}"}, "{seed}"),
        ({"command": "train {mixture} {out} {seed}"}, "{N} or {model}"),
        ({"command": "train {mixture} {out} {seed} {model}"}, "a size has none"),
        ({"seeds": (0, 0)}, "given twice"),
        ({"seeds": (-1,)}, "not a whole number"),
        ({"seeds": ()}, "nothing to train"),
    ],
)
def test_a_plan_whose_runs_cannot_be_told_apart_is_refused(changes: dict[str, object], told: str):
    with pytest.raises(UsageError) as caught:
        small(**changes)
    assert told in str(caught.value)


def test_a_command_that_says_too_little_of_the_mixture_is_refused():
    three = coalitions(("en", "de", "fr"))
    with pytest.raises(UsageError, match="the same for the mixtures de and fr"):
        grid(three, 1000, "1M", command="train {p_en} {out}")
    assert len(grid(three, 1000, "1M", command="train {p_en} {p_de} {out}")) == 7


ODD = (
    "zh-Hans",
    "zh:hans",
    "zh!r",
    "a[0].b",
    "it's",
    'say "hi"',
    "a b",
    "{x}",
    "$HOME",
    "ą",
    "back\\slash",
    "100%",
    "a/b",
    "*",
)


@pytest.mark.parametrize("name", ODD)
def test_odd_names_reach_the_program_as_one_word(name: str):
    if '"' in name:  # such labels are refused wherever they come in
        return
    listed = coalitions((name, "other"))
    own = name if "{" not in name else "other"
    odd = shlex.quote(f"{{p_{own}}}")
    command = "train 'two words' --json '{{\"a\": 1}}' --m {mixture} --r {p_other} "
    command += f"--odd {odd} --name {{name}} --to {{out}}/{{id}}"
    run = grid(listed, 1000, "1M", command=command).runs[-1]
    words = started(run.command, {"out": "/some where/{odd}", "id": run.id})
    assert words[:3] == ("train", "two words", "--json")
    assert words[3] == '{"a": 1}'
    assert words[5] == f"{name}=0.5,other=0.5"
    assert words[words.index("--r") + 1] == "0.5"
    assert words[words.index("--odd") + 1] == "0.5"
    assert words[words.index("--name") + 1] == f"{name}+other"
    assert words[-1] == f"/some where/{{odd}}/{run.id}"
    assert shlex.split(shlex.join(words)) == list(words)


# -- mixtures


def test_controlled_mixtures_are_even_over_what_they_name(fixtures: Path):
    languages = read_languages(fixtures / "multilingual5_languages.csv")
    found = controlled(["monolingual", "uniform", "families", "romance=fr", "en+zh"], FIVE, languages)
    by_name = dict(zip(found.names, found.p.tolist(), strict=True))
    assert by_name["de"] == [0, 1, 0, 0, 0]
    assert by_name["uniform"] == pytest.approx([0.2] * 5)
    assert by_name["Germanic"] == [0.5, 0.5, 0, 0, 0]
    assert by_name["en+zh"] == [0.5, 0, 0, 0.5, 0]
    assert "romance (as fr)" in found.notices[0]
    with pytest.raises(UsageError, match="not one of the sources"):
        controlled(["en+xx"], FIVE)
    with pytest.raises(UsageError, match="no family is known"):
        controlled(["families"], FIVE)


def test_empirical_mixtures_are_those_in_use(fixtures: Path):
    languages = read_languages(fixtures / "multilingual5_languages.csv")
    table = read_mixtures(fixtures / "multilingual5_runs.csv")
    found = empirical(["natural", "temperature:2", "en=0.5,de=0.5", table], FIVE, languages)
    tokens = languages.aligned(FIVE).available_tokens
    np.testing.assert_allclose(found.p[0], tokens / tokens.sum())
    np.testing.assert_allclose(found.p[1], np.sqrt(tokens) / np.sqrt(tokens).sum())
    assert len(table) == len(set(read_runs(fixtures / "multilingual5_runs.csv").mixture_keys))
    assert len(found) == 3 + len(table)
    with pytest.raises(UsageError, match="needs the tokens of the run"):
        empirical(["unimax:1"], FIVE, languages)


@pytest.mark.parametrize(("temperature", "concentration"), [(1.0, 0.3), (2.0, 1.0), (10.0, 30.0)])
def test_random_mixtures_keep_floors_and_scatter_around_what_there_is(temperature: float, concentration: float):
    supply = "en=400k,de=100k,fr=100k"
    bounds = Demands(available=supply, min_tokens="15k", max_epochs=4).at(("en", "de", "fr"), 150_000)
    found = random_mixtures(400, bounds, temperature=temperature, concentration=concentration, seed=5)
    assert found.p.min() >= 0.1 - 1e-9
    np.testing.assert_allclose(found.p.sum(axis=1), 1)
    assert found == random_mixtures(400, bounds, temperature=temperature, concentration=concentration, seed=5)
    free = Demands(available=supply).at(("en", "de", "fr"), 1.0)
    drawn = random_mixtures(4000, free, temperature=temperature, concentration=concentration).p.mean(axis=0)
    assert found.names[-1] == "random-400", "as many as were asked for"
    base = np.array([4, 1, 1]) ** (1 / temperature)
    np.testing.assert_allclose(drawn, base / base.sum(), atol=0.03 if concentration >= 1 else 0.1)


@pytest.mark.parametrize("given", [{"temperature": 0.0}, {"concentration": -1.0}, {"count": 0}, {"seed": -1}])
def test_what_cannot_be_drawn_is_refused(given: dict[str, float]):
    bounds = Demands().at(("a", "b"), 1.0)
    with pytest.raises(ShapleyMixError):
        random_mixtures(**({"count": 3, "bounds": bounds} | given))  # type: ignore[arg-type]
