"""A LightGBM black box: the strongest published rival in range, no extrapolation, no convexity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Protocol, Self

import numpy as np

from shapleymix.errors import FitError, UsageError
from shapleymix.laws.black_box import BlackBox, merged
from shapleymix.records import BoolArray, FloatArray, IntArray

VALIDATION_SHARE = 0.2
ROUNDS = 2000
PATIENCE = 60


class Booster(Protocol):
    """What is used of a trained LightGBM model."""

    def predict(self, data: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class BoostedTrees(BlackBox):
    """One LightGBM regression a target on (p, log N, log D), stopped early on mixtures that it was not trained on."""

    kind = "law/gbm"
    name = "gbm"
    reference = "RegMix (Liu et al. 2025), with an honest validation split"
    assumption = "none; it does not extrapolate"
    needs = ("mixture",)

    models: tuple[str, ...]

    def targets_count(self) -> int:
        return len(self.models)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        features = _features(p, N, D)
        return np.exp(np.stack([booster.predict(features) for booster in self._boosters], axis=1))

    @cached_property
    def _boosters(self) -> list[Booster]:
        return [_lightgbm().Booster(model_str=text) for text in self.models]

    @classmethod
    def learn(
        cls,
        p: FloatArray,
        N: FloatArray,
        D: FloatArray,
        log_loss: FloatArray,
        weight: FloatArray,
        groups: IntArray,
        seed: int,
    ) -> Self:
        names = np.unique(groups)
        drawn = np.random.default_rng(seed).permutation(names)
        aside = np.isin(groups, drawn[: max(1, int(VALIDATION_SHARE * len(names)))])
        rows, y, weight = merged(p, N, D, log_loss, weight, groups)
        features, aside = _features(p, N, D)[rows], aside[rows]
        return cls(tuple(_boost(features, y[:, j], weight[:, j], aside, seed) for j in range(y.shape[1])))


def _features(p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
    return np.concatenate([p, np.log(N)[:, None], np.log(D)[:, None]], axis=1)


def _boost(features: FloatArray, y: FloatArray, weight: FloatArray, aside: BoolArray, seed: int) -> str:
    lightgbm = _lightgbm()
    learn, check = (weight > 0) & ~aside, (weight > 0) & aside
    if not check.any() or not learn.any():
        raise FitError("too few mixtures for boosted trees", hint="give more runs, or leave 'gbm' out")
    weight = weight / weight[weight > 0].mean()  # only shares matter, but to the trees' tie-breaks
    options = {
        "objective": "regression",
        "learning_rate": 0.05,
        "num_leaves": 15,
        "min_data_in_leaf": 3,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,  # logs are small: threads cost more than they save, many times more on a busy machine
        "verbosity": -1,
    }
    booster = lightgbm.train(
        options,
        lightgbm.Dataset(features[learn], y[learn], weight=weight[learn]),
        num_boost_round=ROUNDS,
        valid_sets=[lightgbm.Dataset(features[check], y[check], weight=weight[check])],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    return str(booster.model_to_string())


def _lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError("law 'gbm' needs LightGBM", hint="pip install 'lightgbm>=4.3'") from error
    return lightgbm
