"""Products and powers in which zero wins over infinity, over sources (M) and targets (K) on any leading axes."""

from __future__ import annotations

import numpy as np

from shapleymix.records import FloatArray


def weigh_rows(p: FloatArray, matrix: FloatArray) -> FloatArray:
    """sum_i p_i matrix_ij over broadcast leading axes."""
    if matrix.ndim == 2:
        return p @ matrix
    return (p[..., None, :] @ matrix)[..., 0, :]


def weigh(matrix: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_j matrix_ij weights_j -> (..., M), where 0 times infinity is 0."""
    with np.errstate(invalid="ignore"):
        total = (matrix @ weights[..., None])[..., 0]
    if np.isfinite(total).all():
        return total
    return np.sum(product(matrix, weights[..., None, :]), axis=-1)


def dot(values: FloatArray, w: FloatArray) -> FloatArray:
    """sum_j w_j values_j over the last axis."""
    return np.sum(product(w, values), axis=-1)


def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Product in which zero wins over infinity."""
    with np.errstate(invalid="ignore", over="ignore"):
        raw = np.multiply(left, right)
    if np.isfinite(raw).all():
        return raw
    return np.where((np.asarray(left) == 0) | (np.asarray(right) == 0), 0.0, raw)


def inverse_power(theta: FloatArray, exponent: FloatArray) -> FloatArray:
    """theta^(-exponent): +inf at theta = 0, or a rounding below, for a positive exponent; 1 for exponent zero."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.power(np.maximum(theta, 0.0), -np.asarray(exponent))


def powers(p: FloatArray, s: FloatArray) -> FloatArray:
    """p_i^s_ij."""
    return np.power(p[..., None], s)


def concave(p: FloatArray, phi: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theta (..., K), d Theta_j / d p_i and its second derivative (..., M, K) for concave powers."""
    column = p[..., None]
    part = phi * np.power(column, s)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = s * part / column
        bend = (s - 1) * slope / column
    if not np.all(p > 0):
        edge = np.where(phi > 0, np.where(s < 1, np.inf, phi), 0.0)
        slope = np.where(column > 0, slope, edge)
        bend = np.where(column > 0, bend, np.where((phi > 0) & (s < 1), -np.inf, 0.0))
    return np.sum(part, axis=-2), slope, bend
