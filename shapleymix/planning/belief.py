"""What is believed of the log losses of mixtures that nobody trained: before any run, and under a fitted law.

A belief says, target by target, how the log losses of any two mixtures vary together: as products of features, in
which a law is linear. Observing a run's loss, whatever it is, shrinks the variance of the others by Bayes' rule; so
runs can be chosen before they are trained. Legend: R mixtures, M sources, K targets, P features.

Before any run the law with a base is `log L_j = c_j - sum_i u_ij p_i^s_ij` to first order: coefficients u near 0, the
target's own larger, so that its exponent matters: it has one feature for each of a few exponents, another source has
one. A fitted law with power terms is linear in what may change of it: its level, gamma, coefficients and exponents.

What was tried in place of it, before any run, by choosing out of real logs; mean held-out error of the law with a base
over four draws, in per cent, on RegMix (20 and 50 runs) and olmix (12, 20 and 35):

  at random                                         2.43 1.63   5.76 4.42 3.66
  this belief                                       2.15 1.57   4.84 3.85 3.31
  several exponents for all sources, OTHERS = .05   2.09 1.53   5.37 4.21 3.38
  the same, a second half under the first's fit     2.03 1.54   5.26 4.13 3.35
  200 draws of the law from its own prior           2.00 1.60   5.48 3.93 3.39
  a Gaussian process over powers of ratios          2.17 1.53   5.32 4.07 3.39
  medoids of the candidates, by powers of ratios    2.18 1.58   5.85 4.28 3.37
  half designed, half at random                     2.32 1.62   5.33 4.99 3.66
  slopes of the law fitted to all runs              2.15 1.60

On nine further draws of RegMix and seven of olmix this belief and several exponents are alike with 20 and 35 runs of
RegMix (2.08 and 1.69 against 2.06 and 1.72) and with 12 and 20 of olmix (5.28 and 4.18 against 5.27 and 4.16); with 35
of olmix it is better (3.42 against 3.60, three draws). The last line is what no plan can know, and no better: there is
no more to gain by knowing the slopes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.laws.terms import PowerTerms
from shapleymix.records import BoolArray, FloatArray, IntArray

EXPONENTS = (0.2, 0.4, 0.8)
"""Exponents of ratios that real logs give to the law with a base lie between these, about .4 in the middle."""
USUAL = 0.4
OTHERS, OWN = 0.1, 0.5
"""How large u_ij may be: nats of log loss between none of a source and nothing else; own sources five times as much."""
LEVEL = 3.0
"""Of the log loss of a law as a whole: so wide that it is told by runs alone."""
NOISE = 0.05
"""Scatter of a run's log loss where no fit says it: seeds, and what a law to first order misses. Tried with several
exponents for all sources and without misfit, on RegMix with 20, 35 and 50 runs: held-out errors of 2.16, 1.65 and 1.59%
with .05, of 2.10, 1.75 and 1.55% with .02, which is no difference. On olmix 20 runs had 4.6%
with .05 and 5.5% with .01, in an earlier state of the law."""
STRETCH = (0.6, 1.0, 1.6)
"""The exponents of a fitted law may be wrong by such factors."""
SHAPE = 0.5
"""How far the logarithms of a fitted law's gamma and exponents may be off."""
MISFIT = 0.1
"""Part of a log loss's distance from that at the optimum by which a law errs: it holds near by, and less far out."""
LEAST_THETA = 0.1
"""Of the even mixture's; where it is smaller, a law without a base would believe in losses without end."""
LEAST_EFFECT = 0.01
"""Of a coefficient on log loss, that is believed possible where a fit has all of them at zero."""

Targets = IntArray | slice
ALL = slice(None)  # the only slice among `Targets`
Basis = Callable[[FloatArray, Targets], FloatArray]
"""Features (K, R, P) of mixtures (R, M), or whatever else (K, R), for some of the targets."""


@dataclass(frozen=True)
class Belief:
    """log L_j is a sum of features, each times a normal number.

    Attributes
    ----------
    basis : Basis
        The features of mixtures.
    root : array (K, P, P), optional
        A square root of the covariance of the numbers; None where they are independent, each of variance one.
    noise : array (K,)
        Variance of a run's log loss about the law.
    misfit : callable, optional
        How much of that variance (K, R) comes on top at mixtures (R, M), where the law is not to be trusted.
    """

    basis: Basis
    root: FloatArray | None
    noise: FloatArray
    misfit: Basis | None = None

    def features(self, p: FloatArray, targets: Targets = ALL) -> FloatArray:
        """Features (K, R, P) of mixtures (R, M) whose numbers are independent, each of variance one."""
        own = self.basis(p, targets)
        return own if self.root is None else own @ self.root[targets]

    def scatter(self, p: FloatArray, targets: Targets = ALL) -> FloatArray:
        """Variance (K, R) of the log loss of a run of each mixture about the law."""
        even = np.repeat(self.noise[targets][:, None], len(p), axis=1)
        return even if self.misfit is None else even + self.misfit(p, targets)

    def after(self, p: FloatArray, counts: FloatArray, seen: BoolArray) -> Belief:
        """The belief when mixtures (R, M) were trained `counts` (R,) times each; `seen` (R, K) says whose loss."""
        if not len(p):
            return self
        roots = []
        for k in range(len(self.noise)):
            told = np.sqrt(counts * seen[:, k] / self.scatter(p, np.array([k]))[0])
            rows = self.features(p, np.array([k]))[0] * told[:, None]
            half = np.linalg.inv(np.linalg.cholesky(rows.T @ rows + np.eye(rows.shape[1]))).T
            roots.append(half if self.root is None else self.root[k] @ half)
        return replace(self, root=np.array(roots))


def before_any_run(own: BoolArray, noise: FloatArray | float = NOISE) -> Belief:
    """The belief without a fit; `own` (M, K) says which source is a target's own.

    Parameters
    ----------
    own : bool array (M, K)
        Whether a source and a target have one name.
    noise : array (K,) or float
        Scatter of a run's log loss.
    """
    K = own.shape[1]
    of_own = OWN / np.sqrt(len(EXPONENTS))
    widths = [np.where(own, of_own, OTHERS if exponent == USUAL else 0.0).T for exponent in EXPONENTS]
    scale = np.concatenate([np.full((K, 1), LEVEL), *widths], axis=1)

    def basis(p: FloatArray, targets: Targets) -> FloatArray:
        powers = [_power(p, np.array(exponent)) for exponent in EXPONENTS]
        return scale[targets][:, None] * np.concatenate([np.ones((len(p), 1)), *powers], axis=1)

    def misfit(p: FloatArray, targets: Targets) -> FloatArray:
        gone = _power(p, np.array(USUAL)) - (1 / len(own)) ** USUAL
        return (MISFIT * OWN * (gone @ own[:, targets]).T) ** 2

    return Belief(basis, None, np.broadcast_to(np.square(noise), (K,)), misfit)


def under_power_terms(terms: PowerTerms, own: BoolArray, noise: FloatArray, around: FloatArray) -> Belief:
    """The belief about a fitted law with power terms, before the runs that it was fitted to are counted.

    Its numbers are the changes of the level, of gamma, of the exponents of own and other sources, and of each
    coefficient, which may be wrong by as much as coefficients are large (see `_usual_size`). No law is exact: what it
    says of the distance to the losses at the mixture `around` (M,) may be wrong by a part of it, run by run; so it is
    before any run, around the even mixture.
    """
    K = terms.n_targets
    width = _usual_size(terms, own).T / np.sqrt(len(STRETCH))
    scale = np.concatenate([np.array([[LEVEL, SHAPE, SHAPE, SHAPE]] * K), *[width] * len(STRETCH)], axis=1)

    def basis(p: FloatArray, targets: Targets) -> FloatArray:
        return scale[targets][:, None] * slopes_of(_some(terms, targets), own[:, targets], p)

    def misfit(p: FloatArray, targets: Targets) -> FloatArray:
        some = _some(terms, targets)
        away, at = (np.log(some.floor + _part(some, mixtures)) for mixtures in (p, around[None]))
        return (MISFIT * (away - at).T) ** 2

    return Belief(basis, None, noise, misfit)


def slopes_of(terms: PowerTerms, own: BoolArray, p: FloatArray) -> FloatArray:
    """Derivatives (K, R, P) of log losses by the logarithms of level, gamma, own and other exponents, and by the
    coefficients, at several exponents each."""
    column, s = p[:, :, None], np.ones_like(terms.phi) if terms.s is None else terms.s
    theta, part = _theta(terms, p), _part(terms, p)
    slope = -terms.gamma * part / theta  # of the loss by Theta
    by_exponent = terms.phi * _power(column, s) * s * np.log(np.where(column > 0, column, 1.0))
    shapes = [part, -terms.gamma * part * np.log(theta)]
    shapes += [slope * np.where(mask, by_exponent, 0.0).sum(axis=1) for mask in (own, ~own)]
    stretched = [slope[:, None] * _power(column, np.minimum(s * factor, 1.0)) for factor in STRETCH]
    stacked = np.concatenate([np.stack(shapes, axis=1), *stretched], axis=1)  # (R, P, K)
    return np.moveaxis(stacked / (terms.floor + part)[:, None], -1, 0)


def _some(terms: PowerTerms, targets: Targets) -> PowerTerms:
    """The terms of some targets, or of all."""
    return terms if isinstance(targets, slice) else terms.select(targets)


def _part(terms: PowerTerms, p: FloatArray) -> FloatArray:
    """What the mixture changes of the losses (R, K)."""
    return terms.a * _theta(terms, p) ** -terms.gamma


def _theta(terms: PowerTerms, p: FloatArray) -> FloatArray:
    """Theta (R, K), of a law without a base no smaller than a part of the even mixture's."""
    if terms.base is not None:
        return terms.theta(p)
    M = terms.n_sources
    return np.maximum(terms.theta(p), LEAST_THETA * terms.theta(np.full(M, 1 / M)))


def under_replicates(log_losses: Callable[[FloatArray], FloatArray], noise: FloatArray) -> Belief:
    """The belief that a fit's replicates stand for, whatever its law: where they differ, little is known.

    Parameters
    ----------
    log_losses : callable
        Log losses (B, R, K) of mixtures (R, M) under each replicate.
    noise : array (K,)
        Variance of a run's log loss.
    """

    def basis(p: FloatArray, targets: Targets) -> FloatArray:
        found = log_losses(p)[..., targets]
        return np.moveaxis(found - found.mean(axis=0), (0, 2), (2, 0)) / np.sqrt(len(found))

    return Belief(basis, None, noise)


def _power(p: FloatArray, exponent: FloatArray) -> FloatArray:
    """p^exponent, and 0 where p is 0."""
    return np.where(p > 0, np.where(p > 0, p, 1.0) ** exponent, 0.0)


def _usual_size(terms: PowerTerms, own: BoolArray) -> FloatArray:
    """How large (M, K) coefficients usually are: by the root mean square of their effects on log losses.

    A coefficient's effect is that of its source alone on the log loss at the even mixture, so that targets whose laws
    have other scales are told together; own sources and others apart.
    """
    M = len(own)
    unit = terms.gamma / np.maximum(terms.theta(np.full(M, 1 / M)), 1e-12)
    effect = terms.phi * unit
    usual = [max(_root_mean_square(effect[mask]), least) for mask, least in ((own, LEAST_EFFECT), (~own, LEAST_EFFECT))]
    return np.where(own, max(usual), usual[1]) / np.maximum(unit, 1e-12)


def _root_mean_square(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
