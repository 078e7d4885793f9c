"""Transfer learned from the log, above a base that every source gives: from four runs to thousands.

The base is what all sources give alike, for their ratios sum to one. Coefficients are never negative and are shrunk to
zero, so that a source of which little is known is like any other; a target's own source is hardly shrunk. As gamma
grows the law becomes the exponential `C exp(-sum_i u_ij p_i^s_ij)`; with large u it forgets the base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.laws.base import Inputs, Observations, require_transfer
from shapleymix.laws.core import EXPONENT
from shapleymix.laws.symbols import Belief, Knobs, fitted, given, over_runs
from shapleymix.laws.terms import PowerTerms
from shapleymix.laws.transfer import TransferLaw, concave_powers, concavity, log_ratios
from shapleymix.records import BoolArray, FloatArray

FIRST = 0.1  # coefficient of every source from which a search begins: at zero its slope in the exponents is zero
RELIEF = 30.0  # times the spread of other sources' coefficients has a target's own
SPREADS = {"gamma": 0.5, "a": 0.3, "c": 0.3}  # of their logarithms among targets of one log


@dataclass(frozen=True)
class LearnedBase(TransferLaw):
    """`Theta_j = 1 + sum_i (u_ij / gamma_j) p_i^s_ij`, u >= 0, s = a for the target's own source and c for the others.

    A target that is no source has no own data, and its `a` means nothing. Where a transfer matrix is given, the u of
    other sources are shrunk to a multiple of NSV_ij, as large as cross-validation says that it helps; else to zero.
    """

    kind = "law/learned-base"
    name = "learned-base"
    reference = "this library; the form of MARINER (Marin 2026) and of the ShapleyLaw paper, section 3.3, as limits"
    assumption = "a source is like any other until the log shows that it helps, with diminishing returns in each ratio"
    needs = ("mixture",)
    threshold = 1e-2
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "u": (0.5, 0.05, 0.15, 1.5, 5.0),
        "gamma": (0.2, 0.05, 0.1, 0.4, 1.0, 3.0),
        "c": (0.45, 0.3, 0.6, 0.8),
        "a": (0.45, 0.3, 0.6, 0.8),
        "sv": (0.02, 0.5, 2.0),
    }

    a: FloatArray = concavity(0.45)
    c: FloatArray = concavity(0.45)
    u: FloatArray = fitted(
        "MK", role="coefficients", positive=False, low=0.0, high=1e3, start=(FIRST,), typical=(0.05, 0.8)
    )
    own: FloatArray = given("MK")
    nsv: FloatArray = given("MK")

    def phi(self) -> FloatArray:
        return self.u / self.gamma[..., None, :]

    def exponent(self) -> FloatArray:
        return np.where(self.own > 0, self.a[..., None, :], self.c[..., None, :])

    def theta(self, p: FloatArray) -> FloatArray:
        return 1.0 + super().theta(p)

    def defined(self, p: FloatArray) -> BoolArray:
        return np.ones((*np.shape(self.gamma)[:-1], len(p), np.shape(self.gamma)[-1]), dtype=bool)

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        gamma = over_runs(self.gamma)
        exponent, phi = self.exponent(), self.phi()
        powers = concave_powers(p, exponent)  # (..., R, M, K)
        helped = np.einsum("...rmk,...mk->...rk", powers, phi)
        theta = 1.0 + helped
        log_theta = np.log(theta)
        core, slopes = self.core_expansion(N, D)
        powers *= (-1.0 / theta)[..., None, :]
        by_log = powers * log_ratios(p)[:, :, None]
        steep = self.u * exponent
        return np.log(core) - gamma * log_theta, slopes | {
            "gamma": -gamma * (log_theta - helped / theta),
            "u": powers,
            "a": np.einsum("...rmk,...mk->...rk", by_log, steep * self.own),
            "c": np.einsum("...rmk,...mk->...rk", by_log, steep * (self.own == 0)),
        }

    def terms(self, N: float, D: float) -> PowerTerms:
        scale = self.core_at(N, D)
        s = np.broadcast_to(self.exponent(), self.u.shape)
        return PowerTerms(np.zeros_like(scale), scale, self.gamma, self.phi(), s, base=np.ones_like(scale))

    @classmethod
    def beliefs(cls, knobs: Knobs, givens: Mapping[str, FloatArray]) -> dict[str, Belief]:
        own = givens["own"] > 0
        spread = knobs["u"] * np.where(own, RELIEF, 1.0)
        center = np.where(own, 0.0, knobs["sv"] * knobs["u"] * givens["nsv"])
        shapes = {name: Belief(float(np.log(knobs[name])), sd) for name, sd in SPREADS.items()}
        return shapes | {"alpha": EXPONENT["N"], "beta": EXPONENT["D"], "u": Belief(center, spread)}

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        same = [[source == target for target in inputs.targets] for source in inputs.sources]
        own = np.array(same, dtype=np.float64).reshape(len(inputs.sources), len(inputs.targets))
        if inputs.transfer is None:
            return {"own": own, "nsv": np.zeros_like(own)}
        return {"own": own, "nsv": require_transfer(inputs, cls.name).nsv}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        targets = observed.log_loss.shape[1]
        found = {name: np.full((1, targets), cls.knobs[name][0]) for name in SPREADS}
        return found | {"u": np.full((1, *givens["own"].shape), FIRST)}
