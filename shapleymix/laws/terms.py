"""The convex pieces of a law in the mixture, at one budget: value, gradient, curvature.

A law at fixed N and D is, for each target j, an outer function of one inner quantity of the mixture:

- power:        loss_j(p) = floor_j + a_j Theta_j^(-gamma_j),  Theta_j = base_j + sum_i phi_ij p_i^s_ij,  0 < s <= 1
- exponential:  loss_j(p) = floor_j + k_j exp(sum_i t_ij p_i)

Both are convex in p when a, gamma, phi, k >= 0 (ShapleyLaw paper, "Convexity and optimality conditions"; p^s
is concave and Theta^(-gamma) decreasing and convex). Where tokens are repeated, power terms take effective ratios q(p)
in place of p (see `repeated`): q is concave, so they stay convex. Axes: any leading axes (replicates, budgets), then M
sources, then K targets; leading axes broadcast. Theta = 0 is an infinite loss, without a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.products import concave, dot, inverse_power, powers, product, weigh, weigh_rows
from shapleymix.laws.repeated import effective, effective_slopes
from shapleymix.records import BoolArray, FloatArray, IntArray

Rows = int | IntArray | BoolArray
"""A place, places, or a mask."""


@dataclass(frozen=True)
class Slopes:
    """First and second derivatives of a law's pieces at one mixture.

    `inner` (..., M, K) is d z_j / d p_i of the inner quantity z_j, `bend` (..., M, K) its second derivative
    (None where it is zero); `first` and `second` (..., K) are the outer function's derivatives in z.
    """

    inner: FloatArray
    bend: FloatArray | None
    first: FloatArray
    second: FloatArray


@dataclass(frozen=True)
class Terms:
    """What power and exponential terms share.

    Attributes
    ----------
    floor : array (..., K)
        Matters for values and for nothing else.
    unique, rate : array (..., M), optional
        Unique tokens as shares of D (infinite where nothing is repeated), and the rate at which repeated ones lose
        their worth; None where no token is repeated.
    """

    floor: FloatArray
    unique: FloatArray | None = field(default=None, kw_only=True)
    rate: FloatArray | None = field(default=None, kw_only=True)

    @property
    def _matrix(self) -> FloatArray:
        raise NotImplementedError

    def _values(self, q: FloatArray) -> FloatArray:
        """Losses less their floor (..., K) at effective ratios."""
        raise NotImplementedError

    def _slopes(self, q: FloatArray) -> Slopes:
        """Derivatives in effective ratios."""
        raise NotImplementedError

    def slopes(self, p: FloatArray) -> Slopes:
        """Derivatives of the pieces at p (..., M); infinite where the law's slope is, as with s < 1 at ratio zero."""
        if self.unique is None or self.rate is None:
            return self._slopes(p)
        q, slope, bend = (part[..., None] for part in effective_slopes(p, self.unique, self.rate))
        at = self._slopes(q[..., 0])
        curved = product(at.inner, bend)
        if at.bend is not None:
            curved = curved + product(at.bend, slope**2)
        return Slopes(product(at.inner, slope), curved, at.first, at.second)

    def effective(self, p: FloatArray) -> FloatArray:
        """The ratios (..., M) that the law takes in place of p: fewer where tokens are repeated."""
        return p if self.unique is None or self.rate is None else effective(p, self.unique, self.rate)

    def with_repetition(self, unique: FloatArray, rate: FloatArray | float) -> Self:
        """The same law where sources have a share `unique` (..., M) of D in unique tokens.

        Parameters
        ----------
        unique : array (..., M)
            Infinite (or NaN) where no token is repeated.
        rate : float or array (...)
            The rate, of each replicate if it is an array.

        Raises
        ------
        SolveError
            If the law is not convex in the mixture then.
        """
        known = np.where(np.isnan(unique), np.inf, unique)
        if not (known < 1).any():
            return self  # not even a mixture of one source repeats a token
        return replace(
            self, unique=known, rate=np.broadcast_to(np.asarray(rate)[..., None], (*np.shape(rate), known.shape[-1]))
        )

    def with_supply(self) -> Self:
        """The same terms, with an explicit supply without limit where they have none."""
        limitless = np.full(self.n_sources, np.inf)
        return self if self.unique is not None else replace(self, unique=limitless, rate=np.zeros(self.n_sources))

    def without_repetition(self) -> Self:
        """The same law with unlimited data."""
        return self if self.unique is None else replace(self, unique=None, rate=None)

    @property
    def n_sources(self) -> int:
        """M, the number of training languages."""
        return self._matrix.shape[-2]

    @property
    def n_targets(self) -> int:
        """K, the number of target languages."""
        return self._matrix.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes, broadcast over all fields."""
        shapes = {np.shape(value)[: -2 if name in MATRICES else -1] for name, value in self._arrays()}
        return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)

    def losses(self, p: FloatArray) -> FloatArray:
        """Loss of every target, nats per token.

        Parameters
        ----------
        p : array (..., M)
            Mixture; its leading axes broadcast with those of the terms.

        Returns
        -------
        array (..., K)
            Losses in nats per token; +inf where a target's Theta is zero.
        """
        return self.floor + self._values(self.effective(p))

    def objective(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """sum_j w_j loss_j(p) -> (...); a target of weight 0 never counts, even at +inf."""
        return dot(self.losses(p), w)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient of `objective` -> (..., M); -inf where a source at zero is sorely needed."""
        at = self.slopes(p)
        return weigh(at.inner, product(w, at.first))

    def hessian(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Hessian of `objective` -> (..., M, M), symmetric positive semidefinite in the domain."""
        at = self.slopes(p)
        with np.errstate(invalid="ignore", over="ignore"):
            outer = (at.inner * product(w, at.second)[..., None, :]) @ np.swapaxes(at.inner, -1, -2)
        if at.bend is not None:
            diagonal = weigh(at.bend, product(w, at.first))
            outer = outer + diagonal[..., None] * np.eye(diagonal.shape[-1])
        return outer

    def jacobian(self, p: FloatArray) -> FloatArray:
        """d loss_j / d p_i -> (..., M, K)."""
        at = self.slopes(p)
        return product(at.inner, at.first[..., None, :])

    def sensitivity(self, p: FloatArray, losses: FloatArray, w: FloatArray) -> FloatArray:
        """What sum_j w_j loss_j changes by for a change of each log loss (K,) at p (M,), where the losses are these."""
        return np.where(w > 0, w * np.nan_to_num(losses, posinf=0.0), 0.0)

    def scaled(self, factor: FloatArray) -> Self:
        """The terms of losses that are `factor` (..., K) times as high."""
        return self._changed(lambda name, value: value * factor if name in LINEAR else value)

    def select(self, targets: Rows) -> Self:
        """The terms of some targets only (indices or mask)."""
        return self._changed(lambda name, value: value if name in SOURCES else np.asarray(value)[..., targets])

    def select_sources(self, sources: Rows) -> Self:
        """The terms with some sources only, the others at ratio zero (indices or mask)."""

        def chosen(name: str, value: FloatArray) -> FloatArray:
            if name in SOURCES:
                return np.asarray(value)[..., sources]
            return np.asarray(value)[..., sources, :] if name in MATRICES else value

        return self._changed(chosen)

    def flat(self, batch: tuple[int, ...] | None = None) -> Self:
        """The terms with exactly one leading axis, in C order of `batch` (default: their own)."""
        shape = self.batch if batch is None else batch
        size = int(np.prod(shape))

        def flattened(name: str, value: FloatArray) -> FloatArray:
            own = np.asarray(value, dtype=float)
            tail = own.shape[-2:] if name in MATRICES else own.shape[-1:]
            return np.broadcast_to(own, shape + tail).reshape((size, *tail))

        return self._changed(flattened)

    def take(self, rows: Rows | slice) -> Self:
        """Some members of the first leading axis; every field must have it (see `flat`)."""
        return self._changed(lambda name, value: np.asarray(value)[rows])

    def _arrays(self) -> list[tuple[str, FloatArray]]:
        named = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, value) for name, value in named if value is not None]

    def _changed(self, change: Callable[[str, FloatArray], FloatArray]) -> Self:
        return replace(self, **{name: change(name, value) for name, value in self._arrays()})


LINEAR = frozenset({"floor", "a", "k"})
MATRICES = frozenset({"phi", "s", "t"})
SOURCES = frozenset({"unique", "rate"})
"""Fields with a value for each source and target, and those with one for each source."""


@dataclass(frozen=True)
class PowerTerms(Terms):
    """loss_j = floor_j + a_j Theta_j^(-gamma_j), Theta_j = base_j + sum_i phi_ij p_i^s_ij.

    With floor = 0, s = 1 and a = C_j(N, D) this is the ShapleyLaw paper's law.

    Attributes
    ----------
    floor, a, gamma : array (..., K)
        Loss that no mixture removes (of either sign), the budget's part in nats (>= 0), and the exponent of Theta (>=
        0).
    phi : array (..., M, K)
        Transfer of source i to target j, >= 0.
    s : array (..., M, K), optional
        Exponents of the ratios, in (0, 1]; None for all ones.
    base : array (..., K), optional
        What Theta is without any source's help, > 0; None for zero.
    """

    a: FloatArray
    gamma: FloatArray
    phi: FloatArray
    s: FloatArray | None = None
    base: FloatArray | None = field(default=None, kw_only=True)

    @property
    def _matrix(self) -> FloatArray:
        return self.phi

    def theta(self, p: FloatArray) -> FloatArray:
        """Aggregate transfer Theta_j(p) -> (..., K)."""
        return self._theta(self.effective(p))

    def _theta(self, q: FloatArray) -> FloatArray:
        if self.s is None:
            return self._based(weigh_rows(q, self.phi))
        return self._based(np.sum(self.phi * powers(q, self.s), axis=-2))

    def _based(self, transferred: FloatArray) -> FloatArray:
        return transferred if self.base is None else self.base + transferred

    def _values(self, q: FloatArray) -> FloatArray:
        return product(self.a, inverse_power(self._theta(q), self.gamma))

    def _slopes(self, q: FloatArray) -> Slopes:
        if self.s is None:
            theta, inner, bend = weigh_rows(q, self.phi), self.phi, None
        else:
            theta, inner, bend = concave(q, self.phi, self.s)
        theta = self._based(theta)
        pull = product(self.a * self.gamma, inverse_power(theta, self.gamma + 1))
        second = product((self.gamma + 1) * self.a * self.gamma, inverse_power(theta, self.gamma + 2))
        return Slopes(inner, bend, -pull, second)


@dataclass(frozen=True)
class ExponentialTerms(Terms):
    """loss_j = floor_j + k_j exp(sum_i t_ij p_i) (Data Mixing Laws, Ye et al. 2025, eq. 1).

    Attributes
    ----------
    floor, k : array (..., K)
        Loss that no mixture removes, and the scale k >= 0 of what it can, nats.
    t : array (..., M, K)
        Effect of source i on target j, of either sign.
    """

    k: FloatArray
    t: FloatArray

    @property
    def _matrix(self) -> FloatArray:
        return self.t

    def with_repetition(self, unique: FloatArray, rate: FloatArray | float) -> Self:
        raise SolveError(_SUMS_TO_ONE, hint=_OTHER_LAW)

    def _values(self, q: FloatArray) -> FloatArray:
        return self.k * np.exp(weigh_rows(q, self.t))

    def _slopes(self, q: FloatArray) -> Slopes:
        value = self._values(q)
        return Slopes(self.t, None, value, value)


_SUMS_TO_ONE = "an exponential of the ratios takes ratios that sum to one: it has no place for repeated tokens"
_OTHER_LAW = "leave out the available tokens, or fit a law with Theta"
