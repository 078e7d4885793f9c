"""The game of text against what it stands for: naive counts, all orders of players, the same text in every form."""

import gzip
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_tools import Run
from hypothesis import given, settings
from hypothesis import strategies as st

import shapleymix as sm
from shapleymix.errors import DataError, UsageError
from shapleymix.game import text
from shapleymix.game.ngrams import count_ngrams
from shapleymix.tables.documents import Tokenizer, deal, sample_tokens
from shapleymix.tables.mixtures import mixture_of

NAMES = ("en", "de", "ja")


def markov(size: int, vocabulary: int, seed: int, kind: int = 0) -> np.ndarray:
    """Tokens of a chain whose transitions depend on `kind`, of which 0 ends a document."""
    chances = np.random.default_rng([7, kind]).dirichlet(np.full(vocabulary, 0.3), size=vocabulary) + 0.5 / vocabulary
    bounds, tokens = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1), [0]
    for draw in np.random.default_rng(seed).random(size - 1):
        tokens.append(min(int(np.searchsorted(bounds[tokens[-1]], draw)), vocabulary - 1))
    return np.array(tokens)


def naive_loss(texts: list[list[np.ndarray]], p: np.ndarray, held: np.ndarray, order: int, D: float, V: int) -> float:
    """Witten and Bell by dictionaries, a token after another: a language's texts count D / 2 tokens each."""
    expected: Counter[tuple[int, ...]] = Counter()
    for ratio, halves in zip(p, texts, strict=True):
        for one in halves:
            for at in range(len(one) - order):
                whole = tuple(one[at : at + order + 1].tolist())
                for skip in range(order + 1):
                    expected[whole[skip:]] += ratio * D / 2 / len(one)
    seen: Counter[tuple[int, ...]] = Counter()
    kinds: Counter[tuple[int, ...]] = Counter()
    for gram, times in expected.items():
        seen[gram[:-1]] += times
        kinds[gram[:-1]] += 1 - math.exp(-times)
    total = 0.0
    for at in range(order, len(held)):
        likely = 1 / V
        for length in range(order + 1):
            gram = tuple(held[at - length : at + 1].tolist())
            if (count := seen[gram[:-1]]) > 0:
                different = max(kinds[gram[:-1]], 1e-9)
                likely = (expected[gram] + different * likely) / (count + different)
        total -= math.log(likely)
    return total / (len(held) - order)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), st.integers(2, 12), st.integers(0, 99))
def test_losses_of_any_mixture_are_those_of_naive_counts(count: int, order: int, vocabulary: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    texts = [[markov(draw.integers(20, 90), vocabulary, seed + half, one) for half in (0, 1)] for one in range(count)]
    held = [[markov(30, vocabulary, seed + 9 + half, one) for half in (0, 1)] for one in range(count)]
    p = np.append(draw.dirichlet(np.ones(count), size=2), np.zeros((1, count)), axis=0)
    p[1, 0] = 0.0
    train, judged = ([one[half] for half in (0, 1) for one in parts] for parts in (texts, held))
    models = count_ngrams(train, judged, order, 500.0, vocabulary)
    for half in (None, 0, 1):
        used = [one if half is None else [one[half]] * 2 for one in texts]
        found = models.losses(p, half)
        for row, target in itertools.product(range(3), range(count)):
            parts = held[target] if half is None else [held[target][half]]
            wanted = np.mean([naive_loss(used, p[row], one, order, 500.0, vocabulary) for one in parts])
            assert found[row, target] == pytest.approx(wanted, rel=2e-6)
        np.testing.assert_allclose(models.losses(p.astype(np.float32), half), found, rtol=1e-4)
    np.testing.assert_allclose(models.losses(p)[2], np.log(vocabulary))


def test_values_are_means_over_all_orders_of_players() -> None:
    texts = {name: markov(1500, 9, place, place) for place, name in enumerate(NAMES)}
    matrix = sm.text_shapley(texts, D=1000, order=1, vocabulary=9)
    dealt = [deal(one, 0, text.HELD_OUT, 1000) for one in texts.values()]
    train = [one for one, _ in dealt]

    def earned(players: tuple[int, ...]) -> np.ndarray:
        p = np.array([1 / len(players) if place in players else 0.0 for place in range(3)]) if players else np.zeros(3)
        losses = [np.mean([naive_loss(train, p, one, 1, 1000, 9) for one in held]) for _, held in dealt]
        return np.log(9) - np.array(losses)

    value = np.zeros((3, 3))
    for turns in itertools.permutations(range(3)):
        for place, player in enumerate(turns):
            value[player] += (earned(turns[: place + 1]) - earned(turns[:place])) / 6
    np.testing.assert_allclose(matrix.sv, value, atol=2e-5)
    np.testing.assert_allclose(np.sum(matrix.sv, axis=0), earned((0, 1, 2)), atol=2e-5)  # efficiency
    assert (matrix.provenance["from"], matrix.provenance["method"]) == ("text", "exact")
    assert matrix.provenance["tokens"].keys() == set(NAMES)


def test_the_same_text_has_the_same_value_under_every_name() -> None:
    texts = {"a": markov(3000, 9, 1), "b": markov(3000, 9, 2, 1), "again": markov(3000, 9, 1)}
    sv = sm.text_shapley(texts, D=2000).sv
    assert sv is not None
    np.testing.assert_allclose(sv[0], sv[2], atol=2e-5)
    np.testing.assert_allclose(sv[:, 0], sv[:, 2], atol=2e-5)
    assert np.all(np.diag(sv)[:2] > sv[[1, 0], [0, 1]])


def documents(kind: int) -> list[str]:
    """Short documents of letters."""
    tokens = markov(9000, 20, kind, kind)
    words = ["".join(chr(96 + one) if one else "." for one in tokens[at : at + 60]) for at in range(0, 9000, 60)]
    return [f"{one}\n{number}" for number, one in enumerate(words)]


def written(path: Path, texts: list[str]) -> Path:
    """Documents in a file of the form that its ending names, or in a folder of two."""
    if path.suffix == "":
        path.mkdir()
        written(path / "1.txt", texts[: len(texts) // 3])
        written(path / "2.jsonl", texts[len(texts) // 3 :])
    elif path.suffix == ".parquet":
        pl.DataFrame({"text": texts}).write_parquet(path)
    elif path.suffix == ".npy":
        np.save(path, np.concatenate(Tokenizer("bytes").encode(texts)))
    else:
        plain = "\n\n".join(texts) if ".txt" in path.name else "\n".join(json.dumps({"text": one}) for one in texts)
        path.write_bytes(gzip.compress(plain.encode()) if path.suffix == ".gz" else plain.encode())
    return path


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet", ".npy", "", "text"])
def test_text_is_the_same_in_every_form(ending: str, tmp_path: Path) -> None:
    arrays = {name: np.concatenate(Tokenizer("bytes").encode(documents(at))) for at, name in enumerate(NAMES)}
    wanted = sm.text_shapley(arrays, D="20k")
    if ending == "text":
        found = sm.text_shapley({name: "\n\n".join(documents(at)) for at, name in enumerate(NAMES)}, D="20k")
    else:
        paths = {name: written(tmp_path / f"{name}{ending}", documents(at)) for at, name in enumerate(NAMES)}
        found = sm.text_shapley({name: str(path) for name, path in paths.items()}, D="20k")
        folder = sm.text_shapley(tmp_path, sources=NAMES, D="20k")
        np.testing.assert_array_equal(folder.sv, found.sv)
    np.testing.assert_array_equal(found.sv, wanted.sv)
    np.testing.assert_array_equal(found.stderr, wanted.stderr)


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet", ".npy"])
def test_of_much_text_a_sample_is_read_that_repeats_nothing(ending: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts = [f"number {number:06d} {draw.bytes(20).hex()}" for number in range(20_000)]
    path = written(tmp_path / f"en{ending}", texts)
    found = sample_tokens([path], Tokenizer("bytes"), 60_000)
    kept = bytes(found.astype(np.uint8)).decode().split("\0")
    numbers = [int(one[7:13]) for one in kept if len(one) == len(texts[0]) and one.startswith("number")]
    assert len(found) <= 60_032
    assert len(numbers) > 800
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) > 15_000


@pytest.mark.parametrize("share", [0.9, 0.6, 0.2])
@pytest.mark.parametrize("form", [".txt", ".txt.gz", ".jsonl", ".parquet", ".npy", "members", "line", "script"])
def test_a_sample_has_all_of_a_file_in_its_proportions(form: str, share: float, tmp_path: Path) -> None:
    """Two halves of unlike text; as gzip members, on one line, and in a script of three bytes a character too."""
    texts = [letter * 49 for letter in ("語本" if form == "script" else "ab") for _ in range(3000)]
    if form == "members":
        path = tmp_path / "en.txt.gz"
        halves = ("\n\n".join(texts[:3000]) + "\n\n", "\n\n".join(texts[3000:]))
        path.write_bytes(b"".join(gzip.compress(half.encode()) for half in halves))
    else:
        path = written(tmp_path / f"en{form if form.startswith('.') else '.txt'}", texts)
    if form in ("line", "script"):
        path.write_text(path.read_text().replace("\n\n", " "))
    size = len(" ".join(texts).encode())
    found = bytes(sample_tokens([path], Tokenizer("bytes"), int(share * size)).tolist()).decode(errors="ignore")
    assert 0.9 * share * size < len(found.encode()) < share * size + 64
    assert 0.45 < found.count(texts[0][0]) / sum(found.count(one[0]) for one in (texts[0], texts[-1])) < 0.55


def test_sampled_values_are_near_exact_ones_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"l{place}": markov(6000, 12, place, place % 4) for place in range(7)}
    exact = sm.text_shapley(texts, D="4k")
    monkeypatch.setattr(text, "MOST_EXACT", 4)
    monkeypatch.setattr(text, "SAMPLED", 40)
    found = sm.text_shapley(texts, D="4k")
    assert (exact.provenance["method"], found.provenance["method"]) == ("exact", "smooth")
    assert exact.sv is not None
    assert found.sv is not None
    np.testing.assert_allclose(found.sv.sum(axis=0), exact.sv.sum(axis=0), atol=1e-6)
    assert np.abs(found.sv - exact.sv).max() < 0.1 * np.abs(exact.sv).max()
    assert np.mean(found.stderr) > np.mean(exact.stderr)


def test_standard_errors_are_those_of_other_text_of_the_same_kind() -> None:
    found = [
        sm.text_shapley({name: markov(5000, 9, 50 * one + at, at) for at, name in enumerate(NAMES)}, D="4k")
        for one in range(16)
    ]
    scatter = np.std([one.sv for one in found], axis=0, ddof=1)
    told = np.sqrt(np.mean([np.square(one.stderr) for one in found], axis=0))
    assert 0.6 < np.sqrt(np.mean(told**2) / np.mean(scatter**2)) < 1.7


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 99))
def test_no_mixture_near_the_first_one_is_better(seed: int) -> None:
    draw = np.random.default_rng(seed)
    train = [markov(400, 8, seed + half, one) for half in (0, 1) for one in range(3)]
    models, weights = count_ngrams(train, [one[::-1][:200] for one in train], 1, 500.0, 8), draw.random(3) + 0.1
    found = models.best(weights)
    rivals = np.vstack([np.full(3, 1 / 3), found * np.exp(0.1 * draw.normal(size=(200, 3)))])
    losses = models.losses(np.vstack([found, rivals / rivals.sum(axis=1, keepdims=True)])) @ weights
    assert losses[0] < losses[1:].min() + 1e-5


def test_the_first_mixture_has_a_name(tmp_path: Path, run: Run) -> None:
    for at, name in enumerate(NAMES):
        written(tmp_path / f"{name}.txt", documents(at))
    made = sm.text_shapley(tmp_path, weights="ja=2,en=1").provenance["mixture"]
    found = mixture_of(f"text:{tmp_path}", NAMES, np.full(3, np.nan), 1.0, np.array([1.0, 0.0, 2.0]))
    np.testing.assert_allclose(found, [made[name] for name in NAMES], atol=1e-6)
    matrix, words = tmp_path / "sv.csv", ("--sources", "en,ja", "-D", "5k")
    assert run("shapley", "--text", tmp_path, *words, "--order", "0", "-o", matrix).code == 0
    assert sm.read_transfer(matrix).provenance["order"] == 0
    assert run("shapley", "--text", tmp_path, *words, "-o", matrix, "--force").code == 0
    read = sm.read_transfer(matrix)
    assert (read.sources, read.provenance["D"]) == (("en", "ja"), 5_000)
    again = run("shapley", "--text", tmp_path, *words, "--json").document
    np.testing.assert_array_equal(again["sv"], read.sv)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"texts": {}}, UsageError), ({"texts": {"en": "no-such-file.txt"}}, UsageError),
        ({"texts": {"en": np.ones((2000, 2))}}, UsageError), ({"texts": {"en": np.full(2000, -1)}}, UsageError),
        ({"texts": {"en": [1, 2, 3]}}, DataError), ({"texts": {"en": " " * 5000}}, DataError),
        ({"texts": {"en": b"x" * 5000}}, UsageError), ({"texts": {"en": [[1, 2], [3]]}}, UsageError),
        ({"texts": {"en": np.full(5000, 1 << 40)}}, UsageError), ({"texts": {"e,n": "text " * 500}}, UsageError),
        ({"texts": None}, UsageError), ({"D": 10}, UsageError), ({"vocabulary": 5}, DataError),
        ({"vocabulary": 256.7}, UsageError), ({"vocabulary": 10, "order": 55}, UsageError),
        ({"sources": ["en", "xx"]}, UsageError), ({"order": 30}, UsageError), ({"weights": {"xx": 1}}, UsageError),
        ({"tokenizer": "no-such.json"}, DataError),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(wrong: dict, kind: type[Exception]) -> None:
    asked = {"texts": {"en": markov(2000, 9, 0), "de": markov(2000, 9, 1, 1)}, **wrong}
    with pytest.raises(kind):
        sm.text_shapley(asked.pop("texts"), **asked)


@pytest.mark.parametrize("words", ["", "--text no-such", "--text . --sampled", "LOG.csv --order 2"])
def test_a_command_that_mixes_roads_ends_in_one_plain_error(words: str, run: Run) -> None:
    outcome = run(f"shapley {words}")
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
