"""Log-linear slopes of the losses in the mixture: where the search for coefficients begins that the log must tell."""

from __future__ import annotations

import numpy as np

from shapleymix.laws.base import Observations
from shapleymix.records import FloatArray

RIDGE = 1e-4


def mixture_slopes(observed: Observations) -> FloatArray:
    """Slopes t (M, K) of `log L_j ~ c + t . p - n log N - d log D`, by weighted ridge regression; up to a constant."""
    budget = np.stack([np.log(observed.N), np.log(observed.D)], axis=1)
    columns = np.concatenate([observed.p, budget], axis=1)
    weight = observed.weight / np.maximum(observed.weight.sum(axis=0), 1e-300)
    center = weight.T @ columns  # (K, M + 2)
    level = (weight * observed.log_loss).sum(axis=0)
    gram = np.einsum("rk,rm,rn->kmn", weight, columns, columns, optimize=True)
    gram -= center[:, :, None] * center[:, None, :]
    right = (weight * observed.log_loss).T @ columns - level[:, None] * center
    ridge = RIDGE * np.maximum(np.einsum("kmm->k", gram), 1e-12) / columns.shape[1]
    solved = np.linalg.solve(gram + ridge[:, None, None] * np.eye(columns.shape[1]), right[..., None])[..., 0]
    return solved[:, : observed.p.shape[1]].T


def relative_worth(observed: Observations, widths: tuple[float, ...], least: float) -> FloatArray:
    """Coefficients (S, M, K) of 1 for the best source and less for others, by how much worse their slopes are.

    `exp(-slope / width)`, for each width S, and no less than `least`.
    """
    slopes = mixture_slopes(observed)
    slopes = slopes - slopes.min(axis=0)
    return np.maximum(np.exp(-slopes / np.array(widths)[:, None, None]), least)
