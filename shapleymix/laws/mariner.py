"""The form of MARINER, the strongest published rival where runs are few: saturating gains of each source's epochs.

`L_j = phi_j + exp(c_j - sum_i alpha_ij (1 - exp(-(rho E_i)^kappa)) + sum_i beta_ij h_j(E_i)^2 - n_j log N - d_j log D)`
with `h_j(E) = softplus(log(1 + E) - tau_j)` and all coefficients at least 0. A log does not say how many tokens a
source has, so that `E_i` is its ratio p_i: gains saturate as published, and harm is that of too much of one source.
The terms in N and D are added, so that runs of several budgets can be fitted together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np

from shapleymix.laws.black_box import BlackBox, folds_of, half_pooled, pooled
from shapleymix.laws.nonnegative import nonnegative
from shapleymix.records import FloatArray, IntArray

RATES = (1.0, 3.0, 10.0, 30.0)
POWERS = (0.4, 0.7, 1.0)
HARMLESS = np.inf  # a threshold that no ratio reaches
THRESHOLDS = (HARMLESS, 0.1, 0.4)
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2)
FLOORS = (0.0, 0.5, 0.8, 0.9, 0.95)  # of a target's lowest loss
FOLDS = 5

Shape = tuple[float, float, float]
"""rho, kappa and tau: what the columns of the regression are made of."""


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
        """Two rounds of choice: rho and kappa, alike for all targets, without harm; then the rest a target."""
        rows = _Rows.of(p, N, D, log_loss, weight, folds_of(groups, FOLDS, seed))
        plain = [(rho, kappa, HARMLESS) for rho, kappa in itertools.product(RATES, POWERS)]
        error = np.stack([rows.error(shape) for shape in plain])
        rho, kappa, _ = plain[pooled(np.moveaxis(error, 1, -1).min(axis=(1, 2)))]
        shapes = [(rho, kappa, tau) for tau in THRESHOLDS]
        return cls(rho=rho, kappa=kappa, **rows.symbols(shapes, *rows.chosen(shapes)))


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
    def of(
        cls, p: FloatArray, N: FloatArray, D: FloatArray, log_loss: FloatArray, weight: FloatArray, fold: IntArray
    ) -> _Rows:
        share = weight / weight.sum(axis=0)
        loss = np.exp(log_loss)
        lowest = np.where(weight > 0, loss, np.inf).min(axis=0)
        return cls(p, np.log(np.stack([N, D], axis=1)), np.maximum(loss, lowest), share, fold, lowest)

    def columns(self, shape: Shape) -> FloatArray:
        """What the coefficients alpha, beta, n and d multiply, (R, P); the harm only where the shape has it."""
        rho, kappa, tau = shape
        harm = [] if tau == HARMLESS else [harms(self.p, tau)]
        return np.concatenate([-gains(self.p, rho, kappa), *harm, -self.budget], axis=1)

    def ridges(self, columns: int) -> FloatArray:
        """(ridges, P) the ridge of every column; the budgets' own is next to nothing."""
        ridge = np.tile(np.array(RIDGES)[:, None], columns)
        ridge[:, -2:] = 1e-9
        return ridge

    def logs(self, floor: float) -> FloatArray:
        """`log(L - phi)`, (R, K)."""
        return np.log(self.loss - floor * self.lowest)

    def solve(self, columns: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (V, K, floors, ridges, P) and c (V, K, floors, ridges) under weights (V, R, K)."""
        share = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        y = np.stack([self.logs(floor) for floor in FLOORS], axis=-1)  # (R, K, floors)
        center = np.einsum("vrk,rp->vkp", share, columns)
        level = np.einsum("vrk,rkf->vkf", share, y)
        weighted = share.swapaxes(1, 2)[..., None] * columns  # (V, K, R, P)
        gram = weighted.swapaxes(2, 3) @ columns - center[..., :, None] * center[..., None, :]
        right = np.einsum("vkrp,rkf->vkfp", weighted, y) - center[:, :, None, :] * level[..., None]
        penalty = self.ridges(columns.shape[1])[:, :, None] * np.eye(columns.shape[1])  # (ridges, P, P)
        shape = (*right.shape[:3], len(RIDGES), columns.shape[1])
        every = np.broadcast_to(gram[:, :, None, None] + penalty, (*shape, shape[-1]))
        flat = nonnegative(
            every.reshape(-1, *every.shape[-2:]), np.broadcast_to(right[..., None, :], shape).reshape(-1, shape[-1])
        )
        x = flat.reshape(shape)
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

    def chosen(self, shapes: list[Shape]) -> tuple[IntArray, IntArray, IntArray]:
        """Which shape, ridge and floor each target takes, three arrays (K,)."""
        error = np.stack([self.error(shape) for shape in shapes])  # (shapes, K, floors, ridges)
        flat = np.moveaxis(error, 1, -1)
        best = half_pooled(flat.reshape(-1, flat.shape[-1]))
        shape, floor, ridge = np.unravel_index(best, flat.shape[:-1])
        return shape, ridge, floor

    def symbols(self, shapes: list[Shape], shape: IntArray, ridge: IntArray, floor: IntArray) -> dict[str, FloatArray]:
        """The law's fields, fitted to all rows, each target with its own choice."""
        sources, targets = self.p.shape[1], len(self.lowest)
        found = {name: np.zeros(targets) for name in ("c", "n", "d")}
        pairs = {name: np.zeros((sources, targets)) for name in ("alpha", "beta")}
        for number in np.unique(shape).tolist():
            x, c = self.solve(self.columns(shapes[number]), self.weight[None])
            for j in np.flatnonzero(shape == number).tolist():
                one = x[0, j, floor[j], ridge[j]]
                pairs["alpha"][:, j] = one[:sources]
                if len(one) > sources + 2:
                    pairs["beta"][:, j] = one[sources : 2 * sources]
                found["c"][j], (found["n"][j], found["d"][j]) = c[0, j, floor[j], ridge[j]], one[-2:]
        phi = np.array(FLOORS)[floor] * self.lowest
        return {**found, **pairs, "phi": phi, "tau": np.array([tau for _, _, tau in shapes])[shape]}
