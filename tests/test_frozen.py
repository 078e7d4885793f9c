"""Numbers that no change of the code may move: fits, predictions and optima of a dozen logs (rtol 1e-6).

They were written before the library was rebuilt; `python tests/test_frozen.py` writes them anew, which is only right
when a change is meant to move numbers and its commit says which and why.
"""

import functools
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import shapleymix as sm

HERE = Path(__file__).parent
FROZEN = HERE / "frozen.json"
OURS, SHARED = HERE.parent / "fixtures", HERE.parents[1] / "shared" / "data"
FIVE, GAME, STUDY = OURS / "multilingual5_runs.csv", OURS / "multilingual5_coalitions.csv", OURS / "study/log.csv"
BARE = {"bootstrap": 0}

CASES: dict[str, tuple[list[Path], dict[str, object]]] = {
    "five languages": ([FIVE], {"law": "learned-base"}),
    "five languages, two regimes": ([FIVE, GAME], {"law": "learned-base"}),
    "five languages, exact values": ([FIVE], {"law": "shapley-tempered"}),
    "five languages, as printed": ([FIVE], {"law": "shapley"}),
    "five languages, effective data": ([FIVE], {"law": "effective-data"}),
    "five languages, exponential": ([FIVE], {"law": "exponential"}),
    "six languages": ([STUDY], {"law": "learned-base"}),
    "six languages, additive": ([STUDY], {"law": "additive"}),
    "repeated tokens": ([OURS / "repetition_runs.csv"], {"law": "learned-base"}),
    "5Mix": ([SHARED / f"mixlaws_5mix_{size}.csv" for size in ("70m", "160m", "305m")], {"law": "learned-base"}),
    "RedPajama": (
        [SHARED / f"mixlaws_redpajama_{size}.csv" for size in ("70m", "160m", "305m")],
        {"law": "learned-base"},
    ),
    "olmix": ([SHARED / "olmix_dclm_30m.csv"], {"law": "learned-base"}),
    "RegMix": ([SHARED / "regmix_1m_train.csv"], {"law": "learned-base"}),
    "Chinchilla": ([SHARED / "chinchilla_245.csv"], {"law": "chinchilla"}),
}


def measured(name: str) -> dict[str, object]:
    """The numbers of one case: held-out error, predictions at fixed points, the optimum with its bound."""
    paths, keywords = CASES[name]
    log = sm.read_runs([str(path) for path in paths])
    log = log.select(np.arange(len(log)) % 4 == 0) if name == "RegMix" else log  # all of its runs take half a minute
    matrix = _exact_matrix() if str(keywords["law"]).startswith("shapley") else None
    fit = sm.fit(log, transfer=matrix, **{**BARE, **keywords})
    N, D = float(log.N.max()), float(log.D.max())
    found: dict[str, object] = {"PE": None if fit.held_out is None else fit.held_out.mean["PE"]}
    p = _points(len(log.sources))
    found["losses"] = [fit.predict(p, N * n, D * d).losses.tolist() for n, d in ((1, 1), (4, 2))]
    if len(log.sources) > 1:
        mix = sm.optimize(fit, N, D, caps=0.6)
        found |= {"p": mix.p.tolist(), "objective": mix.objective, "bound": mix.lower_bound}
    return found


def _points(sources: int) -> np.ndarray:
    """Five mixtures with all sources, and the even one."""
    if sources < 2:
        return np.ones((1, sources))
    drawn = np.random.default_rng(7).dirichlet(np.full(sources, 2.0), size=5)
    return np.vstack([np.full((1, sources), 1 / sources), drawn])


@functools.cache
def _exact_matrix() -> sm.TransferMatrix:
    return sm.shapley_values(sm.read_runs(str(GAME)))


def _frozen() -> Mapping[str, dict[str, object]]:
    return json.loads(FROZEN.read_text())


@pytest.mark.parametrize("name", CASES)
def test_no_number_moves(name: str) -> None:
    if not all(path.exists() for path in CASES[name][0]):
        pytest.skip("the published logs are not at hand")
    before, now = _frozen()[name], measured(name)
    assert before.keys() == now.keys()
    for key, value in before.items():
        if key == "PE":
            np.testing.assert_allclose(now[key], value, rtol=1e-2)
        elif key == "p":  # where the optimum is flat, its ratios are known less well than its objective
            np.testing.assert_allclose(now[key], value, atol=1e-4)
        else:
            np.testing.assert_allclose(now[key], value, rtol=1e-6)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        FROZEN.write_text(json.dumps({name: measured(name) for name in CASES}, indent=1) + "\n")
