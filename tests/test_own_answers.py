"""Laws of one's own that answer wrongly: refused by name, run and target; the others go on."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from simulated import log_of

from shapleymix.errors import FitError
from shapleymix.fitting.comparison import Comparison, compare
from shapleymix.fitting.fit import fit
from shapleymix.laws import BlackBox, Law, fitted, over_runs
from shapleymix.records import FloatArray
from shapleymix.tables.runs import RunLog

Change = Callable[[FloatArray], object]


def broken(losses: FloatArray) -> FloatArray:
    raise RuntimeError("boom")


def spoiled(value: float) -> Change:
    """The losses with another value at the highest of each target, wherever the law is asked."""
    return lambda losses: np.where(losses == losses.max(axis=-2, keepdims=True), value, losses)


NO_LOSS = r"gives no loss but {} for target 'en' of run 'run-\d+'|is undefined on every run"
WRONG: dict[str, tuple[Change, str]] = {
    "raises": (broken, r"raised RuntimeError at \S+test_own_answers.py:\d+: boom"),
    "nan": (lambda losses: losses * np.nan, NO_LOSS.format("nan")),
    "inf": (lambda losses: losses + np.inf, NO_LOSS.format("inf")),
    "beyond": (lambda losses: losses * 1e300, r"gives no loss but \S+ for target 'en' of run"),
    "words": (lambda losses: "three", "predicts a str, not losses"),
    "ragged": (lambda losses: [[1.0, 2.0], [3.0]], "predicts a list, not losses"),
    "nothing": (lambda losses: None, r"predicts losses of shape \(\), expected"),
    "one number": (lambda losses: 3.0, r"predicts losses of shape \(\), expected"),
    "one row": (lambda losses: losses[..., :1, :], "predicts losses of shape"),
    "without targets": (lambda losses: losses[..., 0], "predicts losses of shape"),
    "transposed": (lambda losses: np.swapaxes(losses, -1, -2), "predicts losses of shape"),
}
RIGHT: dict[str, Change] = {
    "single precision": lambda losses: losses.astype(np.float32), "whole": lambda losses: np.rint(losses).astype(int),
    "objects": lambda losses: losses.astype(object), "lists": lambda losses: losses.tolist(),
    "constant": lambda losses: 0 * losses + 3.0,
}  # fmt: skip


def own_law(change: Change, nick: str) -> type[Law]:
    @dataclass(frozen=True)
    class Own(Law):
        """`L_j = E_j + c_j (1 + p_1)`, changed."""

        kind = f"law/own-{nick}-of-a-test"
        name = "own"
        E: FloatArray = fitted(role="linear")
        c: FloatArray = fitted(low=0.1, high=10.0)

        def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
            return change(over_runs(self.E) + over_runs(self.c) * (1 + p[:, :1]))  # type: ignore[return-value]

    return Own


def own_box(change: Change, nick: str) -> type[BlackBox]:
    @dataclass(frozen=True)
    class Box(BlackBox):
        """Twice the first ratio for all of four targets, changed."""

        kind = f"law/box-{nick}-of-a-test"
        name = "own"

        @classmethod
        def learn(cls, seen, groups, seed):
            return cls()

        def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
            return change(2 + np.repeat(p[:, :1], 4, axis=1))  # type: ignore[return-value]

    return Box


KINDS = {"law": own_law, "black box": own_box}


@pytest.fixture(scope="module")
def log() -> RunLog:
    return log_of("shapley", rows=24, noise=1e-2)[2]


def compared(log: RunLog, *laws) -> Comparison:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return compare(log, laws, folds=3, starts=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_answer_is_refused_by_name_and_the_others_go_on(log, kind, how):
    """Fault: NaN ended in "a law differs from itself", errors and words in the author's own exception."""
    change, words = WRONG[how]
    own = KINDS[kind](change, how.replace(" ", "-"))
    table = compared(log, "chinchilla", own)
    assert table.best() == "chinchilla"
    assert table.entries[1].scores is None
    alone = [compared] if kind == "black box" else [compared, partial(fit, bootstrap=2, folds=3, starts=1)]
    for one in alone:
        with pytest.raises(FitError, match=f"law 'own' ({words})"):
            one(log, own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", RIGHT)
def test_whatever_holds_the_numbers_is_taken(log, kind, how):
    table = compared(log, KINDS[kind](RIGHT[how], f"right-{how}".replace(" ", "-")))
    assert np.isfinite(table.entries[0].scores.mean["PE"])  # type: ignore[union-attr]


def test_a_law_that_leaves_its_domain_as_it_is_fitted_names_the_run(log):
    """At the symbols that begin the search it has a loss everywhere."""
    own = own_law(lambda losses: np.where(losses > 3.5, np.nan, losses), "high")
    with pytest.raises(FitError, match=r"gives no loss but nan for target '\w+' of run 'run-\d+' \(nor one for"):
        fit(log, own, bootstrap=0, folds=0, starts=1)


def test_a_prediction_that_is_lost_for_one_target_is_refused(log):
    own = own_box(lambda losses: np.where(np.arange(4) == 2, np.nan, losses), "lost")
    entry = compared(log, "chinchilla", own).entries[1]
    assert entry.scores is None
    assert entry.error.startswith("law 'own' gives no loss but nan for target 'fr' of run 'run-")


def test_single_losses_that_a_law_leaves_out_are_counted(log):
    table = compared(log, "chinchilla", own_box(spoiled(np.nan), "spoiled"))
    assert table.entries[1].coverage == pytest.approx(1 - 1 / 24)


def test_laws_that_share_no_loss_are_not_compared(log):
    halves = [
        own_box(lambda losses, rest=rest: np.where(np.arange(24)[:, None] % 2 == rest, np.nan, losses), f"half-{rest}")
        for rest in (0, 1)
    ]
    halves[1].name = "other"
    with pytest.raises(FitError, match="own 48, o"):
        compared(log, *halves)
