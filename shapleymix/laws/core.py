"""The core that most laws share: `C_j(N, D) = E_j + A_j / N^alpha_j + B_j / D^beta_j` (Hoffmann et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shapleymix.laws.base import Law
from shapleymix.laws.parameters import fitted, over_runs
from shapleymix.records import FloatArray


@dataclass(frozen=True)
class CoreLaw(Law):
    """A law built on the Chinchilla core; losses in nats, N in parameters, D in tokens."""

    linear = ("E", "A", "B")

    E: FloatArray = fitted(low=1e-6)
    A: FloatArray = fitted(low=1e-6, core="N")
    alpha: FloatArray = fitted(low=0.02, high=3.0, core="N")
    B: FloatArray = fitted(low=1e-6, core="D")
    beta: FloatArray = fitted(low=0.02, high=3.0, core="D")

    def core_pieces(self, N: FloatArray, D: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """E, A / N^alpha and B / D^beta, the last two of shape (..., R, K)."""
        by_size = over_runs(self.A) * power(N[:, None], -over_runs(self.alpha))
        by_data = over_runs(self.B) * power(D[:, None], -over_runs(self.beta))
        return over_runs(self.E), by_size, by_data

    def core(self, N: FloatArray, D: FloatArray) -> FloatArray:
        """C(N, D), shape (..., R, K)."""
        constant, by_size, by_data = self.core_pieces(N, D)
        return constant + by_size + by_data

    def core_at(self, N: float, D: float) -> FloatArray:
        """C at one budget, shape (..., K)."""
        return self.core(np.array([N]), np.array([D]))[..., 0, :]

    def core_expansion(
        self, N: FloatArray, D: FloatArray, extra: FloatArray | float = 0.0
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """The loss C + extra, and the derivatives of its logarithm by those of E, A, alpha, B, beta."""
        constant, by_size, by_data = self.core_pieces(N, D)
        loss = constant + by_size + by_data + extra
        inverse = 1.0 / loss
        share_N, share_D = by_size * inverse, by_data * inverse
        return loss, {
            "E": constant * inverse,
            "A": share_N,
            "alpha": -share_N * (np.log(N)[:, None] * over_runs(self.alpha)),
            "B": share_D,
            "beta": -share_D * (np.log(D)[:, None] * over_runs(self.beta)),
        }


def power(base: FloatArray, exponent: FloatArray) -> FloatArray:
    """`base ** exponent` for positive bases, by one exponential; the logarithm is taken before broadcasting."""
    return np.exp(exponent * np.log(base))
