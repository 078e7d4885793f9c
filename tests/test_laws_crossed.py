"""Every law on every shape of log: a right result, or an error of ours that names the law, the log or a column.

The same sentence holds for all: no traceback of NumPy's, no RuntimeWarning (warnings are errors in this suite), no NaN
where the law is defined, and the loss at a fitted run in the range of the log's losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from simulated import FAST, inputs, languages, mixtures

from shapleymix.errors import DataError, ShapleyMixError, UsageError
from shapleymix.fitting.fit import fit
from shapleymix.fitting.fits import Fit
from shapleymix.laws import BLACK_BOXES, LAWS, Inputs
from shapleymix.tables.runs import RunLog

ROWS = 30
FAMILIES = languages(("en", "de", "fr", "zh"))
LAW_NAMES = (*LAWS, *BLACK_BOXES)


def ordinary() -> RunLog:
    """Thirty runs of four languages, losses of an additive kind that no listed law holds exactly, a little noise."""
    rng = np.random.default_rng(0)
    p = mixtures(ROWS, 4, seed=0)
    row = np.arange(ROWS)
    N, D = np.array([2e7, 1e8, 5e8])[row % 3], np.array([5e8, 3e9, 2e10])[row // 3 % 3]
    base = 1.5 + 400 / N[:, None] ** 0.34 + 1500 / D[:, None] ** 0.37
    loss = base * (p @ (0.3 + 0.7 * np.eye(4))) ** -0.15 * np.exp(2e-3 * rng.normal(size=(ROWS, 4)))
    names = ("en", "de", "fr", "zh")
    return RunLog(tuple(f"run-{i}" for i in row), N, D, p, loss, names, names)


def without_ratios(log: RunLog) -> RunLog:
    return replace(log, p=np.zeros((len(log), 0)), sources=())


def one_source(log: RunLog) -> RunLog:
    return replace(log, p=np.ones((len(log), 1)), sources=("en",))


def sparse(log: RunLog) -> RunLog:
    """About half of the ratios are exactly zero."""
    keep = np.random.default_rng(1).random(log.p.shape) < 0.5
    keep[np.arange(len(log)), np.arange(len(log)) % 4] = True
    p = np.where(keep, log.p, 0.0)
    return replace(log, p=p / p.sum(axis=1, keepdims=True))


def unseen_source(log: RunLog) -> RunLog:
    p = log.p * [1.0, 1.0, 1.0, 0.0]
    return replace(log, p=p / p.sum(axis=1, keepdims=True))


def times(N: float, D: float) -> Callable[[RunLog], RunLog]:
    return lambda log: replace(log, N=log.N * N, D=log.D * D)


def flat(values: np.ndarray) -> np.ndarray:
    return np.full_like(values, values[0])


SHAPES: dict[str, Callable[[RunLog], RunLog]] = {
    "ordinary": lambda log: log,
    "no ratios": without_ratios,
    "one source": one_source,
    "one target": lambda log: log.aligned(log.sources, ["de"]),
    "one N": lambda log: replace(log, N=flat(log.N)),
    "one D": lambda log: replace(log, D=flat(log.D)),
    "one budget": lambda log: replace(log, N=flat(log.N), D=flat(log.D)),
    "one run": lambda log: log.select(np.arange(len(log)) == 3),
    "one mixture": lambda log: replace(log, p=np.tile(log.p[0], (len(log), 1))),
    "few runs": lambda log: log.select(np.arange(len(log)) < 6),
    "zero ratios": sparse,
    "a source never seen": unseen_source,
    "D in billions": times(1.0, 1e-9),
    "N and D of one": times(1e-9, 1e-10),
    "N of 1e28": times(1e20, 1.0),
    "N of 1e-300": times(1e-300, 1.0),
    "N of 1e300": times(1e292, 1.0),
    "D of 1e-300": times(1.0, 1e-300),
    "D of 1e298": times(1.0, 1e288),
    "N over 600 decades": lambda log: replace(log, N=np.where(np.arange(len(log)) % 2, 1e300, 1e-300)),
}


def fit_of(name: str, log: RunLog) -> Fit:
    matrix = inputs(4, 4).transfer
    options = FAST | {"starts": 1}
    return fit(log, name, matrix, FAMILIES, **options)


def refusal_of(attempt: Callable[[], object]) -> ShapleyMixError | None:
    """The error of ours that the attempt ends in, if it does."""
    try:
        attempt()
    except ShapleyMixError as error:
        return error
    return None


FITTED_BY_ALL = ("ordinary", "one target", "one N", "one D", "one budget", "zero ratios", "D in billions")
BEYOND = ("N of 1e28", "N of 1e-300", "N of 1e300", "D of 1e-300", "D of 1e298", "N over 600 decades")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", LAW_NAMES)
def test_every_law_on_every_shape_of_log_is_right_or_refuses_by_name(name, shape):
    if name == "gbm":
        pytest.importorskip("lightgbm")
    log = SHAPES[shape](ordinary())
    held: list[Fit] = []
    refusal = refusal_of(lambda: held.append(fit_of(name, log)))
    if refusal is not None:
        # budgets that no law takes are refused by their place in the log, all else by the law's name
        assert (f"[{shape[0]}]" if shape in BEYOND else repr(name)) in str(refusal)
        assert refusal.hint
        assert shape not in FITTED_BY_ALL
        return
    assert shape not in BEYOND
    law = held[0].law
    losses = np.broadcast_to(law(log.p, log.N, log.D), log.loss.shape)
    sure = np.broadcast_to(law.defined(log.p), losses.shape)
    assert sure.any(axis=0).all()
    assert np.isfinite(losses[sure]).all()
    seen = law.seen_losses(log.loss, Inputs(log.sources, log.targets, None, FAMILIES))
    low, high = seen.min(axis=0), seen.max(axis=0)
    width = np.maximum(high - low, 0.02)
    assert ((losses > low - width) & (losses < high + width))[sure].all()
    if law.parameters():
        law.check(len(log.sources), len(log.targets), 0)


@pytest.mark.parametrize("name", [name for name in LAW_NAMES if name != "chinchilla"])
def test_a_log_without_ratios_is_refused_by_name(name):
    """additive, effective-data and exponential crashed on an empty maximum."""
    if name == "gbm":
        pytest.importorskip("lightgbm")
    with pytest.raises(UsageError, match=rf"law '{name}' needs ratios, and the log has none"):
        fit_of(name, without_ratios(ordinary()))


@pytest.mark.parametrize(("shape", "value"), [("N of 1e300", r"N = 2e\+299"), ("D of 1e-300", "D = 5e-292")])
@pytest.mark.parametrize("name", LAWS)
def test_budgets_beyond_exponents_are_refused_with_the_value(name, shape, value):
    with pytest.raises(DataError, match=value):
        fit_of(name, SHAPES[shape](ordinary()))


@pytest.mark.parametrize("name", LAWS)
def test_far_budgets_give_a_number_or_an_error_of_ours(name):
    """Prediction and terms at the ends of floating point: the floor far out, infinite or refused near zero."""
    law = fit_of(name, ordinary()).law
    p = np.full((1, 4), 0.25)
    far = law(p, np.array([1e300]), np.array([1e300]))
    farther = law(p, np.array([1.7e308]), np.array([1.7e308]))
    assert np.isfinite(far).all()
    np.testing.assert_allclose(farther, far, rtol=1e-3)
    near = law(p, np.array([1e-300]), np.array([1e-300]))
    assert (near > far).all()
    for budget in (1e-300, 1e-30, 1.0, 1e300):
        one = np.array([budget])
        refusal = refusal_of(partial(law.terms, budget, budget))
        if refusal is None:
            np.testing.assert_allclose(law.terms(budget, budget).losses(p[0]), law(p, one, one)[0], rtol=1e-9)
        else:
            assert repr(name) in str(refusal)
