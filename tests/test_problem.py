"""Questions about mixtures and their answers: optima, rivals, prices, other tokens, trade-offs, compute."""

import inspect
import json
import warnings
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from known_fits import SOURCES, TOKENS, Bumpy, KnownFit, Repeating, mixture, second

import shapleymix as sm
from shapleymix.errors import InfeasibleError, ShapleyMixWarning, SolveError, UsageError
from shapleymix.mixing.answers import Mixture, MixtureGrid
from shapleymix.mixing.optimize import compare_mixtures, frontier, optimize, optimize_scales, problem
from shapleymix.tables.languages import Languages

FIT = KnownFit()


class Named(KnownFit):
    """An object with attributes of its own by the names that a fit's methods have."""

    pieces, draws = 7, None  # pyright: ignore[reportAssignmentType]

    def predict(self, p, N, D):
        return KnownFit().predict(p, N, D)


def test_attributes_of_an_object_are_no_methods():
    assert np.isfinite(optimize(Named(), 1e8, 1e10).objective)


def test_a_rest_that_rounding_leaves_is_a_ratio():
    names = FIT.sources
    found = optimize(FIT, 1e8, 1e10, fix=dict.fromkeys(names[:3], 0.3333333))
    assert found.p[3] == pytest.approx(1e-7, abs=1e-12)


BUDGET = ("1B", "100B")
IN_BITS = {"unit": "bpb", "languages": {"language": SOURCES, "bytes_per_token": [4.4, 5.0, 3.1, 2.5]}}
CROSSED = pytest.mark.parametrize("asked", [{}, IN_BITS, {"after": "uniform", "trained": "20B"}], ids=str)


A, B = SOURCES[:2]


def whole(p):
    return cp.hstack(list(p.values()))


def least(question, draws: int = 4000) -> float:
    """The lowest objective of random mixtures within the bounds."""
    p = np.random.default_rng(0).dirichlet(np.ones(4), draws)
    inside = p[[question.within.violation(one) <= 1e-9 for one in p]]
    return min((question.goal.total(one) for one in inside), default=np.inf)


@pytest.mark.parametrize("seed", range(8))
def test_affine_constraints_of_ones_own_are_rows(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(4)[:2]
    rules = [lambda p: p[SOURCES[a]] == 2 * p[SOURCES[b]], lambda p: p[A] + p[B] <= 0.7]
    question = problem(FIT, *BUDGET, constraints=rules)
    found = question.solve()
    assert found.objective <= second(question.goal, 1) + 1e-8
    assert found.p[a] == pytest.approx(2 * found.p[b], abs=1e-9)
    assert found.relative_gap <= 1e-10


@pytest.mark.parametrize("objective", ["mean", "worst"])
@pytest.mark.parametrize(
    ("one", "same"),
    [
        (lambda p: cp.norm2(whole(p)) <= 0.52, lambda p: 1e11 * cp.sum_squares(whole(p)) <= 0.52**2 * 1e11),
        (lambda p: p[A] + 0.3 * p[B] == 0.2, lambda p: 1e11 * p[A] + 3e10 * p[B] == 2e10),
    ],
)
def test_constraints_may_be_written_in_any_unit(one, same, objective):
    """Fault: one that was written in tokens was broken by rounding, and no mixture found.

    Along a curved bound cuts tell a mixture less well than its objective.
    """
    found, other = (mixture(KnownFit(B=0), constraints=[which], objective=objective) for which in (one, same))
    np.testing.assert_allclose(found.p, other.p, atol=1e-4)
    assert max(found.relative_gap, other.relative_gap) <= 1e-8


def test_other_convex_constraints_are_met_by_cuts_and_have_prices():
    found = mixture(KnownFit(B=3), constraints=[lambda p: cp.norm2(whole(p)) <= 0.52], compare_to=["en=1"])
    assert {one.name: one.within_bounds for one in found.baselines} == {"uniform": True, "en=1": False}
    assert np.linalg.norm(found.p) <= 0.52 + 1e-7
    assert found.relative_gap <= 1e-8
    price = next(one for one in found.binding if one.source == "constraint 1")
    assert price.saves == pytest.approx(price.per_ratio * price.change, rel=0.2)
    cone = mixture(KnownFit(B=0), constraints=[lambda p: cp.SOC(cp.Constant(0.52), whole(p))], objective="worst")
    same = mixture(KnownFit(B=0), constraints=[lambda p: cp.sum_squares(whole(p)) <= 0.52**2], objective="worst")
    np.testing.assert_allclose(cone.p, same.p, atol=1e-4)
    with pytest.raises(SolveError):
        mixture(KnownFit(B=0), constraints=[lambda p: cp.norm2(whole(p)) >= 0.9])
    for wrong in (lambda p: True, lambda p: p["no such source"] <= 0.5):
        with pytest.raises(UsageError):
            mixture(KnownFit(B=0), constraints=[wrong])
    with pytest.raises(InfeasibleError):
        mixture(KnownFit(B=0), constraints=[lambda p: p[A] >= 0.9, lambda p: p[B] >= 0.2])
    with pytest.raises(InfeasibleError):
        mixture(KnownFit(B=0), constraints=[lambda p: cp.norm2(whole(p)) <= 0.4])


@pytest.mark.parametrize(
    "keywords",
    [
        {"cap": 0.3}, {"objective": "median"}, {"kl": 0.1}, {"anchor": "uniform"}, {"kl": -1, "anchor": "uniform"},
        {"max_epochs": 4}, {"monolingual": "en=2"}, {"level": 1.2}, {"seed": -1}, {"weights": "xx=1"},
        {"weights": "en=-1"}, {"weights": "en=0"}, {"weights": [1, 2]}, {"constraints": "p[0] <= 1"},
        {"what_if": "de+1B"}, {"what_if": 3, "available": TOKENS}, {"what_if": "de-1T", "available": TOKENS},
        {"what_if": "xx+1B", "available": TOKENS}, {"compare_to": ["natural"]}, {"unit": "bpb"}, {"kept": "uniform"},
        {"unit": "bits"}, {"distance": "kl"}, {"max_epochs": {A: 0.5}, "available": {B: 1e9}},
    ],
)  # fmt: skip
def test_what_is_no_question_is_a_usage_error(keywords):
    with pytest.raises(UsageError):
        mixture(**keywords)


@pytest.mark.parametrize("keyword", ["caps", "floors", "weights", "available", "near", "compare_to"])
def test_a_series_of_pandas_is_read_by_its_index_and_a_table_is_none(keyword):
    pandas = pytest.importorskip("pandas")
    names = (FIT.targets if keyword == "weights" else SOURCES)[::-1]
    unit = {"available": 5e11, "caps": 1, "floors": 0.5}.get(keyword, 1)
    given = {name: unit * one for name, one in zip(names, (0.4, 0.3, 0.2, 0.1), strict=False)}
    more = {"available": {"max_epochs": 1}, "near": {"within": 0.1}}.get(keyword, {})
    ways = (given, pandas.Series(given), pandas.DataFrame([given]))
    one, same, table = ([way] if keyword == "compare_to" else way for way in ways)
    mixes = [optimize(FIT, *BUDGET, **more, **{keyword: way}) for way in (one, same)]
    np.testing.assert_array_equal(mixes[0].p, mixes[1].p)
    assert [rival.objective for rival in mixes[0].baselines] == [rival.objective for rival in mixes[1].baselines]
    with pytest.raises(UsageError):
        optimize(FIT, *BUDGET, **more, **{keyword: table})


@pytest.mark.parametrize("kl", [0.01, 0.3, 5])
@pytest.mark.parametrize("bounds", [{}, {"caps": 0.5}, {"groups": "en+de<=0.4"}, {"objective": "worst"}], ids=str)
def test_a_rivals_lead_is_of_all_that_was_minimised(kl, bounds):
    anchor = np.array([0.05, 0.05, 0.2, 0.7])
    mix = optimize(FIT, *BUDGET, anchor=anchor, kl=kl, compare_to=["en=.1,de=.2,fi=.4,code=.3"], **bounds)
    pull = lambda p: kl * np.sum(p[p > 0] * np.log(p[p > 0] / anchor[p > 0]))  # noqa: E731
    for rival in mix.baselines:
        assert rival.lead == pytest.approx(rival.gain + pull(rival.p) - pull(mix.p), abs=1e-12)
        assert rival.lead > -1e-9 or not rival.within_bounds, "a convex law has no better mixture"


def test_a_pull_counts_against_every_rival():
    anchor = dict(zip(SOURCES, (0.05, 0.05, 0.05, 0.85), strict=True))
    mix = optimize(FIT, *BUDGET, anchor=anchor, kl=5)
    even = next(rival for rival in mix.baselines if rival.name == "uniform")
    assert even.gain < 0, "in its loss alone it is better"
    assert even.name not in " ".join(mix.warnings)
    free = optimize(FIT, *BUDGET)
    assert mix.conclusion.split()[0] == free.conclusion.split()[0], "which is to be trained, and not the even one"


def test_every_door_shows_the_keywords_of_problem():
    asked = {name for name, one in inspect.signature(problem).parameters.items() if one.kind is one.KEYWORD_ONLY}
    for door in (optimize, optimize_scales, compare_mixtures, frontier, sm.optimize_compute):
        assert asked <= set(inspect.signature(door).parameters)
    assert list(inspect.signature(optimize).parameters) == list(inspect.signature(problem).parameters)


def test_a_mixture_keeps_its_question_and_comes_back_from_its_file(tmp_path):
    found = mixture(caps={"en": 0.3}, available=TOKENS, groups="en+de<=.9", near=np.full(4, 0.25), within=1.5)
    assert (found.asked["caps"], found.asked["near"]) == ({"en": 0.3}, [0.25] * 4)
    again = mixture(**{name: value for name, value in found.asked.items() if name != "constraints"})
    np.testing.assert_allclose(again.p, found.p, atol=1e-12)
    found.save(tmp_path / "mix.json")
    assert Mixture.load(tmp_path / "mix.json") == found
    assert json.loads((tmp_path / "mix.json").read_text())["mixture"] == found.mixture
    assert mixture(caps={"en": 0.3}).p.tobytes() == mixture(caps={"en": 0.3}).p.tobytes()


@pytest.mark.parametrize(
    ("keywords", "unit"),
    [
        ({}, "nats"), ({"objective": "worst"}, "nats"), ({"weights": "normalized"}, "times the monolingual loss"),
        ({"objective": "worst", "weights": "en=1e9,de=1e8,fi=5e6"}, "weighted nats"),
        ({"objective": "worst", "weights": "en=7,de=7"}, "nats"), ({"weights": "en=1e9,de=1e8"}, "nats"),
    ],
)  # fmt: skip
def test_the_objective_has_its_unit(keywords, unit):
    found = mixture(**keywords)
    assert found.objective_unit == unit
    if "nats" in unit:
        assert found.objective > 0
        assert found.objective < 10
    if unit == "nats" and found.objective_kind == "worst":
        assert found.objective == pytest.approx(np.max(found.losses[found.weights > 0]))


def test_weights_come_from_words_numbers_or_the_table():
    table = Languages(SOURCES, (None,) * 4, np.full(4, np.nan), np.array([1.0, 3, 0, 1]), np.full(4, np.nan))
    np.testing.assert_allclose(mixture(languages=table).weights, [0.25, 0.75, 0])
    np.testing.assert_allclose(mixture(languages=table, weights="unweighted").weights, np.full(3, 1 / 3))
    alone = FIT.predict(np.eye(4)[:3], 1e9, 1e11).diagonal()
    np.testing.assert_allclose(mixture(weights="normalized").weights, 1 / alone / 3)
    measured = mixture(weights="normalized", monolingual="en=2").weights
    np.testing.assert_allclose(measured, 1 / np.array([2, *alone[1:]]) / 3)
    sizes = replace(table, bytes_per_token=np.array([4.4, 5.0, 3.1, np.nan]))
    in_bits = mixture(unit="bpb", weights="unweighted", languages=sizes, compare_to="code=1")
    nats = FIT.predict(in_bits.p[None], 1e9, 1e11)[0]
    np.testing.assert_allclose(in_bits.losses, nats / np.log(2) / sizes.bytes_per_token[:3])
    np.testing.assert_allclose(in_bits.objective, in_bits.losses.mean())
    assert in_bits.objective_unit == in_bits.unit == "bits a byte"
    with pytest.raises(UsageError):
        mixture(unit="bpb", languages=table)


def test_intervals_hold_their_own_numbers_and_come_from_replicates():
    found, bare = mixture(available=TOKENS), mixture(KnownFit(B=0))
    assert found.replicates == 40
    for low, value, high in ((found.p_low, found.p, found.p_high), (found.losses_low, found.losses, found.losses_high)):
        assert np.all((low <= value) & (value <= high))
    assert found.objective_low <= found.objective <= found.objective_high
    for rival in found.baselines:
        assert rival.gain_low <= rival.gain <= rival.gain_high
    assert np.isnan(bare.p_low).all()
    assert all(rival.sure is None for rival in bare.baselines)
    assert bare.verdict == ""


def test_gains_are_differences_of_objectives_and_agree_with_compare():
    others = ["mine=en=.5,fi=.5", "natural", "again=fi=50%,en=50%"]
    question = problem(FIT, *BUDGET, available=TOKENS, max_epochs=1000, compare_to=others)
    found = question.solve()
    assert {rival.name for rival in found.baselines} >= {"uniform", "natural", "mine", "again"}
    table = question.compare({"best": found, "uniform": "uniform"})
    uniform = next(rival for rival in found.baselines if rival.name == "uniform")
    assert uniform.gain == pytest.approx(uniform.objective - found.objective)
    assert table.entries[1].gain == pytest.approx(-uniform.gain)
    ends = (table.entries[1].gain_low, table.entries[1].gain_high)
    assert ends == pytest.approx((-uniform.gain_high, -uniform.gain_low))
    assert min(table.entries, key=lambda one: one.objective).name == "best"
    assert table.entries[0].objective_low == found.objective_low
    np.testing.assert_array_equal(table.entries[0].losses, found.losses)
    assert question.gain(found, "uniform").value == uniform.gain


@pytest.mark.parametrize("distance", ["l1", "kl"])
def test_a_ball_that_holds_the_optimum_back_has_a_price(distance):
    asked = {"near": "uniform", "distance": distance}
    found, wider = (mixture(within=radius, **asked) for radius in (0.1, 0.11))
    (price,) = found.binding
    assert (price.source, price.change) == ("distance", 0.01)
    assert price.saves == pytest.approx(found.objective - wider.objective, abs=1e-9)
    assert not mixture(within=1.9 if distance == "l1" else 9, **asked).binding


def test_without_mixtures_the_best_size_is_that_of_the_formula():
    """Hoffmann et al. 2022, eq. 4; and a law that tells no mixture from another says so of an optimum."""
    N, D = np.meshgrid([1e7, 3e7, 1e8, 3e8], [1e9, 4e9, 2e10])
    table = {"N": N.ravel(), "D": D.ravel(), "loss": 1.7 + 400 / N.ravel() ** 0.34 + 410 / D.ravel() ** 0.28}
    runs = {
        "run": [str(row) for row in range(12)], "p_en": np.linspace(0.2, 0.8, 12), "p_de": np.linspace(0.8, 0.2, 12),
    }  # fmt: skip
    fit = sm.fit(sm.read_runs(runs | table), "chinchilla", bootstrap=4, folds=2)
    best = sm.optimize_compute(fit, 6e21)
    ratio = (0.34 * 400 / (0.28 * 410)) ** (1 / 0.62)
    assert pytest.approx(ratio * 1e21 ** (0.28 / 0.62), rel=0.02) == best.N
    assert best.relative_gap <= 1e-9
    assert best.indifferent
    repeated = sm.optimize(fit, "1B", "20B", available="en=2B,de=50B")
    assert repeated.epochs[0] <= 1 + 1e-6


def test_the_rest_of_a_begun_run_is_chosen_among_all_that_it_can_still_become():
    asked = {"after": "en=.7,fi=.3", "trained": "40B", "compare_to": "mine=code=1", "available": "en=1T,de=1T,fi=8B"}
    question = problem(FIT, *BUDGET, **asked)
    found, read = question.solve(), np.array([28e9, 0, 12e9, 0])
    np.testing.assert_allclose(found.read + 60e9 * found.rest, 100e9 * found.p, rtol=1e-9)
    rests = np.random.default_rng(3).dirichlet(np.ones(4), 2000)
    p = (read + 60e9 * rests) / 100e9
    inside = p[[question.within.violation(one) <= 1e-9 for one in p]]
    assert found.objective <= question.goal.of(FIT.predict(inside, 1e9, 1e11)).min() + 1e-12
    assert found.epochs[2] == pytest.approx(found.p[2] * 100e9 / 8e9)
    mine = next(one for one in found.baselines if one.name == "mine")
    np.testing.assert_allclose(mine.p, [0.28, 0, 0.12, 0.6])
    assert question.gain(found, {"code": 1}).value == pytest.approx(mine.gain)
    assert question.with_tokens("fi+4B").within.supply.read.tolist() == read.tolist()
    begun = {name: asked[name] for name in ("after", "trained")}
    grid = MixtureGrid("", sm.optimize_scales(FIT, [1e9], [1e11, 2e11], **begun), {}).columns()
    curve = problem(FIT, *BUDGET, **begun).frontier("en:rest", points=3).columns()
    for table, D in ((grid, np.array(grid["D"])), (curve, 1e11)):
        for name, tokens in zip(FIT.sources, read.tolist(), strict=True):
            rest = (D - 40e9) * np.array(table[f"rest_{name}"])
            np.testing.assert_allclose(rest, D * np.array(table[f"p_{name}"]) - tokens, atol=1e-3)
    assert all(price.origin != "read" for price in found.binding), "what was read can be asked to be no less"
    with pytest.raises(InfeasibleError, match=r"cap 0\.2 .*of en cannot hold"):
        problem(FIT, *BUDGET, **(asked | {"caps": "en=.2"}))
    for wrong, kind in (({"trained": "100B"}, InfeasibleError), ({"trained": None}, UsageError)):
        with pytest.raises(kind):
            problem(FIT, *BUDGET, **(asked | wrong))


def test_ratios_inside_of_a_parent_are_kept_and_the_parent_alone_moves():
    nested = replace(FIT, sources=("a/web", "a/books/old", "a/books/new", "b"))
    question = problem(nested, *BUDGET, keep_within="a", kept=[0.4, 0.1, 0.3, 0.2])
    found = question.solve()
    np.testing.assert_allclose(found.p[:3] / found.p[:3].sum(), [0.5, 0.125, 0.375], rtol=1e-8)
    share = np.linspace(0, 1, 4001)[:, None]
    line = np.concatenate([share * [0.5, 0.125, 0.375], 1 - share], axis=1)
    losses = question.goal.of(FIT.predict(line, 1e9, 1e11))
    assert found.objective == pytest.approx(losses.min(), abs=1e-7)
    books = problem(nested, *BUDGET, groups="a/books<=.1", keep_within=["a/books"], kept="uniform").solve()
    assert (books.p[1], books.p[1:3].sum()) == (pytest.approx(books.p[2]), pytest.approx(0.1))
    without = problem(nested, *BUDGET, keep_within="a", kept=[0.4, 1e-9, 0.4, 0.2 - 1e-9]).solve()
    assert (without.p[1], without.p[0]) == (0, pytest.approx(without.p[2]))
    for wrong in (
        {"keep_within": "a", "kept": "b=1"}, {"keep_within": "a"}, {"keep_within": "b", "kept": "uniform"},
        {"keep_within": "a,a/web", "kept": "uniform"}, {"caps": "a=.5"}, {"floors": "a/books=.1"},
    ):  # fmt: skip
        with pytest.raises(UsageError) as error:
            problem(nested, *BUDGET, **wrong)
        assert error.value.hint or "kept" in wrong
    known = "a/web=1M,a/books/old=2M,a/books/new=3M"  # nothing of b is asked
    natural = problem(nested, *BUDGET, keep_within="a", available=known, max_epochs=1e9).solve()
    np.testing.assert_allclose(natural.p[:3] / natural.p[:3].sum(), np.array([1, 2, 3]) / 6, rtol=1e-8)


def test_the_verdict_is_of_all_compared_mixtures():
    found = mixture(compare_to=["poor=en=1"])
    unsure = replace(found.baselines[0], gain_low=-1.0, gain_high=1.0, better=("poor",))
    told = replace(found, baselines=(unsure, *found.baselines[1:])).verdict
    assert "uniform" in told
    assert "poor" in told
    assert "alone" in mixture(replace(FIT, gamma=0.0), compare_to=["alone=en=1"]).verdict
    for pull in ({}, {"anchor": "en=1", "kl": 1e-9}):
        told = mixture(caps="fi=.01", compare_to="even=en=.3,de=.3,fi=.4", **pull).verdict
        assert "even is better" in told
        assert ("the pull" in told) == bool(pull)


@pytest.mark.parametrize(
    ("keyword", "bound", "worse"), [("caps", "en<=.2", -1), ("floors", "code>=.2", 1), ("groups", "fi+de<=.4", -1)]
)
@CROSSED
def test_a_slope_is_that_of_the_objective_and_what_is_saved_is_solved_for(keyword, bound, worse, asked):
    name, sign, value = bound.partition("<=" if "<" in bound else ">=")

    def at(ratio: float) -> Mixture:
        return mixture(**{keyword: f"{name}{sign if keyword == 'groups' else '='}{ratio}"}, **asked)

    found = at(float(value))
    (price,) = found.binding
    assert (price.source, price.bound, price.origin) == (name, float(value), "given")
    slope = (found.objective - at(price.bound - worse * 1e-5).objective) / 1e-5
    assert slope == pytest.approx(price.per_ratio, rel=1e-3)
    relaxed = at(price.bound - worse * price.change).objective
    assert price.saves == pytest.approx(found.objective - relaxed, abs=1e-12)
    assert price.saves_low <= price.saves <= price.saves_high
    assert price.saves <= price.per_ratio * price.change * (1 + 1e-9)


@pytest.mark.parametrize("fit", [FIT, Repeating()])
@CROSSED
def test_other_tokens_are_answered_by_solving_again(fit, asked):
    found = mixture(fit, available=TOKENS, what_if=["fi+2B", "en-990B,code-40B"], **asked)
    for other, tokens in zip(found.what_if, ({"fi": "4B"}, {"en": "10B", "code": "10B"}), strict=True):
        again = mixture(fit, available=TOKENS | tokens, **asked)
        np.testing.assert_allclose(other.p, again.p, atol=1e-9)
        assert other.gain == pytest.approx(found.objective - again.objective, abs=1e-12)
    more = problem(fit, *BUDGET, available=TOKENS, **asked).with_tokens("fi+2B").solve()
    np.testing.assert_allclose(more.p, found.what_if[0].p, atol=1e-12)
    capped = [price for price in found.binding if price.origin == "tokens"]
    for price in capped:
        again = mixture(fit, available=TOKENS, what_if=f"{price.source}+{price.change:g}", **asked).what_if[0]
        assert price.saves == pytest.approx(again.gain, abs=1e-12)
    with pytest.raises(InfeasibleError):
        mixture(available=TOKENS, what_if="en-1T,de-100B,code-50B")


def test_without_a_price_of_repetition_tokens_are_seen_four_times_at_most():
    found = mixture(available=TOKENS)
    np.testing.assert_allclose(found.max_epochs, 4)
    assert (found.epochs <= 4 + 1e-9).all()
    assert np.isinf(mixture(Repeating(), available=TOKENS).max_epochs).all()


def test_several_budgets_are_one_by_one_and_make_one_table():
    found = optimize_scales(FIT, ["1B", "10B"], ["10B", "100B"], available=TOKENS)
    assert [(one.N, one.D) for one in found] == [(1e9, 1e10), (1e9, 1e11), (1e10, 1e10), (1e10, 1e11)]
    np.testing.assert_allclose(found[1].p, mixture(available=TOKENS).p, atol=1e-9)
    grid = MixtureGrid("known", found, {})
    rows = grid.to_polars().filter(D=1e11, N=1e9)
    assert rows.select("^p_.*$").row(0) == tuple(found[1].p.tolist())
    with pytest.raises(InfeasibleError):
        optimize_scales(FIT, "1B", ["10B", "100T"], available=TOKENS)


def test_a_law_without_convexity_is_searched_and_says_so():
    found = mixture(Bumpy(), caps="fi=.4", groups="en+de<=.9")
    assert np.isnan(found.gap)
    assert found.warnings
    question = problem(Bumpy(), *BUDGET, caps="fi=.4", groups="en+de<=.9")
    assert found.objective <= least(question) + 1e-9
    assert found == mixture(Bumpy(), caps="fi=.4", groups="en+de<=.9")
    assert question.compare(["uniform", "en=1"]).entries[1].objective > 0


def test_warnings_reach_python_and_the_record():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = mixture(available=TOKENS)
    told = [str(one.message) for one in caught if issubclass(one.category, ShapleyMixWarning)]
    assert told == list(found.warnings)
    assert "4 times" in told[0]


@CROSSED
def test_a_trade_off_is_made_of_optima_of_which_none_beats_another(asked):
    curve = frontier(FIT, *BUDGET, "en:rest", points=7, caps=0.7, weights="en=1,de=3,fi=1", **asked)
    assert 2 <= len(curve.entries) <= 7
    first, rest = (np.array([getattr(point, side) for point in curve.entries]) for side in ("first", "second"))
    assert (np.diff(rest) > 0).all()
    assert (np.diff(first) < 0).all()
    for point in curve.entries:
        w = point.share * np.array([1, 0, 0]) + (1 - point.share) * np.array([0, 0.75, 0.25])
        best = mixture(caps=0.7, weights=dict(zip(FIT.targets, w, strict=True)), **asked)
        assert w @ point.losses == pytest.approx(best.objective, rel=1e-9)
        assert point.certificate.relative_gap <= 1e-8
    for losses, weights in ((first, "en=1"), (rest, "de=3,fi=1")):
        assert losses.min() == pytest.approx(mixture(caps=0.7, weights=weights, **asked).objective, rel=1e-6)
    steps = np.hypot(np.diff(first) / np.ptp(first), np.diff(rest) / np.ptp(rest))
    assert np.ptp(steps) <= 0.1 * steps.mean()


@pytest.mark.parametrize("text", ["en", "en:en", "xx:rest", "rest:rest", "en+de+fi:rest", ":"])
def test_what_has_no_two_sides_is_no_trade_off(text):
    with pytest.raises(UsageError):
        frontier(FIT, *BUDGET, text)


def test_families_are_sides_and_a_curve_takes_no_other_objective():
    nothing = np.full(4, np.nan)
    table = Languages(SOURCES, ("Germanic", "Germanic", "Uralic", None), nothing, None, nothing)
    curve = frontier(FIT, *BUDGET, "Germanic:rest", languages=table, points=3)
    assert (curve.first_targets, curve.second_targets) == (("en", "de"), ("fi",))
    for keywords in ({"objective": "worst"}, {"kl": 0.1, "anchor": "uniform"}, {"what_if": "en+1B"}):
        with pytest.raises(UsageError):
            frontier(FIT, *BUDGET, "en:rest", **keywords)


def test_compute_is_split_where_the_objective_is_least_with_intervals():
    flops = 6e20
    found = sm.optimize_compute(FIT, flops, caps=0.5)
    assert pytest.approx(flops) == 6 * found.N * found.D
    for factor in (0.9, 1.1):
        assert found.objective <= optimize(FIT, found.N * factor, found.D / factor, caps=0.5).objective
    assert found.N_low <= found.N <= found.N_high
    assert found.D_low <= found.D <= found.D_high
    with pytest.raises(UsageError):  # which has its N
        sm.optimize_compute(FIT, flops, after="uniform", trained="1B")


def test_compute_is_not_split_by_exponents_that_were_assumed(fixtures):
    known = sm.fit(fixtures / "multilingual5_runs.csv", "chinchilla", folds=0, bootstrap=0)
    one_size = {"N_range": np.full((5, 2), 5e7)}, {"D_range": np.ones((5, 2))}
    blind = [replace(known, coverage=replace(known.coverage, **told)) for told in one_size]
    for fit in (replace(known, held=("alpha",)), *blind):
        with pytest.raises(SolveError):
            sm.optimize_compute(fit, 6e14)
    assert sm.optimize_compute(replace(known, held=()), 6e14).N > 0
