"""A law of one's own: an equation and its symbols are enough, and one line in `LAWS` is all that adds it."""

from dataclasses import dataclass

import numpy as np
import pytest
from simulated import mixtures

from shapleymix.errors import FitError
from shapleymix.fitting.fit import fit
from shapleymix.laws import LAWS, Law, fitted, given, over_runs
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog


@dataclass(frozen=True)
class Toy(Law):
    """`L_j = floor_j + b_j / D^power_j + sum_i w_ij (p_i - 1)^2`: no symbol is named as in any law of the library."""

    kind = "law/toy-of-a-test"
    name = "toy"
    needs = ("mixture",)

    floor: FloatArray = fitted(role="linear")
    b: FloatArray = fitted(role="linear", budget="D")
    power: FloatArray = fitted(role="exponent", low=0.05, high=2.0, budget="D", usual=0.5)
    w: FloatArray = fitted("MK", role="coefficients", low=1e-6, high=1e3)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        by_data = over_runs(self.b) * D[:, None] ** -over_runs(self.power)
        return over_runs(self.floor) + by_data + np.einsum("rm,...mk->...rk", (p - 1) ** 2, self.w)


@dataclass(frozen=True)
class Frozen(Law):
    """A law without anything to fit."""

    kind = "law/frozen-of-a-test"
    name = "frozen"

    level: FloatArray = given("K")

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return np.broadcast_to(over_runs(self.level), (len(p), 3))


@dataclass(frozen=True)
class Level(Law):
    """A law without a linear symbol."""

    kind = "law/level-of-a-test"
    name = "level"

    log: FloatArray = fitted(positive=False)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        return np.exp(over_runs(self.log)) * np.ones((len(p), 1))


@pytest.fixture
def truth(monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The toy law, listed as one line in `LAWS` would list it."""
    monkeypatch.setitem(LAWS, Toy.name, Toy)
    rng = np.random.default_rng(0)
    two = np.array([1.0, 1.5])
    return Toy(floor=two, b=30.0 * two, power=0.3 * two, w=rng.uniform(0.2, 1.0, (3, 2)))


def log_of_toy(truth: Toy, tokens: tuple[float, ...] = (1e3, 1e4, 1e5), noise: float = 0.0) -> RunLog:
    p = mixtures(36, 3, seed=1)
    N, D = np.full(36, 1e6), np.array(tokens)[np.arange(36) % len(tokens)]
    loss = truth(p, N, D) * np.exp(noise * np.random.default_rng(2).normal(size=(36, 2)))
    return RunLog(tuple(map(str, range(36))), N, D, p, loss, ("en", "de", "fr"), ("en", "de"))


def test_is_recovered_in_plain_units_whatever_its_symbols_are_called(truth):
    """The base once turned back to plain units by the names A and B: with other names it predicted nonsense."""
    found = fit(log_of_toy(truth), Toy, bootstrap=0, folds=0, prior=1e-8)
    for symbol in ("floor", "b", "power", "w"):
        np.testing.assert_allclose(getattr(found.law, symbol), getattr(truth, symbol), rtol=1e-2, err_msg=symbol)


def test_what_the_budgets_cannot_tell_is_held_by_declaration(truth):
    one = fit(log_of_toy(truth, (1e4,)), "toy", bootstrap=0, folds=0)
    assert one.held == ("b", "power")
    assert any("its effect is unknown" in line for line in one.predict([[0.2, 0.3, 0.5]], 1e6, 1e6).warnings)
    two = fit(log_of_toy(truth, (1e3, 1e5)), "toy", bootstrap=0, folds=0)
    np.testing.assert_array_equal(two.law.power, [0.5, 0.5])


def test_the_weak_prior_pulls_on_coefficients_by_their_role(truth):
    log = log_of_toy(truth)
    free, held = (fit(log, "toy", bootstrap=0, folds=0, prior=prior).law for prior in (0.0, 1e6))
    np.testing.assert_allclose(held.w, 1.0, rtol=1e-2)
    assert np.abs(free.w - 1.0).max() > 0.1


def test_a_law_with_nothing_to_fit_is_refused_by_name(truth):
    with pytest.raises(FitError, match="law 'frozen' has no symbol that a fit determines"):
        fit(log_of_toy(truth), Frozen, bootstrap=0, folds=0)


def test_no_symbol_need_be_linear(truth):
    log = log_of_toy(truth)
    found = fit(log, Level, bootstrap=0, folds=0, delta=np.inf)
    np.testing.assert_allclose(found.law.log, np.log(log.loss).mean(axis=0), rtol=1e-6)


def test_a_linear_symbol_is_one_number_a_target():
    with pytest.raises(TypeError, match="linear symbol"):
        fitted("MK", role="linear")
