"""The paper's closed forms, as printed and corrected, and the exact solution where no bound binds: for reproduction.

All are for Theta linear in p (s = 1) and as many sources as targets, in the same order. Notation: a_j = w_j C_j is
the weighted budget part of target j, phi the transfer (row = source), r_j = phi_jj its diagonal, E = phi - I. The
printed first-order correction has the wrong sign.

>>> pieces = fit.at(N, D).pieces
>>> diagonal(w * pieces.scale, pieces.gamma, pieces.phi)
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import root_scalar

from shapleymix.errors import SolveError
from shapleymix.records import FloatArray

WIDE = (-600.0, 600.0)
"""Log prices between which that of the interior solution lies."""


def diagonal(a: FloatArray, gamma: FloatArray, phi: FloatArray) -> FloatArray:
    """ShapleyLaw paper, eq. closed_form: own transfer only, normalised afterwards (exact for equal gammas)."""
    r = np.diagonal(phi)
    share = (a * gamma * r**-gamma) ** (1 / (gamma + 1))
    return share / share.sum()


def first_order_printed(a: FloatArray, gamma: FloatArray, phi: FloatArray) -> FloatArray:
    """ShapleyLaw paper, eq. first_order, as printed: languages that give more get less. The sign is wrong."""
    given = phi.sum(axis=1) - np.diagonal(phi)
    return _mixture(diagonal(a, gamma, phi) * (1 - given / (gamma + 1)))


def first_order(a: FloatArray, gamma: FloatArray, phi: FloatArray) -> FloatArray:
    """First order in E = phi - I around the diagonal solution: givers get more, receivers less.

    p_i ~ p0_i (1 + sum_{j != i} E_ij / (gamma_i + 1)) - sum_j E_ji p0_j, then normalised.
    """
    p0 = diagonal(a, gamma, phi)
    E = phi - np.diag(np.diagonal(phi))
    return _mixture(p0 * (1 + E.sum(axis=1) / (gamma + 1)) - E.T @ p0)


def interior(a: FloatArray, gamma: FloatArray, phi: FloatArray) -> FloatArray:
    """The exact optimum where no ratio is at a bound: one root in one dimension, no iteration over p.

    With c = phi^-1 1 > 0: Theta_j = (a_j gamma_j / (price c_j))^(1 / (gamma_j + 1)), c . Theta = 1, and
    p = phi^-T Theta. Ratios may come out negative; then a bound binds and this is not the optimum.

    Raises
    ------
    SolveError
        If phi is singular or c is not positive.
    """
    try:
        c = np.linalg.solve(phi, np.ones(len(phi)))
    except np.linalg.LinAlgError as error:
        raise SolveError("the transfer matrix is singular: no interior solution", hint="use `optimize`") from error
    if not (c > 0).all():
        raise SolveError("phi^-1 1 is not positive: no interior solution", hint="use `optimize`")

    def theta(log_price: float) -> FloatArray:
        return (a * gamma / c * np.exp(-log_price)) ** (1 / (gamma + 1))

    found = root_scalar(lambda log_price: float(c @ theta(log_price)) - 1, bracket=WIDE, xtol=1e-15, maxiter=1000)
    return np.asarray(np.linalg.solve(phi.T, theta(found.root)), dtype=np.float64)


def _mixture(p: FloatArray) -> FloatArray:
    """Renormalised; a first-order formula may go below zero, where the ratio is zero."""
    kept = np.maximum(p, 0.0)
    return kept / kept.sum()
