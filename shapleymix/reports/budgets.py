"""A law's convex pieces at any budget: what of them is constant, what is a power of N, and what one of D.

A page has no Python: it is given numbers from which the pieces at N and D are summed up,

    floor_j = fixed_j + size_j (N / N0)^-alpha_j + data_j (D / D0)^-beta_j

and the scale alike. Where the core `E + A / N^alpha + B / D^beta` stands in a law is asked of the law itself, which is
evaluated without one or another of its parts; and the sum is held against the law at other budgets, so that a law of
another form is found out, and stays at its budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.files import Json
from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.terms import ExponentialTerms, PowerTerms, Terms
from shapleymix.records import FloatArray

ELSEWHERE = ((3.0, 1.0), (1.0, 5.0), (0.2, 40.0))
"""Factors of N and D at which the sum is held against the law."""
ALIKE = 1e-9


@dataclass(frozen=True)
class Parts:
    """A number a target (K,) at a budget: what stays, what falls as N grows, and what falls as D grows."""

    fixed: FloatArray
    size: FloatArray
    data: FloatArray

    def at(self, by_size: FloatArray, by_data: FloatArray) -> FloatArray:
        """The sum where the powers of N and D are by factors (K,) other than at the parts' own budget."""
        return self.fixed + self.size * by_size + self.data * by_data

    def to_document(self) -> dict[str, Json]:
        """As JSON."""
        return {"fixed": self.fixed.tolist(), "size": self.size.tolist(), "data": self.data.tolist()}


@dataclass(frozen=True)
class Budgeted:
    """A law's convex pieces at every budget.

    Attributes
    ----------
    name : str
        Of the law.
    terms : Terms
        The pieces at N and D.
    N, D : float
        The budget of the parts.
    floor, scale : Parts
        Loss that no mixture removes, and the scale of what it can.
    alpha, beta : array (K,)
        Exponents of N and of D.
    moves : bool
        Whether the parts tell the law at other budgets, too.
    """

    name: str
    terms: Terms
    N: float
    D: float
    floor: Parts
    scale: Parts
    alpha: FloatArray
    beta: FloatArray
    moves: bool

    def to_document(self) -> dict[str, Json]:
        """As JSON, the matrices as a row a source."""
        terms = self.terms
        power = isinstance(terms, PowerTerms)
        zeros, K = np.zeros(terms.n_targets), terms.n_targets
        return {
            "name": self.name,
            "form": "power" if power else "exponential",
            "N": self.N,
            "D": self.D,
            "floor": self.floor.to_document(),
            "scale": self.scale.to_document(),
            "alpha": self.alpha.tolist(),
            "beta": self.beta.tolist(),
            "gamma": np.broadcast_to(terms.gamma, K).tolist() if isinstance(terms, PowerTerms) else zeros.tolist(),
            "base": (zeros if not isinstance(terms, PowerTerms) or terms.base is None else terms.base).tolist(),
            "matrix": matrix_of(terms).tolist(),
            "s": terms.s.tolist() if isinstance(terms, PowerTerms) and terms.s is not None else None,
        }


def budgeted(law: Law, N: float, D: float) -> Budgeted:
    """The convex pieces of a law at every budget.

    Parameters
    ----------
    law : Law
        The law.
    N, D : float
        A budget, at which the pieces are exact.

    Raises
    ------
    SolveError
        If the law has no convex pieces, or none of a form that is known here.
    """
    terms = law.terms(N, D)
    if not isinstance(terms, (PowerTerms, ExponentialTerms)):
        hint = "give what `optimize` found, or report a fit of another law"
        raise SolveError(f"a page cannot solve law {law.name!r}: its pieces are of a form of its own", hint=hint)
    found = _parted(law, terms, N, D) if isinstance(law, CoreLaw) else None
    if found is not None and all(_agrees(found, law, N * n, D * d) for n, d in ELSEWHERE):
        return found
    none = np.zeros(terms.n_targets)
    floor, scale = (Parts(np.broadcast_to(part, none.shape), none, none) for part in _linear(terms))
    return Budgeted(law.name, terms, N, D, floor, scale, none, none, moves=False)


def matrix_of(terms: Terms) -> FloatArray:
    """What a source (M) does for a target (K) in the pieces of a law."""
    assert isinstance(terms, (PowerTerms, ExponentialTerms))
    return terms.phi if isinstance(terms, PowerTerms) else terms.t


def _linear(terms: Terms) -> tuple[FloatArray, FloatArray]:
    """Floor and scale (K,), the numbers of the pieces that a budget may change."""
    assert isinstance(terms, (PowerTerms, ExponentialTerms))
    return np.asarray(terms.floor), np.asarray(terms.a if isinstance(terms, PowerTerms) else terms.k)


def _parted(law: CoreLaw, terms: Terms, N: float, D: float) -> Budgeted | None:
    """The parts by what the pieces are where the core holds one of its summands alone."""
    nothing = np.zeros_like(law.E)

    def linear(**alone: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _linear(law.replaced(**{"E": nothing, "A": nothing, "B": nothing, **alone}).terms(N, D))

    none, fixed, size, data = (linear(**part) for part in ({}, {"E": law.E}, {"A": law.A}, {"B": law.B}))
    floor, scale = (Parts(fixed[i], size[i] - none[i], data[i] - none[i]) for i in (0, 1))
    found = Budgeted(law.name, terms, N, D, floor, scale, law.alpha, law.beta, moves=True)
    return found if _agrees(found, law, N, D) else None


def _agrees(found: Budgeted, law: Law, N: float, D: float) -> bool:
    """Whether the parts give the law's own pieces at a budget."""
    by_size, by_data = (N / found.N) ** -found.alpha, (D / found.D) ** -found.beta
    try:
        there = law.terms(N, D)
    except SolveError:  # overflows there
        return True
    ours = (found.floor.at(by_size, by_data), found.scale.at(by_size, by_data), *_shape(found.terms))
    theirs = (*_linear(there), *_shape(there))
    size = max(float(np.abs(value).max(initial=0.0)) for value in _linear(there))
    return all(np.allclose(one, other, rtol=ALIKE, atol=ALIKE * size) for one, other in zip(ours, theirs, strict=True))


def _shape(terms: Terms) -> tuple[FloatArray, ...]:
    """What no budget may change."""
    if isinstance(terms, PowerTerms):
        s = np.ones(1) if terms.s is None else terms.s
        return terms.gamma, terms.phi, s, np.zeros(1) if terms.base is None else terms.base
    return (matrix_of(terms),)
