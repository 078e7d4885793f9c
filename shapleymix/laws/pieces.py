"""The convex pieces of a law in the mixture, at one budget or several: the one place of value, gradient and curvature.

A law at fixed N and D is, for each target j, an outer function of one inner quantity of the mixture:

- power:        loss_j(p) = floor_j + scale_j Theta_j^(-gamma_j),  Theta_j = base_j + sum_i phi_ij q_i^s_ij,  0 < s <= 1
- exponential:  loss_j(p) = floor_j + scale_j exp(sum_i phi_ij q_i)

Both are convex in p when scale, gamma and (of power) phi are at least 0 (ShapleyLaw paper, "Convexity and optimality
conditions"; q^s is concave and Theta^(-gamma) decreasing and convex). Where tokens are repeated, q(p) are effective
ratios, which are concave in p, and each piece of power form has a sum of `harm_ij (p_i - unique_i)^3` beyond one epoch
added to it, which is convex. A source that is taken to be like another is counted in its power, as if it were more of
it: `q_i + sum_l worth_lj q_l` for q_i. Axes: any leading axes (replicates, budgets), then M sources, then K targets;
leading axes broadcast. Theta = 0 is an infinite loss, without a warning, and zero wins over infinity in every product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, Self

import numpy as np

from shapleymix.errors import SolveError
from shapleymix.laws.task_curves import TaskCurves
from shapleymix.records import BoolArray, FloatArray, IntArray

Form = Literal["power", "exponential"]
Rows = int | IntArray | BoolArray
"""A place, places, or a mask."""

SMALLEST = 1e-300
NOTHING = -1e300
"""For the logarithm of a ratio of zero: any exponent makes a power of 0 of it."""
TINY_SUPPLY = 1e-12
LARGEST_EXPONENT = 60.0
MATRICES, SOURCES = frozenset({"phi", "s", "harm", "worth"}), frozenset({"unique", "rate"})
"""Fields with a value for each source and target, and those with one for each source; others have one a target."""


Crossed = tuple[tuple[int, int, FloatArray], ...]
"""Places of two sources that share a power, and second derivatives (..., K) in their ratios."""


class Slopes(NamedTuple):
    """First and second derivatives of the pieces at one mixture.

    `inner` (..., M, K) is d z_j / d p_i of the inner quantity z_j, `bend` (..., M, K) its second derivative (None where
    it is zero); `first` and `second` (..., K) are the outer function's derivatives in z. `push` and `bow` (..., M, K)
    are the first and second derivatives of the harm that repeated tokens do (None where they do none). `crossed` are
    those of z in the ratios of two sources that share a power.
    """

    inner: FloatArray
    bend: FloatArray | None
    first: FloatArray
    second: FloatArray
    push: FloatArray | None = None
    bow: FloatArray | None = None
    crossed: Crossed = ()

    def gradient(self, w: FloatArray) -> FloatArray:
        """Gradient (..., M) of the sum of losses, weighed by w (..., K)."""
        found = weigh(self.inner, product(w, self.first))
        return found if self.push is None else found + weigh(self.push, w)

    def jacobian(self) -> FloatArray:
        """d loss_j / d p_i -> (..., M, K)."""
        found = product(self.inner, self.first[..., None, :])
        return found if self.push is None else found + self.push

    @np.errstate(invalid="ignore", over="ignore")
    def hessian(self, w: FloatArray) -> FloatArray:
        """Second derivatives (..., M, M) of the sum of losses, positive semidefinite in the domain."""
        outer = (self.inner * product(w, self.second)[..., None, :]) @ np.swapaxes(self.inner, -1, -2)
        each = np.arange(outer.shape[-1])
        if self.bend is not None:
            # infinite at a ratio of 0, and there alone
            outer[..., each, each] += weigh(self.bend, product(w, self.first))
        if self.bow is not None:
            outer[..., each, each] += weigh(self.bow, w)
        for one, other, bend in self.crossed:
            outer[..., [one, other], [other, one]] += np.sum(product(bend, product(w, self.first)), axis=-1)[..., None]
        return outer


@dataclass(frozen=True)
class Pieces:
    """One law at its budgets, as convex functions of the mixture.

    Attributes
    ----------
    form : str
        `"power"` or `"exponential"`, as in the module's text.
    floor, scale : array (..., K)
        Loss that no mixture removes, of either sign, and the size (>= 0) of what it can, nats.
    gamma : array (..., K)
        Exponent of Theta (>= 0); 1 for exponential pieces, which have none.
    phi : array (..., M, K)
        What source i does for target j; >= 0 for power pieces.
    s : array (..., M, K), optional
        Exponents of the ratios, in (0, 1]; None for all ones.
    base : array (..., K), optional
        What Theta is without any source's help, > 0; None for zero.
    unique, rate : array (..., M), optional
        Unique tokens as shares of D (infinite where nothing is repeated), and the rate at which repeated ones lose
        their worth; None where no token is repeated.
    harm : array (..., M, K), optional
        What a source's repeated tokens add to the loss, nats by the cube of its ratio beyond `unique`; None for none.
    twins, worth : tuple of (int, int) and array (..., M, K), optional
        Sources whose ratios are counted in another one's power, each with that one; and what they are worth there, 0
        where they have a power of their own.
    curves : TaskCurves, optional
        The curves of tasks: then the targets are tasks, each with the columns of its language, and `losses` are their
        error rates.
    """

    form: Form
    floor: FloatArray
    scale: FloatArray
    gamma: FloatArray
    phi: FloatArray
    s: FloatArray | None = None
    base: FloatArray | None = None
    unique: FloatArray | None = None
    rate: FloatArray | None = None
    harm: FloatArray | None = None
    twins: tuple[tuple[int, int], ...] = ()
    worth: FloatArray | None = None
    curves: TaskCurves | None = None

    def of_sources(self, count: int) -> Pieces:
        """The same, where `phi` (..., 1, K) holds for all sources alike, with a row for each of so many."""
        return self if self.n_sources == count else replace(self, phi=np.repeat(self.phi, count, axis=-2))

    @property
    def n_sources(self) -> int:
        """M, the number of training languages."""
        return self.phi.shape[-2]

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes, broadcast over all fields."""
        return np.broadcast_shapes(*{np.shape(v)[: -2 if n in MATRICES else -1] for n, v in self._arrays()})

    @property
    def kappa(self) -> FloatArray:
        """(..., K) loss'' u / loss'^2 in derivatives of the inner quantity, u the loss less its floor."""
        if self.form == "exponential":
            return np.ones_like(self.scale)
        with np.errstate(divide="ignore"):
            found = (self.gamma + 1) / self.gamma
        return found if self.harm is None else np.minimum(found, 2 / 3)  # of a cube, and so of a sum with one

    @property
    def is_plain(self) -> bool:
        """Whether it is one law of power form for losses, whose tokens are fresh and whose sources share nothing."""
        return self.form == "power" and self.phi.ndim == 2 and self.unique is self.curves is self.worth is None

    def effective(self, p: FloatArray) -> FloatArray:
        """The ratios q (..., M) that the law takes in place of p: fewer where tokens are repeated."""
        return p if self.unique is None or self.rate is None else effective(p, self.unique, self.rate)

    def theta(self, p: FloatArray) -> FloatArray:
        """The inner quantity (..., K): Theta of power pieces, the exponent of exponential ones."""
        q = self.effective(p)
        found = weigh_rows(q, self.phi) if self.s is None else over_sources(self.phi, powers(self._together(q), self.s))
        return found if self.base is None else self.base + found

    def _together(self, q: FloatArray) -> FloatArray:
        """Of effective ratios (..., M) those that each power is of, (..., M, 1), or (..., M, K) where sources share."""
        if self.worth is None:
            return q[..., None]
        found = q[..., None] + np.zeros_like(self.worth)
        for one, other in self.twins:
            found[..., other, :] += self.worth[..., one, :] * q[..., one, None]
        return found

    def pool_twins(self, twins: Sequence[tuple[int, int, BoolArray]]) -> Self:
        """The pieces with each of some sources counted in the power of another, for the targets (K,) that share it.

        Alone it has the help that it has now; a copy of a source is so more of it, and gains nothing beside it.
        """
        if self.s is None or not twins:
            return self
        phi, s = (np.array(np.broadcast_arrays(part, self.phi)[0]) for part in (self.phi, self.s))
        worth = np.zeros_like(phi)
        for one, other, shared in twins:
            own, known = phi[..., one, :], phi[..., other, :]
            both = shared & (own > 0) & (known > 0)
            ratio = np.where(both, own, 1.0) / np.where(both, known, 1.0)
            worth[..., one, :] = np.where(both, ratio ** (1 / s[..., other, :]), 0.0)
            phi[..., one, :] = np.where(both, 0.0, own)
        return replace(self, phi=phi, s=s, twins=tuple((one, other) for one, other, _ in twins), worth=worth)

    def plain_losses(self, p: FloatArray) -> FloatArray:
        """Losses of the targets, or of the tasks' languages, (..., K), nats per token; +inf where Theta is zero."""
        plain = self.floor + self._reducible(self.theta(p))
        return plain if self.harm is None else plain + over_sources(self.harm * self._beyond(p)[..., None] ** 3)

    def _beyond(self, p: FloatArray) -> FloatArray:
        """The part of the ratios (..., M) that is repeated tokens."""
        assert self.unique is not None
        return np.maximum(p - self.unique, 0.0)

    def losses(self, p: FloatArray) -> FloatArray:
        """Loss of every target, or error rate of every task, (..., K), at mixtures p (..., M).

        Losses are in nats per token, and +inf where a target's Theta is zero. Leading axes broadcast.
        """
        plain = self.plain_losses(p)
        return plain if self.curves is None else self.curves.errors(plain)

    def objective(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """sum_j w_j loss_j(p) -> (...); a target of weight 0 never counts, even at +inf."""
        return np.sum(product(w, self.losses(p)), axis=-1)

    def gradient(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """Gradient of `objective` -> (..., M); -inf where a source at zero is sorely needed."""
        return self.slopes(p).gradient(w)

    def slopes(self, p: FloatArray) -> Slopes:
        """Derivatives of the pieces at p (..., M); infinite where the law's slope is, as with s < 1 at ratio zero.

        A curvature below zero of error rates counts as none, so that a search goes downhill; of that along the harm of
        repeated tokens they have the harm's own alone.
        """
        if self.unique is None or self.rate is None:
            return self._outer(*self._inner(p), p)
        q, slope, bend = (part[..., None] for part in effective_slopes(p, self.unique, self.rate))
        theta, inner, bent, crossed = self._inner(q[..., 0])
        curved = product(inner, bend) + (0 if bent is None else product(bent, slope**2))
        crossed = tuple((i, k, product(one, slope[..., i, :] * slope[..., k, :])) for i, k, one in crossed)
        at = self._outer(theta, product(inner, slope), curved, crossed, p)
        if self.harm is None:
            return at
        beyond, unit = self._beyond(p)[..., None], self.harm
        if self.curves is not None:
            unit = unit * self.curves.slopes(self.plain_losses(p))[0][..., None, :]
        return at._replace(push=3 * unit * beyond**2, bow=6 * unit * beyond)

    def derivatives(self, p: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Gradient (..., M) and hessian (..., M, M) of the sum of losses, weighed by w (..., K), of power pieces whose
        tokens are all fresh, at ratios above 0: `slopes`, without heed of what is infinite."""
        theta, inner, bend, _ = self._inner(p)
        more = self.gamma + 1
        steep = w * self.scale * self.gamma * theta**-more
        outer = (inner * (more * steep / theta)) @ inner.T
        if bend is not None:
            outer.ravel()[:: len(p) + 1] -= bend @ steep
        return -(inner @ steep), outer

    def partials(self, p: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Losses (..., K), and their derivative by each field: (..., M, K) by `phi` and `s`, (..., K) by others.

        Where Theta is zero they are finite and mean nothing.
        """
        q, theta = self.effective(p), self.theta(p)
        raised = q[..., None] if self.s is None else powers(q[..., None], self.s)
        if self.form == "exponential":
            unit = np.exp(np.minimum(theta, LARGEST_EXPONENT))
            steep = by_gamma = self.scale * unit
        else:
            theta = np.where(theta > 0, theta, 1.0)
            log_theta = np.log(theta)
            unit = np.exp(-self.gamma * log_theta)
            by_gamma = -self.scale * unit * log_theta
            steep = -self.gamma * self.scale * unit / theta
        found = {"floor": np.ones_like(steep), "scale": unit, "gamma": by_gamma, "base": steep}
        found["phi"] = steep[..., None, :] * raised
        if self.s is not None:
            found["s"] = found["phi"] * (self.phi * log_ratios(q)[..., None])
        return self.floor + self.scale * unit, found

    def with_supply(self, unique: FloatArray, rate: FloatArray | float, harm: FloatArray | None = None) -> Self:
        """The same law where sources have a share `unique` (..., M) of D in unique tokens.

        Parameters
        ----------
        unique : array (..., M)
            Infinite (or NaN) where no token is repeated.
        rate : float or array (..., M)
            The rate at which each source's repeated tokens lose their worth.
        harm : array (..., M, K), optional
            What repeated tokens add to each loss, nats by the cube of their ratio (see `harmful`); None for nothing.

        Raises
        ------
        SolveError
            If the law has no place for repeated tokens.
        """
        known = np.where(np.isnan(unique), np.inf, unique)
        if not (known < 1).any():
            return self  # not even a mixture of one source repeats a token
        if self.form == "exponential":
            message = "an exponential of the ratios takes ratios that sum to one: it has no place for repeated tokens"
            raise SolveError(message, hint="leave out the available tokens, or fit a law with Theta")
        return replace(self, unique=known, rate=np.asarray(rate) * np.ones(known.shape[-1]), harm=harm)

    def with_curves(self, curves: TaskCurves, places: IntArray) -> Self:
        """The error rates of tasks, by their curves and the place (T,) of each one's language among the targets."""
        return replace(self.select(places), curves=curves)

    def scale_losses(self, factor: FloatArray) -> Self:
        """The pieces of losses that are `factor` (..., K) times as high."""
        harm = None if self.harm is None else self.harm * factor[..., None, :]
        return replace(self, floor=self.floor * factor, scale=self.scale * factor, harm=harm)

    def select(self, targets: Rows) -> Self:
        """The pieces of some targets only (indices or mask)."""
        curves = None if self.curves is None else self.curves.select(targets)
        return self._map_arrays(lambda name, value: value if name in SOURCES else value[..., targets].copy(), curves)

    def flat(self) -> Self:
        """The pieces with exactly one leading axis, in C order of their own."""
        shape = self.batch

        def flatten(name: str, value: FloatArray) -> FloatArray:
            tail = value.shape[-2:] if name in MATRICES else value.shape[-1:]
            return np.broadcast_to(value, shape + tail).reshape((int(np.prod(shape)), *tail))

        return self._map_arrays(flatten, self.curves)

    def take(self, members: Rows | slice) -> Self:
        """Some members of the first leading axis; every field must have it (see `flat`)."""
        curves = None if self.curves is None else self.curves.take(members)
        return self._map_arrays(lambda name, value: value[members], curves)

    def _reducible(self, theta: FloatArray) -> FloatArray:
        """Losses less their floor (..., K), by the inner quantity."""
        if self.form == "exponential":
            return self.scale * np.exp(np.minimum(theta, LARGEST_EXPONENT))
        return product(self.scale, inverse_power(theta, self.gamma))

    def _inner(self, q: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray | None, Crossed]:
        """The inner quantity (..., K), its first and second derivative in each effective ratio (..., M, K), and those
        in two that share a power."""
        base, crossed = 0.0 if self.base is None else self.base, []
        if self.s is None:
            return base + weigh_rows(q, self.phi), self.phi, None, ()
        theta, inner, bend = _concave(self._together(q), self.phi, self.s)
        for place, (one, other) in enumerate(self.twins):
            assert self.worth is not None
            worth, curved = self.worth[..., one, :], bend[..., other, :]
            crossed += [(one, other, product(worth, curved))]
            beside = [more for more, power in self.twins[:place] if power == other]
            crossed += [(one, more, product(worth * self.worth[..., more, :], curved)) for more in beside]
            inner[..., one, :] += product(worth, inner[..., other, :])
            bend[..., one, :] += product(worth**2, curved)
        return base + theta, inner, bend, tuple(crossed)

    def _outer(
        self, theta: FloatArray, inner: FloatArray, bend: FloatArray | None, crossed: Crossed, p: FloatArray
    ) -> Slopes:
        if self.form == "exponential":
            first = second = self._reducible(theta)
        else:
            more = self.gamma + 1
            steep = product(self.scale * self.gamma, inverse_power(theta, more))
            with np.errstate(divide="ignore"):
                first, second = -steep, product(more * steep, 1 / np.maximum(theta, 0.0))
        if self.curves is not None:
            once, twice = self.curves.slopes(self.plain_losses(p))
            with np.errstate(invalid="ignore", over="ignore"):
                curved = np.nan_to_num(product(once, second) + product(twice, first**2), posinf=np.inf)
            first, second = product(once, first), np.maximum(curved, 0.0)
        return Slopes(inner, bend, first, second, crossed=crossed)

    def _arrays(self) -> list[tuple[str, FloatArray]]:
        named = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return [(name, np.asarray(v)) for name, v in named if v is not None and name not in ("form", "twins", "curves")]

    def _map_arrays(self, change: Callable[[str, FloatArray], FloatArray], curves: TaskCurves | None) -> Self:
        return replace(self, curves=curves, **{name: change(name, value) for name, value in self._arrays()})


def effective(p: FloatArray, u: FloatArray, rate: FloatArray | float) -> FloatArray:
    """What tokens are worth that a run sees more than once: effective ratios q in place of the ratios p.

    A source with U unique tokens, of which a run takes D p, gives it as much as S(D p; U) fresh ones would:

        S(T; U) = T                                                T <= U
                = U (1 + (1 - exp(-lambda (T / U - 1))) / lambda)  beyond

    with one rate lambda for all sources (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models", eq. 5,
    whose R* is 1 / lambda; ATLAS, Longpre et al. 2025). A law takes q = S / D wherever its equation says p. q is
    concave in p with a continuous slope, so that a law which is convex and falling in p stays so. Its sum is below one.

    Parameters
    ----------
    p : array (..., M)
        Ratios.
    u : array (..., M)
        Unique tokens as a share of D, U / D; infinite where nothing is repeated.
    rate : array (..., M)
        The rate lambda; 0 takes repeated tokens for fresh ones.
    """
    again, unique = _again(p, u)
    known = np.maximum(rate, SMALLEST)  # passes over fresh text: (1 - exp(-lambda R)) / lambda
    worth = np.where(np.asarray(rate) * again > 1e-12, -np.expm1(-known * again) / known, again)
    return np.minimum(p, u) + unique * worth


def harmful(p: FloatArray, u: FloatArray, N: FloatArray | float, D: FloatArray | float, power: int = 3) -> FloatArray:
    """What h = 1 would have repeated tokens add to a loss at p (..., M), as a share of the core C_j(N, D).

        (N / U_i) (D / U_i) (p_i - U_i / D)^3        beyond one epoch, else 0

    It is convex in p: other tokens regularise, so that eight epochs at a ratio of a quarter do no harm where four at a
    ratio of one do; and a model of more parameters for each unique token is harmed sooner (trained best epochs of 24,
    11.2, 6.4 and 4.8 at 30M, 124M, 345M and 757M parameters on one pool; arXiv 2606.07597). With `power` 0 the factor
    of the cube alone.
    """
    unique = np.maximum(u, TINY_SUPPLY)
    return N / (D * unique**2) * np.maximum(p - unique, 0.0) ** power  # 0 where there is no limit


def effective_slopes(p: FloatArray, u: FloatArray, rate: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Effective ratios, and their first and second derivative in p; this jumps where the first token is repeated."""
    again, unique = _again(p, u)
    slope = np.exp(-rate * again)
    return effective(p, u, rate), slope, np.where(again > 0, -rate * slope / unique, 0.0)


def _again(p: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How often each token is seen beyond the first time, and u as a finite number above 0."""
    unique = np.clip(u, SMALLEST, 1 / SMALLEST)
    return np.maximum(p / unique - 1, 0.0), unique


def log_ratios(p: FloatArray, nothing: float = 0.0) -> FloatArray:
    """log p, and `nothing` where p = 0: 0 where callers mask it."""
    return np.where(p > 0, np.log(np.where(p > 0, p, 1.0)), nothing)


def powers(p: FloatArray, s: FloatArray) -> FloatArray:
    """p_i ^ s_ij, shape (..., M, K), with 0^s = 0, of ratios (..., M, 1) or (..., M, K)."""
    found = log_ratios(p, NOTHING) * s
    with np.errstate(under="ignore"):
        return np.exp(found, out=found)


def over_sources(*parts: FloatArray) -> FloatArray:
    """Sum of a product over the sources' axis; several times faster than `sum(axis=-2)` where the last is short."""
    return np.einsum(",".join(["...mk"] * len(parts)) + "->...k", *parts)


def sum_over_sources(rows: FloatArray, *weights: FloatArray) -> FloatArray:
    """Sums (W, ..., R, K) over the sources of rows (..., R, M, K), by each of some weights (..., 1, M, K) at once."""
    columns = np.stack([one[..., 0, :, :] for one in weights], axis=-1)
    found = np.moveaxis(rows, -1, -3) @ np.moveaxis(columns, -2, -3)  # (..., K, R, W)
    return np.moveaxis(found, (-1, -3), (0, -1))


def weigh_rows(p: FloatArray, matrix: FloatArray) -> FloatArray:
    """sum_i p_i matrix_ij over broadcast leading axes."""
    if matrix.ndim == 2:
        return p @ matrix
    if p.ndim > 1 and matrix.shape[-3] == 1:  # one matrix for all rows: one product, not one a row
        return p @ matrix[..., 0, :, :]
    return (p[..., None, :] @ matrix)[..., 0, :]


@np.errstate(invalid="ignore")
def weigh(matrix: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_j matrix_ij weights_j -> (..., M), where 0 times infinity is 0."""
    total = (matrix @ weights[..., None])[..., 0]
    if _is_finite(total):
        return total
    return np.sum(product(matrix, weights[..., None, :]), axis=-1)


@np.errstate(invalid="ignore", over="ignore")
def product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Product in which zero wins over infinity."""
    raw = np.multiply(left, right)
    if _is_finite(raw):
        return raw
    return np.where((np.asarray(left) == 0) | (np.asarray(right) == 0), 0.0, raw)


def _is_finite(values: FloatArray) -> bool:
    """Whether all values are, and their sum; at half the cost of asking each where there are few."""
    return math.isfinite(np.add.reduce(values, axis=None))


@np.errstate(divide="ignore", over="ignore")
def inverse_power(theta: FloatArray, exponent: FloatArray) -> FloatArray:
    """theta^(-exponent): +inf at theta = 0, or a rounding below, for a positive exponent; 1 for exponent zero."""
    return np.power(np.maximum(theta, 0.0), -np.asarray(exponent))


def _concave(column: FloatArray, phi: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theta (..., K), d Theta_j / d p_i and its second derivative (..., M, K) for concave powers."""
    part = phi * powers(column, s)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = s * part / column
        bend = (s - 1) * slope / column
    if not np.all(column > 0):
        edge = np.where(phi > 0, np.where(s < 1, np.inf, phi), 0.0)
        slope = np.where(column > 0, slope, edge)
        bend = np.where(column > 0, bend, np.where((phi > 0) & (s < 1), -np.inf, 0.0))
    return over_sources(part), slope, bend
