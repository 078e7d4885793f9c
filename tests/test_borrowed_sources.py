"""Sources without runs, taken to be like one that runs hold."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import FAST, NAMES, inputs, log_of, mixtures, simulate, true_law

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.fitting.borrowed_sources import WRONG, like
from shapleymix.laws import LAWS

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")
BUDGET = (1e8, 3e9)


@cache
def fit_of(name: str, bootstrap: int = 0, rows: int = 40) -> sm.Fit:
    """Four languages; where a law is in need, with Shapley values and families."""
    _, given, log = log_of(name, rows=rows, noise=1e-3)
    how: dict[str, Any] = {**FAST, "bootstrap": bootstrap, "starts": 2}
    return sm.fit(log, name, given.transfer, given.languages, **how)


@cache
def fit_without_the_last(name: str, column: bool, rows: int = 40, bootstrap: int = 0, **budgets: Any) -> sm.Fit:
    """Of five targets, and of runs that hold four languages; the fifth is an empty column of the log, or none."""
    given = inputs(5, 5)
    log = simulate(true_law(name, given), given, mixtures(rows, 5), **({"sizes": (1e8,), "tokens": (3e9,)} | budgets))
    fewer = log.p[:, :4] / log.p[:, :4].sum(axis=1, keepdims=True)
    empty = replace(log, p=np.column_stack([fewer, np.zeros(rows)]))
    held = empty if column else replace(log, p=fewer, sources=log.sources[:4])
    return sm.fit(held, name, given.transfer, given.languages, bootstrap=bootstrap, folds=0)


@pytest.fixture(scope="module")
def known() -> sm.Fit:
    return fit_of("effective-data", bootstrap=200)


def test_a_part_named_alone_is_like_the_mean_of_its_siblings(known):
    parts = replace(known, sources=("en/web", "en/books", "fr", "zh"), targets=("a", "b", "c", "d"))
    alone = like(parts, "en/new").law.coefficients
    np.testing.assert_allclose(alone[-1], alone[:2].mean(axis=0), rtol=1e-14)
    with pytest.raises(UsageError, match="de/new"):
        like(parts, "de/new")


def with_ratio(p: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Mixtures with a last source whose share is taken from French, the third."""
    return np.column_stack([p[:, 0], p[:, 1], p[:, 2] - new, p[:, 3], new])


@pytest.mark.parametrize("name", LAWS)
def test_every_law_knows_a_source_like_another_or_refuses_by_name(name):
    found = fit_of(name)
    if not any(symbol.axes == "MK" for symbol in LAWS[name].parameters()):
        with pytest.raises(UsageError, match=f"law '{name}' has no coefficients"):
            like(found, "oc=fr")
        return
    alike = like(found, "oc=fr")
    assert alike.sources == (*found.sources, "oc")
    sm.Fit.from_document(alike.to_document())  # which checks all shapes
    p, one = mixtures(9, 4, seed=5), np.ones(9)
    N, D = BUDGET[0] * one, BUDGET[1] * one
    without = alike.law(with_ratio(p, 0 * one), N, D)
    np.testing.assert_allclose(without, found.law(p, N, D), rtol=1e-12, err_msg="without it nothing changes")
    other = [j for j, target in enumerate(found.targets) if target != "fr"]
    instead = alike.law(with_ratio(p, p[:, 2]), N, D)
    swapped = found.law(p, N, D)
    np.testing.assert_allclose(instead[:, other], swapped[:, other], rtol=1e-9, err_msg="it does what French did")


def test_on_the_others_own_target_it_does_what_foreign_sources_do(known):
    alike = like(known, "oc=fr")
    phi = alike.law.coefficients
    np.testing.assert_array_equal(phi[:4], known.law.coefficients)
    np.testing.assert_array_equal(np.delete(phi[4], 2), np.delete(phi[2], 2))
    assert phi[4, 2] == np.median(np.delete(phi[:4, 2], 2))


def test_a_measured_target_of_its_own_gets_what_the_other_does_on_its_own():
    """The log holds Finnish losses, and no Finnish data."""
    found = fit_without_the_last("effective-data", column=False)
    alike = like(found, {NAMES[4]: "fr"})
    assert alike.law.coefficients[4, 4] == found.law.coefficients[2, 2]
    assert alike.law.coefficients[4, 0] == found.law.coefficients[2, 0]


OF_INPUTS = [("learned-base", "own"), ("shapley-tempered", "nsv")]


@pytest.mark.parametrize(("name", "symbol"), OF_INPUTS)
@pytest.mark.parametrize("column", [False, True])
def test_its_data_are_the_own_data_of_its_target(name, symbol, column):
    """They were raised to the exponent of other sources' data, whether or not the log had an empty column."""
    found = fit_without_the_last(name, column, bootstrap=5)
    alike = like(found, {NAMES[4]: "fr"})
    assert alike.sources == NAMES[:5]
    for law in (alike.law, alike.replicates):
        mine = np.asarray(getattr(law, symbol))
        if symbol == "own":
            np.testing.assert_array_equal(mine > 0, np.broadcast_to(np.eye(5), mine.shape))
        elif law is alike.law:
            assert mine[4, 4] == mine[2, 2], "its normalised value on its own target is the other's on its own"


def test_replicates_are_as_wide_as_what_is_not_known(known):
    alike = like(known, "oc=fr")
    ratio = alike.replicates.coefficients[:, 4] / known.replicates.coefficients[:, 2]
    low, high = np.quantile(ratio[:, 0], (0.1, 0.9))
    assert low < 0.4
    assert 2 < high < 20
    ranks = ratio[:, :2].argsort(axis=0).argsort(axis=0)
    assert np.corrcoef(ranks.T)[0, 1] > 0.1, "a source may help more as a whole"
    others = known.replicates.coefficients[:, [0, 1, 3], 0]
    copied = np.isclose(alike.replicates.coefficients[:, 4, 0, None], others, rtol=1e-12).any(axis=1)
    assert abs(copied.mean() - WRONG) < 0.15, (
        "a likeness may be wrong; on English another's own effect is no foreign one"
    )
    np.testing.assert_array_equal(alike.replicates.coefficients[:, :4], known.replicates.coefficients)
    again = like(known, "oc=fr")
    np.testing.assert_array_equal(alike.replicates.coefficients, again.replicates.coefficients)
    shares = [alike.predict(one, *BUDGET) for one in ("fr=1", "fr=0.5,oc=0.5")]
    widths = [np.log(one.high / one.low).mean() for one in shares]
    assert widths[1] > widths[0]


def test_the_default_law_is_less_sure_of_a_source_that_is_like_another():
    alike = like(fit_of("learned-base", bootstrap=100), "oc=fr")
    shares = [alike.predict(one, *BUDGET) for one in ("en=0.5,fr=0.5", "en=0.5,oc=0.5")]
    widths = np.array([np.log(one.high / one.low)[0] for one in shares])
    assert (widths[1] > 1.5 * widths[0]).all()


def test_a_column_without_runs_is_filled_as_a_new_one_is_added(tmp_path):
    log = log_of("effective-data", rows=40, noise=1e-3)[2]
    empty = replace(log, p=np.column_stack([log.p, np.zeros(40)]), sources=(*log.sources, "oc"))
    found = sm.fit(empty, "effective-data", **FAST)
    assert found.unseen == ("oc",)
    filled, added = like(found, "oc=fr"), like(sm.fit(log, "effective-data", **FAST), "oc=fr")
    np.testing.assert_allclose(filled.law.coefficients, added.law.coefficients, rtol=1e-3)
    assert filled.unseen == added.unseen == ()
    filled.save(tmp_path / "fit.json")
    read = sm.Fit.load(tmp_path / "fit.json")
    assert read.coverage.alike == {"oc": "fr"}
    np.testing.assert_array_equal(read.law.coefficients, filled.law.coefficients)


def test_several_and_wrong_likenesses(known):
    both = like(known, ["oc=fr", "nl=de"])
    assert both.sources[-2:] == ("oc", "nl")
    assert like(known, "oc=fr,nl=de").coverage.alike == {"oc": "fr", "nl": "de"}
    wrong = ("en=fr", "oc=xx", "oc", "oc=", "", "a=b=c", "oc=oc")
    for text in wrong:
        with pytest.raises(UsageError):
            like(known, text)
    for text in ("oc=de", "gsw=oc"):
        with pytest.raises(UsageError):
            like(both, text)
    with pytest.raises(UsageError, match="law 'mariner' has no coefficients"):
        like(sm.fit(log_of("learned-base")[2], "mariner", **FAST), "oc=fr")


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Random words of each language and of `oc`, some of which a language and the next have in common."""
    folder, draw = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcdefghij"), size=4)) for _ in range(60)]
    for place, name in enumerate((*NAMES[:4], "oc")):
        chosen = draw.choice(words[10 * place : 10 * place + 16], size=(80, 20))
        (folder / f"{name}.txt").write_text("\n\n".join(" ".join(one) for one in chosen))
    return folder


@pytest.mark.parametrize("name", ["learned-base", "effective-data", "additive", "shapley"])
def test_of_text_a_source_has_a_row_in_proportion(name, texts, tmp_path):
    found = fit_of(name)
    added = like(found, f"oc=text:{texts}")
    matrix = sm.text_shapley(texts, sources=added.sources)
    nsv = matrix.align(added.sources, added.sources).nsv
    symbol = {"learned-base": "u", "shapley": "nsv"}.get(name, "coefficients")
    before, after = (getattr(one.law, symbol) for one in (found, added))
    for target in range(4):
        foreign = [source for source in range(4) if source != target]
        multiple = np.linalg.lstsq(nsv[foreign, target, None], before[foreign, target])[0]
        np.testing.assert_allclose(after[4, target], multiple * nsv[4, target], rtol=1e-9)
    np.testing.assert_array_equal(after[:4], before)
    assert added.coverage.alike == {"oc": f"text:{texts}"}
    for known in ("nl", "en"):  # without text, and told by runs
        with pytest.raises(UsageError, match=known):
            like(found, f"{known}=text:{texts}")


BY_SOURCE = [
    name
    for name, law in LAWS.items()
    if any(symbol.axes == "MK" for symbol in law.parameters()) and "families" not in law.needs
]


@pytest.mark.parametrize(("name", "column"), [*((name, True) for name in BY_SOURCE), ("learned-base", False)])
def test_a_measured_target_keeps_its_losses_and_takes_the_shape_of_the_other(name, column):
    """Fault: its exponent stayed where the search began, whatever it is like; now its own data do what French does."""
    found = fit_without_the_last(name, column, rows=16, sizes=(1e8, 8e8), tokens=(3e9, 9e9))
    alike = like(found, {NAMES[4]: "fr"})
    p = mixtures(9, 5, seed=7)
    p[:3, 4] = 0
    p /= p.sum(axis=1, keepdims=True)
    for N, D in ((1e8, 3e9), (6.4e9, 9e9), (1e12, 1e15)):
        at = np.full(3, N), np.full(3, D)
        without = found.law(p[:3] if column else p[:3, :4], *at)
        np.testing.assert_allclose(alike.law(p[:3], *at), without, rtol=1e-9, err_msg="what was measured moved")
        assert np.isfinite(alike.law(p, np.full(9, N), np.full(9, D))).all()
    for symbol in type(alike.law).symbols_to_fit():
        before = found.law.idle().get(symbol.name, np.zeros(5, dtype=bool))[4]
        value = np.asarray(getattr(alike.law, symbol.name))
        if symbol.axes == "K" and before and symbol.budget is None:
            assert value[4] == value[2]
    assert not any(there[4] for there in alike.law.idle().values())


def test_a_part_that_is_like_a_part_of_another_language_is_its_own_languages_data():
    log = Path(__file__).parents[1] / "fixtures" / "nested_runs.csv"
    found = sm.fit(log, "learned-base", bootstrap=0, folds=0)
    alike = like(found, "fr/new=de/clean").law
    np.testing.assert_array_equal(alike.own[-1] > 0, [False, False, True])
    assert alike.u[-1, 2] == alike.u[found.sources.index("de/clean"), 1]
    foreign = [i for i, name in enumerate(found.sources) if not name.startswith("de/")]
    assert alike.u[-1, 1] == np.median(alike.u[foreign, 1])


@pytest.mark.parametrize("turn", [1, -1])
def test_unseen_parts_gain_nothing_beside_their_siblings_and_know_their_own_language(turn):
    log = sm.read_runs(Path(__file__).parents[1] / "fixtures" / "nested_runs.csv")
    found = sm.fit(log.align(log.sources[::turn], log.targets), bootstrap=0, folds=0)
    best, more = (sm.optimize(one, *BUDGET) for one in (found, like(found, "en/new,fr/new,de/new,de/other")))
    assert more.objective == pytest.approx(best.objective, rel=1e-3)
    without = sm.fit(log_of("learned-base", rows=40, noise=1e-3)[2], bootstrap=0, folds=0)
    foreign = replace(without, targets=(*without.targets[:3], "oc"))  # no loss is of Chinese, which Occitan is like
    law, own = like(foreign, "oc=zh").law, [without.law.u[i, i] for i in range(3)]
    assert law.u[-1, 3] == np.median(own)
    assert law.own[-1, 3] > 0


@pytest.mark.parametrize("asked", [{}, {"groups": "de+zh<=0.1"}, {"objective": "worst"}])
@pytest.mark.parametrize("name", ["learned-base", "effective-data"])
def test_a_copy_of_a_source_gains_nothing(name, asked):
    found = fit_of(name, bootstrap=4)
    best, copied = (
        sm.optimize(one, *BUDGET, weights="en=1,fr=2", **asked) for one in (found, like(found, "fr/new=fr"))
    )
    assert copied.objective == pytest.approx(best.objective, rel=1e-9)
    assert copied.relative_gap <= 1e-8
    assert copied.replicates == 4
