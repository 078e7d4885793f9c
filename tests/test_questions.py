"""Logs that fit without an error and should be questioned; and no question where there is nothing to ask."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest
from simulated import FAST, log_of, same_rows, with_loss

from shapleymix.errors import DataError
from shapleymix.fitting.evidence import gather, is_finished
from shapleymix.fitting.fit import evaluate, fit
from shapleymix.fitting.questions import explain
from shapleymix.fitting.settings import Settings
from shapleymix.mixing.optimize import optimize
from shapleymix.records import FloatArray
from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.runs import RunLog, concat, write_runs

pytestmark = pytest.mark.usefixtures("one_prior")


@pytest.fixture
def log() -> RunLog:
    return log_of("shapley", rows=30, noise=5e-3)[2]


@pytest.mark.parametrize(
    ("N", "D", "loss"),
    [(1e11, 1e9, 1), (1e3, 1e11, 1), (1e9, 100, 1), (7e4, 1.4e12, 1), (8e8, 4e4, 1), (243, 1e5, 1), (1e9, 1e11, 9)],
    ids=["swapped", "tokens a parameter", "billions of D", "millions of N", "millions of D", "both", "perplexities"],
)
def test_numbers_of_no_language_model_are_refused(log, tmp_path, N, D, loss):
    """Fault: logs in other units, or with N and D swapped, were fitted in silence."""
    table = log.columns() | {"N": log.N * N / log.N.mean(), "D": log.D * D / log.D.mean()}
    table |= {name: column * loss for name, column in table.items() if name.startswith("loss_")}
    with pytest.raises(DataError) as caught:
        read_runs(table, origin="a.csv")
    assert caught.value.location.file == "a.csv"
    assert caught.value.hint


BOUNDS: tuple[dict[str, Any], ...] = (
    {"groups": "en+de<=.5"},
    {"caps": "en=.2", "floors": "de=.3", "objective": "worst"},
    {"available": "en=100M,de=200M", "max_epochs": 3},
    {"near": "uniform", "within": 0.1, "after": "uniform", "trained": "300M"},
)


@pytest.mark.parametrize(
    ("column", "what", "power"), [("learning_rate", "learning rates", 0.03), ("batch_tokens", "batches", 0.0)]
)
def test_recipes_that_explain_residuals_are_told_from_those_that_do_not(log, tmp_path, column, what, power):
    values = 10 ** np.random.default_rng(5).uniform(1, 3, len(log))
    given = replace(with_loss(log, log.loss * (values[:, None] / 100) ** power), **{column: values})
    assert "now called batch" in " ".join(read_runs(log.columns() | {"batch_tokens": values}).notices)
    write_runs(given, tmp_path / "runs.csv")
    found = fit(tmp_path / "runs.csv", "additive", **FAST)
    (notice,) = [one for one in found.notices if what in one]
    plain = fit(replace(given, **{column: np.full(len(log), np.nan)}), "additive", **FAST)
    for bounds in BOUNDS:
        best, same = (optimize(one, log.N[0], log.D[0], **bounds) for one in (found, plain))
        np.testing.assert_array_equal(best.p, same.p)
        assert (notice in best.warnings) == (power > 0)
    assert ("one recipe" in notice) == (power > 0)
    assert "go with" not in notice
    beside = {"the mixture": np.exp(log.p[:, 1] - log.p[:, 0]), "D,": log.D**0.1}
    if power:  # two D, each with a recipe of its own
        log = replace(log, D=np.where(np.arange(30) % 4 < 2, 1e9, 2e9))
        beside["D,"] = 1e9 / log.D
    for whose, values in beside.items():
        told = " ".join(fit(replace(log, **{column: values}), "additive", **FAST).notices)
        assert [f"go with {one}" in told for one in beside] == [one == whose for one in beside]
    for follows in (0.0, 0.1):  # one recipe a size, which goes with N or not
        alike = replace(given, **{column: np.exp(follows * np.log(log.N))})
        told = [one for one in fit(alike, "additive", **FAST).notices if what in one]
        assert [f"{np.max(log.N) ** 0.1:.2g}" in one and "one size" not in one for one in told] == [True] * (
            follows > 0
        )


@pytest.mark.parametrize("seeds", [1, 4])
def test_the_chance_of_a_cause_is_uniform_where_there_is_none(seeds):
    """Runs of one mixture and cause err alike: no more is known of them than of one."""
    rng = np.random.default_rng(0)
    sizes, groups = np.repeat([0, 1], [11, 14]), np.arange(25)
    scatter = np.where(rng.random((25, 3)) < 0.1, np.nan, rng.standard_t(3, (25, 3)) + sizes[:, None])
    cause, by = np.exp(rng.normal(size=25)) + sizes, rng.normal(size=(25, 3))
    rest, by = ([np.repeat(one, seeds, axis=0) for one in (scatter, sizes, groups)], np.repeat(by, seeds, axis=0))
    drawn = [np.repeat(cause[_shuffled(sizes, rng)], seeds) for _ in range(150)]
    causes = [np.stack([one, one**2], axis=1)[..., None] for one in drawn]
    chances = [explain(one, *rest, seed)[1] for seed, one in enumerate(causes)]
    assert kstest(chances, "uniform").pvalue > 0.01
    chances = [explain(by[..., None], one[:, None], *rest[1:], seed)[1] for seed, one in enumerate(drawn)]
    assert kstest(chances, "uniform").pvalue > 0.01


def _shuffled(sizes: FloatArray, rng: np.random.Generator) -> FloatArray:
    """An order of the rows that leaves sizes where they are."""
    return np.lexsort([rng.random(len(sizes)), sizes])


def test_two_tokenizers_are_refused_at_the_first_row_that_differs(log, tmp_path):
    named = replace(log, tokenizer=tuple(["bpe"] * 4 + [""] * 2 + ["bpe"] * 24))
    write_runs(named, tmp_path / "one.csv")
    assert read_runs(tmp_path / "one.csv").tokenizer == named.tokenizer
    fit([tmp_path / "one.csv", replace(log, runs=tuple(f"other-{run}" for run in log.runs))], "additive", **FAST)
    other = replace(named, runs=tuple(f"other-{run}" for run in log.runs), tokenizer=("sp",) * 30)
    mixed = replace(named, tokenizer=(*named.tokenizer[:20], "sp", *named.tokenizer[21:]))
    write_runs(other, tmp_path / "two.csv")
    write_runs(mixed, tmp_path / "mixed.csv")
    for logs, name, line in (([tmp_path / "one.csv", tmp_path / "two.csv"], "two.csv", 2), ([mixed], None, 21)):
        with pytest.raises(DataError) as caught:
            fit(logs, "additive", **FAST)
        assert (caught.value.location.column, caught.value.location.line) == ("tokenizer", line)
        assert name is None or str(caught.value.location.file).endswith(name)
    with pytest.raises(DataError) as caught:
        read_runs(tmp_path / "mixed.csv")
    assert caught.value.location.line == 22


@pytest.mark.parametrize("power", [0.0, 0.05])
def test_phases_are_summed_and_an_order_that_explains_residuals_is_told(log, tmp_path, power):
    rng = np.random.default_rng(6)
    first = log.p * rng.uniform(0.1, 0.9, log.p.shape)  # tokens of the first phase, as shares of all
    parts = {1: first, 2: log.p - first}
    own = [log.sources.index(name) for name in log.targets]
    late = parts[2] / parts[2].sum(axis=1, keepdims=True)
    moved = log.loss * np.exp(power * (late - log.p)[:, own])
    table = {"run": list(log.runs), "N": log.N} | {f"loss_{name}": moved[:, j] for j, name in enumerate(log.targets)}
    for number, part in parts.items():
        total = part.sum(axis=1)
        table |= {f"D{number}": log.D * total}
        table |= {f"p{number}_{name}": part[:, i] / total for i, name in enumerate(log.sources)}
    read = read_runs(table)
    assert read.sources == log.sources
    np.testing.assert_allclose(read.p, log.p, atol=1e-9)
    np.testing.assert_allclose(read.D, log.D)
    np.testing.assert_allclose(read.late, late)
    for wrong in ({"D": log.D}, {"p_en": log.p[:, 0]}, {"D2": -table["D2"]}, {"p2_en": table["p2_en"] + 0.1}):
        with pytest.raises(DataError, match=next(iter(wrong))):
            read_runs(table | wrong)
    with pytest.raises(DataError, match="phases 2"):
        read_runs({name: one for name, one in table.items() if name[:2] not in ("p1", "D1")})
    write_runs(read, tmp_path / "runs.csv")
    np.testing.assert_array_equal(read_runs(tmp_path / "runs.csv").late, read.late)
    found = fit(read, "additive", **FAST)
    (notice,) = [one for one in found.notices if "phases" in one]
    assert (
        ("counts for more or less" in notice) == (power > 0) == (notice in optimize(found, log.N[0], log.D[0]).warnings)
    )


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_corrupted_losses_are_named_by_row(log, factor):
    """Fault: single corrupted losses moved a fit without a word."""
    spoiled = log.loss.copy()
    spoiled[7, 1] *= factor
    spoiled[12, 3] *= factor**1.5
    found = fit(with_loss(log, spoiled), "learned-base", **FAST)
    (notice,) = [notice for notice in found.notices if "far from the law" in notice]
    assert notice.startswith("2 of 120 losses lie far from the law")
    assert notice.index("run-12 at D") < notice.index("run-7 at D")
    assert f"zh {spoiled[12, 3]:.4g} nats, fitted" in notice
    assert not any("far from the law" in notice for notice in fit(log, "learned-base", **FAST).notices)


@pytest.mark.parametrize("targets", [1, 4])
def test_a_run_in_bits_or_in_thousands_of_tokens_is_named(targets):
    log = log_of("shapley", rows=60, noise=5e-3)[2]
    log = replace(log, targets=log.targets[:targets], loss=log.loss[:, :targets])
    row = int(log.N.argmax())
    bits, tokens = log.loss.copy(), log.D.copy()
    bits[row] /= np.log(2)
    tokens[row] /= 1000
    for spoiled, kind in ((replace(log, loss=bits), "unit"), (replace(log, D=tokens), "D of")):
        assert any(kind in one and log.runs[row] in one for one in fit(spoiled, "additive", **FAST).caveats)


def checkpointed(drift: FloatArray) -> RunLog:
    """Ten runs of eight checkpoints each, whose log losses are off a law by the drift (8,)."""
    _, _, first = log_of("chinchilla", rows=10, sizes=(1e8, 2e8, 4e8))
    law = log_of("chinchilla", rows=10)[0]
    rows, step = np.repeat(np.arange(10), 8), np.tile(np.arange(1, 9), 10)
    log = replace(first.select(rows), D=1e9 * step * (1.0 + np.repeat(np.arange(10) % 3, 8)))
    return with_loss(log, law(log.p, log.N, log.D) * np.exp(drift[step - 1])[:, None])


def test_a_fit_answers_for_final_losses():
    """Fault: checkpoints of a decaying learning rate were taken for final losses."""
    log = checkpointed(0.1 * np.linspace(1, 0, 8))
    last = is_finished(log)
    late, alone = (fit(one, "chinchilla", bootstrap=0, folds=3) for one in (log, log.select(last)))
    every = fit(log, "chinchilla", bootstrap=0, folds=3, checkpoints="all")
    assert (late.rows, every.rows, alone.rows) == (10, 80, 10)
    assert any("rows are checkpoints" in notice for notice in late.notices)
    assert late.provenance["checkpoints"] == "final"
    np.testing.assert_array_equal(late.D_range, alone.D_range)
    scores = [evaluate(one, rows) for one in (late, every) for rows in (log, log.select(last))]
    assert [one.rows for one in scores] == [10, 10, 80, 10]
    late, alone, _, every = (one.scores.mean["PE"] for one in scores)
    assert late == pytest.approx(alone, rel=1e-12)
    assert late < 0.5 * every


def test_what_came_early_in_a_run_moves_nothing():
    log = checkpointed(0.1 * np.linspace(1, 0, 8))
    early = log.D / log.ends < 0.45
    spoiled = with_loss(log, np.where(early[:, None], log.loss * 3, log.loss))
    kept, other, every = (fit(one, "chinchilla", **FAST, **how) for one, how in (
        (log, {}), (spoiled, {}), (spoiled, {"checkpoints": "all"})
    ))  # fmt: skip
    budget = log.p[:1], log.N[:1], log.D[-1:]
    np.testing.assert_array_equal(kept.law.losses(*budget), other.law.losses(*budget))
    assert np.all(every.law.losses(*budget) != kept.law.losses(*budget))


@pytest.mark.parametrize("column", ["schedule", "final"])
def test_a_column_says_what_is_final(column):
    """Run b goes on after its schedule ended, with another schedule; run c did not reach the end of its own."""
    D = [1e9, 2e9, 1e9, 2e9, 3e9, 4e9, 1e9, 2e9]
    ends = [2e9, 2e9, 2e9, 2e9, 4e9, 4e9, np.nan, np.nan]
    table = {"run": list("aabbbbcc"), "N": [1e8] * 8, "D": D, "p_x": [1.0] * 8, "loss_x": [2.0] * 8}
    table[column] = ends if column == "schedule" else [0, 1, 0, 1, 0, 1, 0, 0]
    log = read_runs(table)
    np.testing.assert_array_equal(log.ends, ends)
    found = gather(log, Settings())
    np.testing.assert_allclose(found.weight[:, 0], [0.5**4, 1, 0.5**4, 1, 0.75**4, 1])
    np.testing.assert_array_equal(found.final, [False, True] * 3)
    assert len(gather(log, Settings(checkpoints="all")).log) == 8
    assert same_rows(read_runs(log.columns()), log)
    both = concat([log, replace(log, runs=tuple(f"other-{run}" for run in log.runs), schedule=None)])
    np.testing.assert_array_equal(both.ends[8:], [2e9, 2e9, 4e9, 4e9, 4e9, 4e9, 2e9, 2e9])


def test_a_schedule_in_other_units_is_refused_and_so_is_a_log_without_a_finished_run():
    with pytest.raises(DataError):
        fit(replace(checkpointed(np.zeros(8)), schedule=np.full(80, 1e15)), "chinchilla")
    with pytest.raises(DataError):
        read_runs({"N": [1e8], "D": [2e9], "p_en": [1], "loss_en": [3.0], "schedule": [100.0]})
