"""What a design of runs leaves open, crossed with laws: intervals inside the stated range hold a simulated truth.

N and D in one line, sources that change together alone, a source at one ratio, one mixture at each size. Off the line
intervals hold it too, since what either of N and D does is drawn there from what public runs tell.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from simulated import FAST

import shapleymix as sm
from shapleymix.errors import DataError, SolveError
from shapleymix.fitting.evidence import line_of

SOURCES = ("en", "de", "sw", "hi")
RUNS, SEEDS, COMPUTE = 12, 2, 4e17
LINES = {f"{len(sizes)} sizes": [(N, 20 * N) for N in sizes] for sizes in ((8.5e7, 4e8), (2e7, 8.5e7, 2e8, 4e8))}
LINES |= {"one compute": [(N, COMPUTE / N) for N in (5e7, 1e8, 2e8, 4e8)]}
BUDGETS = LINES | {"a mixture a size": [(N, 20 * N) for N in (4e7, 1.3e8, 4e8)]}
Truth = Callable[[np.ndarray, float, float], np.ndarray]


def truth_of(seed: int) -> Truth:
    """A law that none of ours is: Chinchilla's, on each language's effective data."""
    rng = np.random.default_rng(seed)
    alpha, beta = rng.uniform(0.25, 0.5, 2)
    E, A, B = rng.uniform(1.4, 2.0, 4), rng.uniform(0.09, 0.27) / alpha, rng.uniform(0.09, 0.3) / beta
    transfer = np.eye(4) + rng.uniform(0.02, 0.3, (4, 4)) * (1 - np.eye(4))
    return lambda p, N, D: E + A * (N / 1e8) ** -alpha + B * ((2 * p @ transfer + 0.1) * D / 2e9) ** -beta


def drawn(rng: np.random.Generator, count: int, design: str = "") -> np.ndarray:
    """Mixtures, of which a design leaves something open."""
    p = rng.dirichlet(np.full(4, 1.5), count) * 0.92 + 0.02
    if design == "together":
        p[:, :2] = p[:, :2].sum(axis=1, keepdims=True) * [0.6, 0.4]
    if design == "one ratio":
        p[:, 3], p[:, :3] = 0.2, 0.8 * p[:, :3] / p[:, :3].sum(axis=1, keepdims=True)
    return p / p.sum(axis=1, keepdims=True)


def log_of(design: str, seed: int) -> pl.DataFrame:
    """Runs that leave something open."""
    rng, truth = np.random.default_rng([seed, 1]), truth_of(seed)
    mixtures, rows = drawn(rng, RUNS, design), []
    for place, (N, D) in enumerate(BUDGETS.get(design, [(1e8, 2e9)])):
        for run, p in enumerate(mixtures[place : place + 1] if design == "a mixture a size" else mixtures):
            loss = truth(p, N, D) * np.exp(rng.normal(0, 0.002, 4))
            rows.append({"run": f"{place}-{run}", "N": N, "D": D})
            rows[-1] |= {f"p_{name}": ratio for name, ratio in zip(SOURCES, p.tolist(), strict=True)}
            rows[-1] |= {f"loss_{name}": one for name, one in zip(SOURCES, loss.tolist(), strict=True)}
    return pl.DataFrame(rows)


def asked(design: str, law: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of predictions whether each lies outside of the stated range, and whether its interval holds the truth."""
    found, truth = sm.fit(log_of(design, seed), law, bootstrap=30, folds=3), truth_of(seed)
    budgets = BUDGETS.get(design, [(1e8, 2e9)])
    if design in LINES:  # of three, two off the line
        (first, least), (last, most) = budgets[0], budgets[-1]
        budgets = [(last, most), (first, most), (last, least)]
    outside, held = [], []
    rng = np.random.default_rng([seed, 2])
    for p in np.concatenate([drawn(rng, 6, design), drawn(rng, 3)]):
        for N, D in budgets:
            told = found.predict(p, N, D)
            outside.append(told.outside[0])
            loss = truth(p, N, D)
            held.append((told.low[0] <= loss) & (loss <= told.high[0]))
    return np.concatenate(outside), np.concatenate(held)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("design", "law"),
    [(design, law) for design in LINES for law in ("learned-base", "additive")]
    + [(design, "learned-base") for design in ("together", "one ratio", "a mixture a size")],
)
def test_intervals_inside_the_stated_range_hold_the_truth(design: str, law: str) -> None:
    outside, held = map(np.concatenate, zip(*(asked(design, law, seed) for seed in range(SEEDS)), strict=True))
    if design in BUDGETS:
        assert held.mean() >= 0.85
        assert outside.mean() >= 2 / 3
    if design != "a mixture a size":  # within whose few ratios hardly a mixture lies
        assert held[~outside].mean() >= 0.85


@pytest.mark.filterwarnings("ignore")
def test_what_a_line_of_N_and_D_leaves_open_is_said_and_refused_and_one_run_tells_it() -> None:
    log = log_of("4 sizes", 0)
    found = sm.fit(log, bootstrap=8, folds=2)
    assert found.coverage.together
    with pytest.raises(SolveError):
        sm.optimize_compute(found, "1e21")
    said = next(text for text in found.warnings if "20M" in text)
    assert said in sm.design(3, log).notices
    parted = log.head(1).with_columns(run=pl.lit("off"), D=pl.lit(8e9))  # as is said: N = 20M at the largest D
    both = sm.fit(pl.concat([log, parted]), bootstrap=8, folds=2)
    assert not both.coverage.together
    sm.optimize_compute(both, "1e21")


@pytest.mark.filterwarnings("ignore")
def test_runs_of_one_compute_tell_its_best_split() -> None:
    found, truth = sm.fit(log_of("one compute", 0), bootstrap=20, folds=2), truth_of(0)
    best = sm.optimize_compute(found, 6 * COMPUTE)
    sizes = np.geomspace(5e7, 4e8, 99)
    told = sizes[np.argmin([truth(best.p, N, COMPUTE / N).mean() for N in sizes])]
    assert best.N_low <= told <= best.N_high
    assert abs(np.log(best.N / told)) < 0.5
    most = best.p * best.D / 2  # half of its tokens, so that these decide N
    bound = sm.optimize_compute(found, 6 * COMPUTE, available=dict(zip(SOURCES, most, strict=True)), max_epochs=1)
    assert bound.N > 1.9 * best.N
    assert bound.N_low == pytest.approx(bound.N, rel=0.1)
    assert (bound.epochs_high <= 1 + 1e-9).all()


@pytest.mark.parametrize("slope", [-1.0, 0.5, 1.0, 2.0])
def test_budgets_lie_on_a_line_whatever_its_slope_but_for_rounding(slope: float) -> None:
    rng = np.random.default_rng(1)
    N = np.repeat([1e8, 3e8, 9e8], 3)
    D = 1e9 * (N / 1e8) ** slope * np.exp(rng.uniform(-0.05, 0.05, 9))
    line = line_of(N, D)
    assert line is not None
    np.testing.assert_allclose(-line[0] / line[1], slope, atol=0.05)
    assert line_of(np.append(N, 1e8), np.append(D, 4e9 if slope != -1.0 else 1e8)) is None
    assert line_of(N, np.full(9, 1e9)) is None  # one D is another matter


def test_units_are_told_of_rows() -> None:
    """Half of the rows with D in billions are refused at their lines; runs in bits are named by the fit."""
    log = log_of("2 sizes", 0)
    with pytest.raises(DataError) as caught:
        sm.read_runs(log.with_columns(D=pl.when(pl.col("N") > 1e8).then(pl.col("D") / 1e9).otherwise("D")))
    assert len(caught.value.faults) == RUNS
    bits = pl.col("run").is_in(["0-0", "0-1", "0-2"])
    losses = pl.col([f"loss_{name}" for name in SOURCES])
    found = sm.fit(log.with_columns(pl.when(bits).then(losses / np.log(2)).otherwise(losses)), **FAST)
    assert any(all(run in text for run in ("0-0", "0-1", "0-2")) for text in found.caveats)
    assert not sm.fit(log, **FAST).caveats


@pytest.mark.parametrize(("column", "factor"), [("N", 1e-3), ("loss", 1 / np.log(2))])
def test_a_whole_size_in_other_units_is_told(column: str, factor: float) -> None:
    """Runs of one size cannot lie apart from others of theirs: the log of both sizes tells."""
    log = log_of("2 sizes", 0)
    names = [f"loss_{name}" for name in SOURCES] if column == "loss" else [column]
    large = pl.col("N") == log["N"].max()
    found = sm.fit(log.with_columns(pl.when(large).then(pl.col(names) * factor).otherwise(pl.col(names))), **FAST)
    assert found.caveats


FULL = {"de": 0.30465506262559755, "zh": 0.1851183102730116}
ROOMLESS: tuple[tuple[dict[str, object], dict[str, object]], ...] = (
    ({"groups": "en+de=1"}, {"caps": {"fr": 0, "zh": 0, "ja": 0}}),
    ({"groups": ["en+de=0.9", "fr+zh=0.1"]}, {"caps": {"ja": 0}, "groups": ["en+de=0.9"]}),
    ({"near": "en=.5,de=.3,zh=.2", "within": 9, "distance": "kl"}, {"caps": {"fr": 0, "ja": 0}}),
    ({"groups": "ja<=0.0000001"}, {"caps": {"ja": 0}}),
    ({"caps": {"ja": 4e-7}}, {"caps": {"ja": 0}}),
    ({"floors": FULL | {"ja": 1 - sum(FULL.values())}}, {"fix": FULL | {"ja": 1 - sum(FULL.values())}}),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize("place", range(len(ROOMLESS)))
def test_bounds_that_leave_a_source_nothing_are_those_that_say_so(fixtures: Path, place: int, objective: str) -> None:
    """A group, a ball or a trace that leaves no room has the optimum of the same set written as caps."""
    found = fitted(fixtures)
    one, other = (sm.optimize(found, 97600, "2M", objective=objective, **how) for how in ROOMLESS[place])
    assert one.certificate.relative_gap < 1e-9
    np.testing.assert_allclose(one.objective, other.objective, rtol=1e-9)


@functools.cache
def fitted(fixtures: Path) -> sm.Fit:
    """Five languages, of which a few runs had none."""
    logs = [fixtures / f"multilingual5_{name}.csv" for name in ("runs", "coalitions")]
    return sm.fit(logs, bootstrap=4, folds=0)


@pytest.mark.filterwarnings("ignore")
def test_a_scarce_language_may_be_read_less_often_than_the_runs_had_it(fixtures: Path) -> None:
    """1M tokens at D = 100B: the floor of the runs' least ratio would be 1,000 epochs, and costs what they cost."""
    available = {"ja": 1e6} | dict.fromkeys(("en", "de", "fr", "zh"), 1e13)
    question = sm.problem(fitted(fixtures), 97600, "100B", available=available, weights="en=1,ja=1")
    best = question.solve()
    few = np.where(np.array(best.sources) == "ja", 64 * 1e6 / 1e11, best.p)
    assert best.objective <= question.objective(few / few.sum()) + 1e-9


@pytest.mark.filterwarnings("ignore")
def test_no_number_without_a_language_where_a_filter_left_such_runs_out(fixtures: Path) -> None:
    found = sm.fit(fixtures / "multilingual5_runs.csv", "learned-base", bootstrap=8, folds=2, min_own_tokens=20_000)
    told = found.predict("en=.5,de=.5", 97600, "2M")
    assert np.isnan(told.losses[0, [told.targets.index(name) for name in ("fr", "zh", "ja")]]).all()
    assert np.isfinite(told.losses[0, told.targets.index("en")])
    with pytest.raises(SolveError) as caught:
        sm.optimize(found, 97600, "2M", caps="ja=0")
    assert "ja" in str(caught.value.hint)


@pytest.mark.filterwarnings("ignore")
def test_no_number_of_another_mixture_where_all_runs_have_one() -> None:
    log = pl.concat([log_of("one compute", 0), log_of("4 sizes", 0)]).filter(pl.col("run").str.ends_with("-0"))
    runs = log.select("^p_.*$").row(0)
    told = sm.fit(log.drop("run"), bootstrap=10).predict([runs, (0.25,) * 4], 1e8, 4e9)
    assert np.isfinite([told.losses[0], told.low[0], told.high[0]]).all()
    assert np.isnan([told.losses[1], told.low[1], told.high[1]]).all()
