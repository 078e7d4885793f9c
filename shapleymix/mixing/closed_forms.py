"""The paper's closed forms, as printed and corrected, and the exact solution where no bound binds.

All are for Theta linear in p (s = 1) and as many sources as targets, in the same order. Notation: a_j = w_j C_j is
the weighted budget part of target j, phi the transfer (row = source), r_j = phi_jj its diagonal, E = phi - I.
Against `exact` (the engine) they may be compared in distance and in loss; the printed first-order correction has the
wrong sign and is offered for reproduction only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import root_scalar

from shapleymix.downstream.pieces import Scored
from shapleymix.errors import SolveError, UsageError, did_you_mean
from shapleymix.laws.terms import PowerTerms, Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.records import FloatArray

EXACT = "exact"
METHODS = (EXACT, "interior", "closed-form", "first-order", "first-order-printed", "clipped")


def closed_form(method: str, terms: Terms, w: FloatArray, constraints: Constraints) -> FloatArray:
    """The mixture (M,) of one of `METHODS` other than `exact`.

    Raises
    ------
    UsageError
        If the method is unknown.
    SolveError
        If the law, or the bounds, are not those that the formula is for.
    """
    if method not in METHODS[1:]:
        raise UsageError(f"unknown method {method!r}", hint=did_you_mean(method, METHODS))
    a, gamma, phi = _ingredients(method, terms, w)
    if method == "interior":
        return _require_within(interior(a, gamma, phi), constraints)
    if method == "closed-form":
        return diagonal(a, gamma, phi)
    if method == "first-order":
        return first_order(a, gamma, phi)
    if method == "first-order-printed":
        return first_order_printed(a, gamma, phi)
    return clipped(diagonal(a, gamma, phi), constraints.upper)


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
        raise SolveError("the transfer matrix is singular: no interior solution", hint=_USE_EXACT) from error
    if not (c > 0).all():
        raise SolveError("phi^-1 1 is not positive: no interior solution", hint=_USE_EXACT)

    def theta(log_price: float) -> FloatArray:
        return (a * gamma / c * np.exp(-log_price)) ** (1 / (gamma + 1))

    optimal = theta(_root(lambda log_price: float(c @ theta(log_price)) - 1))
    return np.asarray(np.linalg.solve(phi.T, optimal), dtype=np.float64)


def clipped(p: FloatArray, upper: FloatArray) -> FloatArray:
    """ShapleyLaw paper, "Clipped closed-form approximation": languages over their cap are set to it, and the rest
    share what remains in proportion, until none is over.

    Raises
    ------
    SolveError
        If the rest has nothing to share in proportion to.
    """
    over = np.zeros(len(p), dtype=bool)
    current = p
    for _ in range(len(p)):
        more = (current > upper * (1 + 1e-15)) & ~over
        if not more.any():
            return current
        over |= more
        rest = 1 - upper[over].sum()
        free = p[~over].sum()
        if rest > 1e-12 and free <= 0:
            raise SolveError("clipping left mass but no language to take it", hint=_USE_EXACT)
        current = np.where(over, upper, p * (rest / free if free > 0 else 0.0))
    return current


_USE_EXACT = "use method 'exact'"


def _ingredients(method: str, terms: Terms, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    if isinstance(terms, Scored):
        raise SolveError(f"method {method!r} is for losses, not for scores", hint=_USE_EXACT)
    if not isinstance(terms, PowerTerms) or (terms.s is not None and np.any(terms.s != 1)):
        raise SolveError(f"method {method!r} is for laws with Theta linear in p", hint=_USE_EXACT)
    if terms.base is not None:
        raise SolveError(f"method {method!r} is for a Theta without a base", hint=_USE_EXACT)
    if terms.unique is not None:
        raise SolveError(
            f"method {method!r} takes every token for a fresh one",
            hint=f"leave out the available tokens, or {_USE_EXACT}",
        )
    a = np.asarray(w * terms.a, dtype=float)
    if terms.n_sources != terms.n_targets:
        sizes = f"{terms.n_sources} sources and {terms.n_targets} targets"
        raise SolveError(f"method {method!r} needs a square transfer matrix, found {sizes}", hint=_USE_EXACT)
    if not ((a * terms.gamma) > 0).all() or not (np.diagonal(terms.phi) > 0).all():
        raise SolveError(f"method {method!r} needs positive weights, gammas and own transfers", hint=_USE_EXACT)
    return a, terms.gamma, terms.phi


def _require_within(p: FloatArray, constraints: Constraints) -> FloatArray:
    low, high = constraints.lower - 1e-12, constraints.upper + 1e-12
    if not ((p >= low) & (p <= high)).all():
        worst = constraints.sources[int(np.argmax(np.maximum(low - p, p - high)))]
        raise SolveError(f"the interior solution breaks the bound of {worst!r}: a bound binds", hint=_USE_EXACT)
    return np.clip(p, constraints.lower, constraints.upper)


def _mixture(p: FloatArray) -> FloatArray:
    """Renormalised; a first-order formula may go below zero, where the ratio is zero."""
    kept = np.maximum(p, 0.0)
    if not kept.any():
        raise SolveError("the first-order formula leaves no positive ratio", hint=_USE_EXACT)
    return kept / kept.sum()


def _root(excess: Callable[[float], float]) -> float:
    """The root of a decreasing function of log price."""
    low, high = -1.0, 1.0
    while excess(low) < 0:
        low *= 2
    while excess(high) > 0:
        high *= 2
    return root_scalar(excess, bracket=(low, high), method="brentq", xtol=1e-15).root
