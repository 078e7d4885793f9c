"""Black boxes: laws without symbols that learn by their own means, as rivals to compare with.

MARINER's form, the strongest published rival where runs are few: saturating gains of each source's epochs,

    L_j = phi_j + exp(c_j - sum_i alpha_ij (1 - exp(-(rho E_i)^kappa)) + sum_i beta_ij h_j(E_i)^2
                      - n_j log N - d_j log D)

with `h_j(E) = softplus(log(1 + E) - tau_j)` and all coefficients at least 0. A log does not say how many tokens a
source has, so that `E_i` is its ratio p_i: gains saturate as published, and harm is that of too much of one source. The
terms in N and D are added, so that runs of several budgets can be fitted together. Boosted
trees are the strongest published rival in range, without extrapolation or convexity.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Self

import numpy as np

from shapleymix.errors import FitError, UsageError
from shapleymix.laws.base import Law, Observations
from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.statistics import nonnegative

RATES = (1.0, 3.0, 10.0, 30.0)
POWERS = (0.4, 0.7, 1.0)
HARMLESS = np.inf  # a threshold that no ratio reaches
THRESHOLDS = (HARMLESS, 0.1, 0.4)
MARINER_RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)
FLOORS = (0.0, 0.5, 0.8, 0.9, 0.95)  # of a target's lowest loss
FOLDS = 5

Shape = tuple[float, float, float]
"""rho, kappa and tau: what the columns of the regression are made of."""

VALIDATION_SHARE = 0.2
ROUNDS = 2000
PATIENCE = 60


@dataclass(frozen=True)
class BlackBox(Law):
    """A law without symbols, that learns by its own means."""

    @classmethod
    def learn(cls, seen: Observations, groups: IntArray, seed: int) -> Self:
        """Learn from rows, of which those of one mixture have one number of `groups` (R,).

        Entries of weight zero must not be looked at.
        """
        raise NotImplementedError


def folds_of(groups: IntArray, most: int, seed: int) -> IntArray:
    """The fold (R,) of each row, for choosing hyperparameters: rows of one group stay together."""
    names, place = np.unique(groups, return_inverse=True)
    return np.random.default_rng(seed).permutation(len(names))[place] % min(most, len(names))


def merge_rows(seen: Observations, groups: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Rows of one mixture, N and D taken together: the first of each, their mean log losses and their weights, (G, K).

    A learner that counts rows then takes a row twice at half weight for one row.
    """
    alike = np.column_stack([groups, seen.p, seen.N, seen.D])
    _, first, place = np.unique(alike, axis=0, return_index=True, return_inverse=True)
    total, mean = np.zeros((2, len(first), seen.weight.shape[1]))
    np.add.at(total, place.ravel(), seen.weight)
    np.add.at(mean, place.ravel(), seen.weight * np.where(seen.weight > 0, seen.log_loss, 0.0))
    return first, mean / np.where(total > 0, total, 1.0), total


def choose_half_pooled(error: FloatArray) -> IntArray:
    """The best choice (K,) for each target by its own error (choices, K) and the mean over all targets, alike.

    A target alone tells little of its hyperparameters where runs are few; each counts in units of its best error.
    """
    relative = error / np.maximum(error.min(axis=0), 1e-300)
    return (relative + relative.mean(axis=1, keepdims=True)).argmin(axis=0)


def choose_pooled(error: FloatArray) -> int:
    """The best choice for all targets together, by their errors (choices, K) in units of each one's best."""
    return int((error / np.maximum(error.min(axis=0), 1e-300)).mean(axis=1).argmin())


@dataclass(frozen=True)
class Mariner(BlackBox):
    """Saturating gains and squared harm of each source, by non-negative ridge regression of `log(L - phi)`."""

    kind = "law/mariner"
    name = "mariner"
    reference = "MARINER (Marin, 2026), with ratios for epochs"
    assumption = "each source's gain saturates on its own; its shape and the floor are chosen by cross-validation"
    needs = ("mixture",)

    phi: FloatArray  # (K,)
    c: FloatArray  # (K,)
    rho: float
    kappa: float
    tau: FloatArray  # (K,) infinite without harm
    alpha: FloatArray  # (M, K)
    beta: FloatArray  # (M, K)
    n: FloatArray  # (K,)
    d: FloatArray  # (K,)

    def targets_count(self) -> int:
        return len(self.c)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        gain = gains(p, self.rho, self.kappa) @ self.alpha
        harm = np.einsum("rmk,mk->rk", harms(p[:, :, None], self.tau), self.beta)
        budget = np.log(N)[:, None] * self.n + np.log(D)[:, None] * self.d
        return self.phi + np.exp(self.c - gain + harm - budget)

    @classmethod
    def learn(cls, seen: Observations, groups: IntArray, seed: int) -> Self:
        """Two rounds of choice: rho and kappa, alike for all targets, without harm; then the rest a target."""
        rows = _Rows.of(seen, folds_of(groups, FOLDS, seed))
        plain = [(rho, kappa, HARMLESS) for rho, kappa in itertools.product(RATES, POWERS)]
        error = np.stack([rows.error(shape) for shape in plain])
        rho, kappa, _ = plain[choose_pooled(np.moveaxis(error, 1, -1).min(axis=(1, 2)))]
        shapes = [(rho, kappa, tau) for tau in THRESHOLDS]
        return cls(rho=rho, kappa=kappa, **rows.symbols(shapes))


def gains(ratios: FloatArray, rho: float, kappa: float) -> FloatArray:
    """`1 - exp(-(rho p)^kappa)`."""
    return -np.expm1(-((rho * ratios) ** kappa))


def harms(ratios: FloatArray, tau: FloatArray | float) -> FloatArray:
    """`softplus(log(1 + p) - tau)^2`, zero for an infinite tau."""
    return np.logaddexp(0.0, np.log1p(ratios) - tau) ** 2


@dataclass(frozen=True)
class _Rows:
    """What the regressions see: log budgets less their mean, losses, weights that sum to one a target, folds."""

    p: FloatArray  # (R, M)
    budget: FloatArray  # (R, 2) logarithms of N and D
    loss: FloatArray  # (R, K)
    weight: FloatArray  # (R, K)
    fold: IntArray  # (R,)
    lowest: FloatArray  # (K,)

    @classmethod
    def of(cls, seen: Observations, fold: IntArray) -> _Rows:
        share = seen.weight / seen.weight.sum(axis=0)
        loss = np.exp(seen.log_loss)
        lowest = np.where(seen.weight > 0, loss, np.inf).min(axis=0)
        return cls(seen.p, np.log(np.column_stack([seen.N, seen.D])), np.maximum(loss, lowest), share, fold, lowest)

    def columns(self, shape: Shape) -> FloatArray:
        """What the coefficients alpha, beta, n and d multiply, (R, P); the harm only where the shape has it."""
        rho, kappa, tau = shape
        harm = [] if tau == HARMLESS else [harms(self.p, tau)]
        return np.concatenate([-gains(self.p, rho, kappa), *harm, -self.budget], axis=1)

    def solve(self, columns: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (V, K, floors, ridges, P) and c (V, K, floors, ridges) under weights (V, R, K)."""
        share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        y = np.stack([np.log(self.loss - floor * self.lowest) for floor in FLOORS], axis=-1)  # (R, K, floors)
        center = np.einsum("vrk,rp->vkp", share, columns)
        level = np.einsum("vrk,rkf->vkf", share, y)
        weighted = share.swapaxes(1, 2)[..., None] * columns  # (V, K, R, P)
        gram = weighted.swapaxes(2, 3) @ columns - center[..., :, None] * center[..., None, :]
        right = np.einsum("vkrp,rkf->vkfp", weighted, y) - center[:, :, None, :] * level[..., None]
        ridge = np.tile(np.array(MARINER_RIDGES)[:, None], columns.shape[1])
        ridge[:, -2:] = 1e-9  # of the budgets' columns
        penalty = ridge[:, :, None] * np.eye(columns.shape[1])  # (ridges, P, P)
        shape = (*right.shape[:3], len(MARINER_RIDGES), columns.shape[1])
        every = np.broadcast_to(gram[:, :, None, None] + penalty, (*shape, shape[-1]))
        x = nonnegative(every, np.broadcast_to(right[..., None, :], shape))
        return x, level[..., None] - np.einsum("vkp,vkflp->vkfl", center, x)

    def error(self, shape: Shape) -> FloatArray:
        """Mean squared log error (K, floors, ridges) of the rows of each fold under the fit to the others."""
        columns = self.columns(shape)
        inside = np.arange(self.fold.max() + 1)[:, None] != self.fold
        x, c = self.solve(columns, self.weight * inside[..., None])
        out = np.zeros(c.shape[1:])
        for number, seen in enumerate(inside):
            rows = np.flatnonzero(~seen)
            logs = np.einsum("rp,kflp->rkfl", columns[rows], x[number]) + c[number]
            phi = np.multiply.outer(self.lowest, FLOORS)[..., None]
            miss = np.log(phi + np.exp(np.minimum(logs, 50.0))) - np.log(self.loss[rows])[..., None, None]
            out += (self.weight[rows][..., None, None] * miss**2).sum(axis=0)
        return out

    def symbols(self, shapes: list[Shape]) -> dict[str, FloatArray]:
        """The law's fields, fitted to all rows, each target with the shape, floor and ridge that err least."""
        error = np.stack([self.error(shape) for shape in shapes])  # (shapes, K, floors, ridges)
        flat = np.moveaxis(error, 1, -1)
        best = choose_half_pooled(flat.reshape(-1, flat.shape[-1]))
        shape, floor, ridge = np.unravel_index(best, flat.shape[:-1])  # (K,) each
        sources, targets = self.p.shape[1], len(self.lowest)
        (alpha, beta), (c, n, d) = np.zeros((2, sources, targets)), np.zeros((3, targets))
        for number in np.unique(shape).tolist():
            x, level = self.solve(self.columns(shapes[number]), self.weight[None])
            j = np.flatnonzero(shape == number)
            one = x[0, j, floor[j], ridge[j]].T  # (P, targets of this shape)
            alpha[:, j], (n[j], d[j]), c[j] = one[:sources], one[-2:], level[0, j, floor[j], ridge[j]]
            if len(one) > sources + 2:
                beta[:, j] = one[sources:-2]
        phi, tau = np.array(FLOORS)[floor] * self.lowest, np.array([tau for _, _, tau in shapes])[shape]
        return {"phi": phi, "c": c, "tau": tau, "alpha": alpha, "beta": beta, "n": n, "d": d}


@dataclass(frozen=True)
class BoostedTrees(BlackBox):
    """One LightGBM regression a target on (p, log N, log D), stopped early on mixtures that it was not trained on."""

    kind = "law/gbm"
    name = "gbm"
    reference = "RegMix (Liu et al. 2025), with an honest validation split"
    assumption = "none; it does not extrapolate"
    needs = ("mixture", "lightgbm")

    models: tuple[str, ...]

    def targets_count(self) -> int:
        return len(self.models)

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        features = np.column_stack([p, np.log(N), np.log(D)])
        return np.exp(np.stack([booster.predict(features) for booster in self._boosters], axis=1))

    @cached_property
    def _boosters(self) -> list[Any]:
        return [_lightgbm().Booster(model_str=text) for text in self.models]

    @classmethod
    def learn(cls, seen: Observations, groups: IntArray, seed: int) -> Self:
        names = np.unique(groups)
        shuffled = np.random.default_rng(seed).permutation(names)
        aside = np.isin(groups, shuffled[: max(1, int(VALIDATION_SHARE * len(names)))])
        rows, y, weight = merge_rows(seen, groups)
        features, aside = np.column_stack([seen.p, np.log(seen.N), np.log(seen.D)])[rows], aside[rows]
        return cls(tuple(_boost(features, y[:, j], weight[:, j], aside, seed) for j in range(y.shape[1])))


def _boost(features: FloatArray, y: FloatArray, weight: FloatArray, aside: BoolArray, seed: int) -> str:
    lightgbm = _lightgbm()
    learn, check = (weight > 0) & ~aside, (weight > 0) & aside
    if not check.any() or not learn.any():
        raise FitError("too few mixtures for boosted trees", hint="give more runs, or leave 'gbm' out")
    weight = weight / weight[weight > 0].mean()  # only shares matter, but to the trees' tie-breaks
    options = {
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
