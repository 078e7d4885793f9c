"""What a mixture's bounds allow holds of the run that is exported, whatever its tokens: every format, every bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cli_tools import Run, runner
from known_fits import FakeFit, mixture

import shapleymix as sm
from shapleymix.exporting.export import FORMATS
from shapleymix.exporting.limits import APART

TOKENS = {"en": 1e12, "de": 1e11, "fi": 2e9, "code": 5e10}
TABLE = {"language": list(TOKENS), "available_tokens": list(TOKENS.values()), "max_epochs": [1, 2, 2.5, 3]}
BOUNDS = {
    "epochs of all": {"available": TOKENS, "max_epochs": 2},
    "epochs by language": {"available": TOKENS, "max_epochs": "fi=1.7,code=0.6"},
    "epochs of a table": {"languages": TABLE},
    "fewest tokens": {"available": TOKENS, "min_tokens": "fi=3B,de=30B", "max_epochs": 4},
    "fewest tokens, below a floor": {"min_tokens": "fi=3B", "floors": "fi=0.1"},
}
SCALES = (0.1, 1.0, 1.005, 3.0)

pytestmark = pytest.mark.filterwarnings("ignore::shapleymix.errors.ShapleyMixWarning")


@pytest.fixture(scope="module")
def found() -> dict[str, sm.Mixture]:
    return {name: mixture(**bounds) for name, bounds in BOUNDS.items()}


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_exported_keeps_the_bounds_or_is_refused_by_name(form: str, found: dict[str, sm.Mixture]) -> None:
    """By arithmetic: epochs are p D / tokens. Within one per cent a broken bound is told, beyond it refused."""
    outcomes = set()
    for best, more, fewer in product(found.values(), SCALES, SCALES):
        D = best.D * more
        tokens = {name: value / fewer for name, value in TOKENS.items()}
        paths = {"language": list(tokens), "path": list(tokens), "available_tokens": list(tokens.values())}
        often = best.p * D / np.array(list(tokens.values())) / best.max_epochs
        few = best.min_tokens / np.maximum(best.p * D, 1e-300)
        known = np.isfinite(best.available)
        refused = {*_named(best, known & (often > 1 + APART)), *_named(best, few > 1 + APART)}
        told = {*_named(best, often > 1 + 1e-6), *_named(best, few > 1 + 1e-6)}
        outcomes.add((bool(refused), bool(told)))
        if refused:
            with pytest.raises(sm.DataError) as caught:
                best.export(form, paths=paths, D=D)
            assert {fault.message.split()[0] for fault in caught.value.faults or [caught.value]} == refused
            assert "ignore_bounds" in str(caught.value)
        made = best.export(form, paths=paths, D=D, ignore_bounds=bool(refused))
        assert {one.split()[0] for one in made.notices if "and the mixture" in one} == told
        again = sm.Export.from_document(made.to_document())
        if refused:
            with pytest.raises(sm.DataError, match="and the mixture"):
                sm.export(again, form, paths=paths)
    assert outcomes == {(False, False), (False, True), (True, True)}


def _named(best: sm.Mixture, mask: np.ndarray) -> list[str]:
    return [name for name, one in zip(best.sources, mask.tolist(), strict=True) if one]


def test_the_trainers_own_limit_stays_within_the_mixture(found: dict[str, sm.Mixture]) -> None:
    """OLMo-core fails where a source repeats more: rounded up to hundredths, the limit would allow more than asked."""
    best = mixture(available=TOKENS, max_epochs=1.234)
    paths = {"language": list(TOKENS), "path": list(TOKENS), "available_tokens": list(TOKENS.values())}
    limits = {
        one["source_name"]: one["max_repetition_ratio"]
        for one in best.export("olmo-core", paths=paths).config["sources"]
    }
    assert limits["fi"] == 1.234
    far = best.export("olmo-core", paths=paths, D=2 * best.D, ignore_bounds=True).config["sources"]
    assert {one["source_name"]: one["max_repetition_ratio"] for one in far}["fi"] == pytest.approx(2.47)


def test_bounds_that_no_tokens_made_bind_nothing() -> None:
    """The usual four epochs, where the optimum knew no tokens: told, for it could not keep them."""
    best = mixture()
    made = best.export("json", available=dict.fromkeys(TOKENS, 1e9))
    assert any("and the mixture allows 4" in one for one in made.notices)


def test_a_point_of_a_frontier_keeps_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run: Run = runner(capsys)
    sm.frontier(FakeFit(), "1B", "100B", "en:rest", points=3, available=TOKENS, max_epochs=1).save("curve.json")
    mixture(available=TOKENS, max_epochs=1).save("best.json")
    for given in ("curve.json --point 1", "best.json"):
        same = run(f"export {given} --format json --json")
        assert same.code == 0, same.err
        assert same.document["available"][0] == 1e12
        refused = run(f"export {given} --format hf --mean-tokens 1 -D 300B")
        assert (refused.code, "and the mixture allows 1" in refused.err) == (1, True)
        assert "--ignore-bounds" in refused.err
        done = run(f"export {given} --format hf --mean-tokens 1 -D 300B --ignore-bounds")
        assert (done.code, "and the mixture allows 1" in done.err) == (0, True)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_languages_that_the_optimum_did_not_count_are_told_where_they_are_seen_often(scale: float) -> None:
    best = replace(mixture(), max_epochs=np.full(4, np.inf))
    tokens = {name: p * best.D / 4 / scale for name, p in zip(best.sources, best.p, strict=True) if p > 0}
    made = best.export("megatron", paths={"language": list(tokens), "path": list(tokens)}, available=tokens)
    told = [one for one in made.notices if "knew of no limit of tokens" in one]
    assert [f"{name} {4 * scale:.1f} times" in one for one in told for name in tokens] == [True] * (
        len(tokens) if scale > 1 else 0
    )
