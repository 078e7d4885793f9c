"""Sources within a language: a column `parent` of the languages table is to a fit what slashes in names are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm

NESTED = sm.read_runs(Path(__file__).parents[1] / "fixtures" / "nested_runs.csv")
PLAIN = replace(NESTED, sources=tuple(name.replace("/", "") for name in NESTED.sources))
BUDGET = (23712.0, 1e6)
SIZES = {"bytes_per_token": np.linspace(3.0, 4.5, 7)}
TABLE = SIZES | {"language": [*PLAIN.sources, "ennew"], "parent": ["en", "en", "de", "de", "fr", "fr", "en"]}
SLASHED = SIZES | {"language": [*NESTED.sources, "en/new"]}


@pytest.fixture(scope="module")
def slashed() -> sm.Fit:
    return sm.fit(NESTED, bootstrap=20)


@pytest.fixture(scope="module")
def parented(tmp_path_factory: pytest.TempPathFactory) -> sm.Fit:
    """As it is read back from its file, bit for bit."""
    found, path = sm.fit(PLAIN, languages=TABLE, bootstrap=20), tmp_path_factory.mktemp("fit") / "fit.json"
    found.save(path)
    assert sm.Fit.load(path).to_document() == found.to_document()
    return sm.Fit.load(path)


@pytest.mark.parametrize(
    "asked",
    [
        {}, {"weights": "normalized"}, {"keep_within": "en,de", "kept": "uniform"}, {"groups": "en<=.3"},
        {"unit": "bpb"}, {"keep_within": "en", "available": "en/clean=100k,en/noised=300k", "what_if": "en/clean+1M"},
    ],
    ids=str,
)  # fmt: skip
def test_a_parent_of_the_table_is_what_a_slash_is(slashed: sm.Fit, parented: sm.Fit, asked: dict[str, str]) -> None:
    renamed = {name: text.replace("en/", "en") for name, text in asked.items()}
    tables = ({"languages": one} for one in (SLASHED, TABLE) if "unit" in asked)
    one = sm.optimize(slashed, *BUDGET, **asked, **next(tables, {}))
    other = sm.optimize(parented, *BUDGET, **renamed, **next(tables, {}))
    np.testing.assert_allclose(other.p, one.p, atol=1e-9)
    pairs = zip((one, *one.baselines, *one.what_if), (other, *other.baselines, *other.what_if), strict=True)
    for mine, same in pairs:
        for name in {"objective", "objective_low", "gain", "gain_low"} & vars(mine).keys():
            assert getattr(same, name) == pytest.approx(getattr(mine, name), rel=1e-9)
    assert other.families.keys() == one.families.keys() == {"en", "de", "fr"}


def test_so_do_a_new_part_and_the_regime_without_a_language(slashed: sm.Fit, parented: sm.Fit) -> None:
    assert parented.notices == slashed.notices
    for new in ("ennew", "en/new"):
        known = [sm.like(fit, name) for fit, name in ((slashed, "en/new"), (parented, new))]
        losses = [fit.predict([0.1, 0.1, 0.2, 0, 0, 0, 0.6], *BUDGET).losses for fit in known]
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)
    curves = [sm.frontier(fit, *BUDGET, "en:rest", points=3) for fit in (slashed, parented)]
    np.testing.assert_allclose(curves[1].columns()["sum_p_en"], [one.p[:2].sum() for one in curves[0].entries])
    np.testing.assert_allclose([e.p for e in curves[1].entries], [e.p for e in curves[0].entries], atol=1e-9)


def test_parents_of_targets_are_groups_and_a_new_part_leaves_their_floors() -> None:
    log = sm.read_runs(Path(__file__).parents[1] / "fixtures" / "multilingual5_runs.csv")
    table = {"language": list(log.sources), "parent": ["far", "near", "near", "far", "far"]}
    fit = sm.fit(log, languages=table, bootstrap=0)
    mix = sm.optimize(fit, *BUDGET, groups="far<=0.2")
    assert mix.p[[0, 3, 4]].sum() == pytest.approx(0.2)
    new = sm.optimize(sm.like(fit, {"en/new": "en"}), *BUDGET)
    assert dict(zip(new.sources, new.floors, strict=True))["en"] == mix.floors[mix.sources.index("en")] > 0
