"""Run logs simulated from a known law, and the known laws themselves: the truths that fits are held to."""

from dataclasses import replace
from typing import Any

import numpy as np

from shapleymix.laws import LAWS, Inputs, Law
from shapleymix.records import FloatArray
from shapleymix.tables.languages import Languages
from shapleymix.tables.runs import RunLog
from shapleymix.tables.transfer import TransferMatrix

NAMES = ("en", "de", "fr", "zh", "ja", "ko", "fi")
FAMILIES = ("Germanic", "Germanic", "Romance", "Sinitic", "Japonic", "Koreanic", "Uralic")
FAST: dict[str, Any] = {"bootstrap": 0, "folds": 0}
SIZES, TOKENS = (2e7, 1e8, 5e8), (5e8, 3e9, 2e10)
TYPICAL = {
    "E": (1.2, 1.8), "A": (300.0, 600.0), "alpha": (0.3, 0.4), "B": (1000.0, 2000.0), "beta": (0.3, 0.4),
    "gamma": (0.1, 0.3), "kappa": (1.5, 3.0), "a": (0.4, 0.8), "c": (0.4, 0.8), "u": (0.05, 0.8), "eta": (-0.1, 0.4),
    "zeta": (0.0, 0.7), "k": (0.5, 1.0), "t": (-2.0, 0.0), "g": (0.4, 0.8), "coefficients": (0.1, 1.0),
    "floor": (0.0, 0.2),
}  # fmt: skip
"""The ranges that real logs give, in plain units."""


def inputs(sources: int = 4, targets: int = 4, seed: int = 0) -> Inputs:
    """Labels, Shapley values between 0.2 and 2 nats (own language highest), and families."""
    rng = np.random.default_rng(seed)
    own = 0.8 * np.eye(sources)[:, :targets]
    values = rng.uniform(0.2, 1.2, (sources, targets)) + own
    names, heads = NAMES[:sources], NAMES[:targets]
    return Inputs(names, heads, TransferMatrix.from_sv(values, names, heads), languages(names))


def languages(names: tuple[str, ...]) -> Languages:
    """The families table of the first of `NAMES`."""
    unknown = np.full(len(names), np.nan)
    return Languages(names, FAMILIES[: len(names)], unknown, None, unknown)


def true_law(name: str, given: Inputs, seed: int = 0) -> Law:
    """A law with typical symbols, in its standard gauge."""
    rng = np.random.default_rng(seed)
    law, M, K = LAWS[name], len(given.sources), len(given.targets)
    shapes = {"K": (K,), "MK": (M, K)}
    ranges = TYPICAL | ({"coefficients": (0.4, 4.0)} if name == "additive" else {})
    symbols = law.givens(given) | {
        known.name: rng.uniform(*ranges[known.name], shapes[known.axes]) for known in law.symbols_to_fit()
    }
    if name == "family":  # what no family member has must not cost more than any model's loss
        symbols["gamma"] = symbols["gamma"] / 2
    if "first_N" in symbols:  # a truth is one of budgets in plain units
        symbols |= {name: np.full(K, min(one)) for name, one in (("first_N", SIZES), ("first_D", TOKENS))}
    return law(**symbols).in_gauge()


def mixtures(count: int, sources: int, seed: int = 0, concentration: float = 1.0) -> FloatArray:
    """Random mixtures (count, M), no ratio below 0.1%."""
    drawn = np.random.default_rng(seed).dirichlet(np.full(sources, concentration), size=count)
    return 0.001 + (1 - 0.001 * sources) * drawn


def simulate(
    law: Law,
    given: Inputs,
    p: FloatArray,
    *,
    sizes: tuple[float, ...] = SIZES,
    tokens: tuple[float, ...] = TOKENS,
    noise: float = 0.0,
    seed: int = 0,
) -> RunLog:
    """Every mixture at one size and token count, dealt out in turn; noise is normal on the log loss of each run."""
    rows = np.arange(len(p))
    N = np.array(sizes)[rows % len(sizes)]
    D = np.array(tokens)[rows // len(sizes) % len(tokens)]
    loss = law(p, N, D)
    loss = loss * np.exp(noise * np.random.default_rng(seed).normal(size=loss.shape))
    runs = tuple(f"run-{row}" for row in rows)
    return RunLog(runs, N, D, p, np.array(loss), given.sources, given.targets)


def log_of(name: str, rows: int = 40, noise: float = 0.0, seed: int = 0, **budgets) -> tuple[Law, Inputs, RunLog]:
    """A true law, its inputs, and a log simulated from it."""
    given = inputs(seed=seed)
    law = true_law(name, given, seed)
    return law, given, simulate(law, given, mixtures(rows, len(given.sources), seed), noise=noise, seed=seed, **budgets)


JUMPING: dict[str, Any] = {"sizes": (1e8,), "tokens": (3e9,)}
LEAST, HEIGHT = np.array([np.inf, 0.3, 0.45, 0.25]), 0.3
"""The least ratios of four sources, the first of which never helps, and by how much log losses are higher without."""


def jumps(p: FloatArray) -> FloatArray:
    """By how much the log loss of the one foreign target (R,) is higher."""
    return np.where(np.any(p >= LEAST, axis=-1), 0.0, HEIGHT)


def jumping(rows: int, seed: int = 0, height: float = 1.0) -> tuple[RunLog, FloatArray]:
    """A log of four sources whose last target, of none of them, jumps by so many times `HEIGHT`; its losses without."""
    law, given, log = log_of("learned-base", rows, seed=seed, **JUMPING)
    p, noise = mixtures(rows, 4, seed, 0.4), 2e-3 * np.random.default_rng(seed).standard_normal(log.loss.shape)
    smooth = law(p, log.N, log.D) * np.exp(noise)
    foreign = smooth[:, :1] * np.exp(height * jumps(p))[:, None]
    losses, targets = np.hstack([smooth[:, 1:], foreign]), (*given.targets[1:], "xx")
    return with_loss(replace(log, p=p), losses, targets), smooth[:, 0]


def with_loss(log: RunLog, loss: FloatArray, targets: tuple[str, ...] | None = None) -> RunLog:
    """The same rows with other losses (R, K)."""
    return replace(log, loss=np.asarray(loss, dtype=np.float64), targets=targets or log.targets)


def same_rows(one: RunLog, other: RunLog) -> bool:
    """Whether two logs hold the same, to the last bit."""
    arrays = (
        (getattr(one, name), getattr(other, name)) for name in ("N", "D", "p", "loss", "weight", "schedule", "unique")
    )
    texts = ((getattr(one, name), getattr(other, name)) for name in ("runs", "sources", "targets", "split", "seed"))
    same = (a is b if a is None or b is None else np.array_equal(a, b, equal_nan=True) for a, b in arrays)
    return all(same) and all(a == b for a, b in texts)
