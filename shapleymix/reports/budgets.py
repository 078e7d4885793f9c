"""A law's convex pieces at any budget: what of them is constant, what is a power of N, and what one of D.

A page has no Python: it is given numbers from which the pieces at N and D are summed up,

    floor_j = fixed_j + size_j (N / N0)^-alpha_j + data_j (D / D0)^-beta_j

and the scale alike; own data's help may grow as the scale falls, as it does under `learned-base`. Where the core
`E + A / N^alpha + B / D^beta` stands in a law is asked of the law itself, which is evaluated without one or another of
its parts; and the sum is held against the law at other budgets, so that a law of another form is found out, and stays
at its budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.files import Json
from shapleymix.laws import Law
from shapleymix.laws.core import CoreLaw
from shapleymix.laws.growth import FURTHEST, LEAST, MOST
from shapleymix.laws.learned_base import LearnedBase
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
class OwnGrowth:
    """How the help of own data grows as the scale C falls, while an even mixture stays where it is.

    At any budget it is by a factor g with `log g = start + zeta log(C(N, D0) / C(N, D)) - eta log C(N, D0)`, no further
    than `FURTHEST`, D0 being the fewest tokens; and from the budget of the parts on by a factor f, the quotient of two
    of these, of the own sources' coefficients, and of all Theta by `(1 + help) / (1 + help f)`.

    Attributes
    ----------
    own : array (M, K)
        1 for a target's own source.
    eta, zeta, start : array (K,)
        See above.
    fewest : array (K,)
        What the part of D is multiplied by at the fewest tokens.
    help : array (K,)
        Own data's help at an even ratio, at the budget of the parts.
    """

    own: FloatArray
    eta: FloatArray
    zeta: FloatArray
    start: FloatArray
    fewest: FloatArray
    help: FloatArray

    @classmethod
    def of(cls, law: Law, N: float, D: float) -> OwnGrowth | None:
        """That of a law from a budget on; None where nothing grows."""
        if not isinstance(law, LearnedBase) or not (law.eta.any() or law.zeta.any()):
            return None
        there = law.growth(np.array([N]), np.array([D]))
        eta, zeta = law.eta / law.gamma, law.zeta / law.gamma
        fixed, by_size, by_data = law.pieces_by_logs(np.log(law.first_N), np.log(law.first_D))
        start, fewest = eta * _log((fixed + by_size + by_data)[0]), (law.first_D / D) ** -law.beta
        return cls(law.own, eta, zeta, start, fewest, (there.help * there.factor)[0])

    def log_factor(self, scale: Parts, by_size: FloatArray, by_data: FloatArray) -> FloatArray:
        """Of own data's help (K,), log g where the powers of N and D are by factors (K,) other than at the parts'."""
        larger, there = (_log(scale.at(by_size, by)) for by in (self.fewest, by_data))
        return np.clip(self.start - self.eta * larger + self.zeta * (larger - there), -FURTHEST, FURTHEST)

    def factors(self, scale: Parts, by_size: FloatArray, by_data: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The factors of own coefficients and of all Theta (K,)."""
        here = np.ones_like(self.eta)
        f = np.exp(self.log_factor(scale, by_size, by_data) - self.log_factor(scale, here, here))
        return f, (1 + self.help) / (1 + self.help * f)

    def to_document(self) -> dict[str, Json]:
        """As JSON; `own` is the place of each target's own source, -1 where it has none."""
        own = np.where(self.own.any(axis=0), self.own.argmax(axis=0), -1)
        parts = {"own": own, "eta": self.eta, "zeta": self.zeta, "start": self.start, "fewest": self.fewest}
        return {name: value.tolist() for name, value in (parts | {"help": self.help}).items()}


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
    growth : OwnGrowth, optional
        How the help of own data grows; None where it does not.
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
    growth: OwnGrowth | None = None

    def at(self, N: float, D: float) -> tuple[FloatArray, ...]:
        """Floor, scale, coefficients and base of Theta at another budget: what a page sums up."""
        factors = (N / self.N) ** -self.alpha, (D / self.D) ** -self.beta
        linear = (part.at(*factors) for part in (self.floor, self.scale))
        matrix, base = matrix_of(self.terms), base_of(self.terms)
        if self.growth is None:
            return *linear, matrix, base
        own, every = self.growth.factors(self.scale, *factors)
        return *linear, matrix * np.where(self.growth.own > 0, own, 1.0) * every, base * every

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
            "base": base_of(terms).tolist(),
            "growth": None if self.growth is None else self.growth.to_document(),
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


def _log(core: FloatArray) -> FloatArray:
    return np.log(np.clip(core, LEAST, MOST))


def matrix_of(terms: Terms) -> FloatArray:
    """What a source (M) does for a target (K) in the pieces of a law."""
    assert isinstance(terms, (PowerTerms, ExponentialTerms))
    return terms.phi if isinstance(terms, PowerTerms) else terms.t


def base_of(terms: Terms) -> FloatArray:
    """What Theta is (K,) without any source's help."""
    none = np.zeros(terms.n_targets)
    return terms.base if isinstance(terms, PowerTerms) and terms.base is not None else none


def _linear(terms: Terms) -> tuple[FloatArray, FloatArray]:
    """Floor and scale (K,), the numbers of the pieces that a core makes."""
    assert isinstance(terms, (PowerTerms, ExponentialTerms))
    return np.asarray(terms.floor), np.asarray(terms.a if isinstance(terms, PowerTerms) else terms.k)


def _parted(law: CoreLaw, terms: Terms, N: float, D: float) -> Budgeted | None:
    """The parts by what the pieces are where the core holds one of its summands alone."""
    nothing = np.zeros_like(law.E)

    def linear(**alone: FloatArray) -> tuple[FloatArray, FloatArray]:
        return _linear(law.replaced(**{"E": nothing, "A": nothing, "B": nothing, **alone}).terms(N, D))

    none, fixed, size, data = (linear(**part) for part in ({}, {"E": law.E}, {"A": law.A}, {"B": law.B}))
    floor, scale = (Parts(fixed[i], size[i] - none[i], data[i] - none[i]) for i in (0, 1))
    growth = OwnGrowth.of(law, N, D)
    found = Budgeted(law.name, terms, N, D, floor, scale, law.alpha, law.beta, moves=True, growth=growth)
    return found if _agrees(found, law, N, D) else None


def _agrees(found: Budgeted, law: Law, N: float, D: float) -> bool:
    """Whether the parts give the law's own pieces at a budget."""
    try:
        there = law.terms(N, D)
    except SolveError:  # overflows there
        return True
    theirs = (*_linear(there), matrix_of(there), base_of(there))
    alike = (_alike(one, other) for one, other in zip(found.at(N, D), theirs, strict=True))
    return all(alike) and all(map(np.array_equal, _exponents(found.terms), _exponents(there)))


def _alike(one: FloatArray, other: FloatArray) -> bool:
    return np.allclose(one, other, rtol=ALIKE, atol=ALIKE * float(np.abs(other).max(initial=0.0)))


def _exponents(terms: Terms) -> tuple[FloatArray, ...]:
    """What no budget may change."""
    if not isinstance(terms, PowerTerms):
        return ()
    return np.asarray(terms.gamma), np.ones(1) if terms.s is None else terms.s
