"""Aggregate transfer `Theta_j = sum_i phi_ij p_i^a_j`, and what the laws `C_j Theta_j^-gamma_j` share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.core import CoreLaw
from shapleymix.laws.symbols import fitted, over_runs
from shapleymix.laws.terms import PowerTerms
from shapleymix.records import BoolArray, FloatArray

NOTHING = -1e300  # for the logarithm of zero: any exponent makes a power of 0 of it


@dataclass(frozen=True)
class Aggregate:
    """log Theta (..., R, K), and the shares `phi_ij p_i^a / Theta_j` (..., R, M, K), which sum to one over sources."""

    log_theta: FloatArray
    shares: FloatArray

    @classmethod
    def of(cls, pieces: FloatArray) -> Aggregate:
        """From `phi_ij p_i^a`, shape (..., R, M, K)."""
        theta = over_sources(pieces)
        return cls(safe_log(theta), pieces / np.where(theta > 0, theta, 1.0)[..., None, :])


def over_sources(pieces: FloatArray) -> FloatArray:
    """Sum over the sources' axis; several times faster than `sum(axis=-2)` where the last axis is short."""
    return np.einsum("...mk->...k", pieces)


def mix(p: FloatArray, phi: FloatArray) -> FloatArray:
    """`sum_i p_ri phi_ij`, shape (..., R, K), by one matrix product whatever the leading axes of phi."""
    return np.ascontiguousarray(np.moveaxis(np.tensordot(p, phi, axes=(1, phi.ndim - 2)), 0, -2))


def safe_log(theta: FloatArray) -> FloatArray:
    """log Theta, and 0 where Theta = 0, which callers mask: no law is defined there."""
    return np.log(np.where(theta > 0, theta, 1.0))


def concave_powers(p: FloatArray, a: FloatArray) -> FloatArray:
    """`p_ri ^ a_ij`, shape (..., R, M, K), with 0^a = 0; a is (..., M, K), or (..., 1, K) for one exponent a target."""
    found = log_ratios(p, NOTHING)[:, :, None] * a[..., None, :, :]
    with np.errstate(under="ignore"):
        return np.exp(found, out=found)


def log_ratios(p: FloatArray, nothing: float = 0.0) -> FloatArray:
    """log p, and `nothing` where p = 0: 0 where callers mask it."""
    return np.where(p > 0, np.log(np.where(p > 0, p, 1.0)), nothing)


def strength(*start: float) -> FloatArray:
    """Declare gamma, how strongly transfer acts; members say where their search begins."""
    return fitted(low=1e-6, high=20.0, start=start, typical=(0.1, 0.3))


def concavity(*start: float) -> FloatArray:
    """Declare an exponent of ratios, in (0, 1]; 1 is no bound of the search but the law that is linear in them."""
    return fitted(low=0.05, high=1.0, start=start, typical=(0.4, 0.8))


@dataclass(frozen=True)
class TransferLaw(CoreLaw):
    """`L_j = C_j(N, D) Theta_j(p)^-gamma_j`; members say what phi and a are made of (ShapleyLaw paper, section 3.3)."""

    gamma: FloatArray = strength()

    def phi(self) -> FloatArray:
        """Transfer coefficients, shape (..., M, K)."""
        raise NotImplementedError

    def exponent(self) -> FloatArray | None:
        """The exponents of the ratios, shape (..., M, K) or (..., 1, K), or None for 1."""
        return None

    def theta(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Theta, shape (..., R, K); of most members the same at every budget."""
        a = self.exponent()
        if a is None:
            return mix(p, self.phi())
        return np.einsum("...rmk,...mk->...rk", concave_powers(p, a), self.phi())

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        theta = self.theta(p, N, D)
        loss = self.core(N, D) * np.exp(-over_runs(self.gamma) * safe_log(theta))
        return np.where(theta > 0, loss, np.nan)

    def defined(self, p: FloatArray) -> BoolArray:
        one = np.ones(len(p))
        return self.theta(p, one, one) > 0

    def aggregate(self, p: FloatArray) -> Aggregate:
        """Theta with the pieces that derivatives by phi and a need."""
        a = self.exponent()
        powers = p[:, :, None] if a is None else concave_powers(p, a)
        return Aggregate.of(powers * self.phi()[..., None, :, :])

    def transfer_expansion(
        self, N: FloatArray, D: FloatArray, log_theta: FloatArray
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """log L from log Theta, and its derivatives by the core's symbols and by log gamma."""
        core, slopes = self.core_expansion(N, D)
        factor = over_runs(self.gamma) * log_theta
        return np.log(core) - factor, slopes | {"gamma": -factor}

    def a_slope(self, p: FloatArray, found: Aggregate) -> FloatArray:
        """Derivative of log L by log a, for members with one exponent a target."""
        mean_log = np.einsum("...rmk,rm->...rk", found.shares, log_ratios(p))
        return -over_runs(self.gamma) * np.asarray(self.exponent()) * mean_log

    def terms(self, N: float, D: float) -> PowerTerms:
        phi = self.phi()
        a = self.exponent()
        s = None if a is None else np.broadcast_to(a, np.broadcast_shapes(a.shape, phi.shape))
        scale = self.core_at(N, D)
        return PowerTerms(np.zeros_like(scale), scale, self.gamma, phi, s)
