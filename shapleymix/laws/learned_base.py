"""Transfer learned from the log, above a base that every source gives: from four runs to thousands.

The base is what all sources give alike, for their ratios sum to one. Coefficients are never negative and are shrunk to
zero, so that a source of which little is known is like any other; a target's own source is hardly shrunk. As gamma
grows, the loss above its floor becomes the exponential `exp(-sum_i u_ij p_i^s_ij)`, in units of `(1 - floor) C`; with
large u it forgets the base.

A larger model, or a longer training, makes more of a target's own data: small models that have seen few tokens are
nearly alike whatever their mixture. By `g_j = exp(x_j)`, where `gamma_j x_j` is a share eta_j of the fall of log C_j
from the smallest size to N (at the fewest tokens), and a share zeta_j of its fall from the fewest tokens to D (at N);
both are fitted, and shrunk to nothing. Where own data do most of the help, a mixture without any keeps `C^(1 - eta)` of
the one fall and `C^(1 - zeta)` of the other, in its loss above the floor; the floor itself falls as C does. Neither
share is more than one, so that no prediction rises with D, whatever the mixture, nor with N from the fewest tokens on:

    d log L / d log D = (1 + zeta b (1 - floor C / L)) d log C / d log D,    b between -1 and 1.

What no mixture removes is a share of the core, shrunk to nothing (`floor`): without it the loss of a target of which a
little of its own data tells nearly all would fall on as a power of their ratio.

The fall of a core ends at E, and the growth with it: powers of N and D, which know no end, promised that more tokens
make a language with little of its own data ever worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from shapleymix.laws.base import Belief, Budget, Inputs, Knobs, fitted, given, require_transfer
from shapleymix.laws.core import EXPONENT_PRIOR
from shapleymix.laws.mixture_laws import TransferLaw, concavity, strength
from shapleymix.laws.pieces import Pieces, log_ratios, over_sources, powers, sum_over_sources
from shapleymix.records import BoolArray, FloatArray
from shapleymix.tables.languages import own_data

FIRST = 0.1  # coefficient of every source from which a search begins: at zero its slope in the exponents is zero
RELIEF, OF_PARTS = 30.0, 3.0  # times the spread of other sources' coefficients has a target's own, or each of its parts
SPREADS = {"gamma": 0.5, "a": 0.3, "c": 0.3}  # of their logarithms among targets of one log
GROWTH = 0.5
"""Spread of eta and zeta about 0. Held-out errors hardly change with 0.35 to 1 (our six languages)."""
FLOOR = 0.2
"""Spread of the floor about 0: RegMix's errors fall by 3 to 12%, those of other logs hardly change (0.2 to 1)."""


LEAST, MOST = 1e-300, 1e300  # of a core of which a logarithm is taken
FURTHEST = 200.0  # of x: e to that is as good as infinite, and its products are not


@dataclass(frozen=True)
class Growth:
    """How own data's help has grown by each run's budget, `g = exp(x)`, with the falls that say so, (..., R, K).

    Attributes
    ----------
    x : array (..., R, K)
        `(eta size + zeta data) / gamma`.
    factor : array (..., R, K)
        g, of the help of own data.
    size, data : array (..., R, K)
        By how much log C falls from the smallest size to N (at the fewest tokens), and from these to D (at N).
    help : array (..., 1, K)
        Own data's help at an even ratio, where nothing has grown.
    scale : array (..., R, K)
        R_j, by which Theta is divided, so that growth tells mixtures apart and moves no even one's loss.
    """

    x: FloatArray
    factor: FloatArray
    size: FloatArray
    data: FloatArray
    help: FloatArray
    scale: FloatArray


@dataclass(frozen=True)
class LearnedBase(TransferLaw):
    """`L = C (floor + (1 - floor) Theta^-gamma)`, `Theta_j = (1 + sum_i g_ij (u_ij / gamma_j) p_i^s_ij) / R_j`.

    u >= 0. For the target's own source s = a and `g^gamma = (C(N0, D0) / C(N, D0))^eta (C(N, D0) / C(N, D))^zeta`, for
    others s = c and g = 1.

    C is the core, N0 and D0 (`first_N`, `first_D`) are the runs' smallest N and D. R_j, the same ratio of own data's
    help alone at an even ratio e, `(1 + g h) / (1 + h)` with `h = (u / gamma) e^a`, leaves the level of the losses to
    the core; of sources that no run holds e knows nothing.

    A target whose own source no run holds has no own data, and no a, eta and zeta (`idle`). Where a transfer matrix is
    given, the u of other sources are shrunk to a multiple of NSV_ij, as large as cross-validation says that it helps;
    else to zero.
    """

    kind = "law/learned-base"
    name = "learned-base"
    reference = (
        "this library; the form of MARINER (Marin 2026) and of the ShapleyLaw paper, section 3.3, as limits at floor 0"
    )
    assumption = "all sources start out equally useful, the runs must show otherwise; returns diminish in each ratio"
    needs = ("mixture",)
    threshold = 1e-2
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {
        "sv": (0.02, 0.5, 2.0),
        "gamma": (0.2, 0.05, 0.5, 2.0),
        "kin": (0.0, 3.0, 30.0),
        "u": (0.5, 0.05, 0.15, 1.5, 5.0),
        "c": (0.45, 0.3, 0.7),
        "a": (0.45, 0.3, 0.7),
    }

    gamma: FloatArray = strength(0.2)
    a: FloatArray = concavity(0.45)
    c: FloatArray = concavity(0.45)
    u: FloatArray = fitted("MK", role="coefficients", positive=False, low=0.0, high=1e3, start=(FIRST,))
    eta: FloatArray = fitted(positive=False, low=-1.0, high=1.0, budget="N", start=(0.0,))
    zeta: FloatArray = fitted(positive=False, low=-1.0, high=1.0, budget="D", start=(0.0,))
    floor: FloatArray = fitted(positive=False, low=0.0, high=0.95, start=(0.0,))
    own: FloatArray = given("MK")
    nsv: FloatArray = given("MK")
    siblings: FloatArray = given("MK")
    even: FloatArray = given("K")
    first_N: FloatArray = given("K")
    first_D: FloatArray = given("K")

    def phi(self) -> FloatArray:
        return self.u / self.gamma[..., None, :]

    def exponent(self) -> FloatArray:
        return np.where(self.own > 0, self.a[..., None, :], self.c[..., None, :])

    def at(self, N: FloatArray | float, D: FloatArray | float) -> tuple[Self, FloatArray, FloatArray]:
        """The same; where all runs have one budget, it stands for each, and nothing is computed run by run."""
        law, N, D = super().at(N, D)
        one = N.ndim > 0 and bool((N[:1] == N).all() and (D[:1] == D).all())
        return (law, N[:1], D[:1]) if one else (law, N, D)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces:
        law, N, D = self.at(N, D)
        cores = [law.core_loss(*budget) for budget in law.path_of(N, D)]
        growth, core = law.growth(cores), cores[-1]
        own = np.where(law.own > 0, growth.factor[..., None, :], 1.0)
        phi = law.phi() * own / growth.scale[..., None, :]
        s = np.broadcast_to(law.exponent(), np.broadcast_shapes(law.exponent().shape, law.u.shape))
        return Pieces("power", law.floor * core, (1 - law.floor) * core, law.gamma, phi, s, 1.0 / growth.scale)

    def path_of(self, N: FloatArray, D: FloatArray) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """The budgets between which own data's help grows: first the size, at the fewest tokens, then the tokens."""
        return (self.first_N, self.first_D), (N, self.first_D), (N, D)

    def growth(self, cores: Sequence[FloatArray]) -> Growth:
        """How own data's help has grown along a path with these cores, by a law whose symbols have the axes of N, D."""
        first, between, last = (np.log(np.clip(core, LEAST, MOST)) for core in cores)
        size, data = first - between, between - last
        x = np.clip((self.eta * size + self.zeta * data) / self.gamma, -FURTHEST, FURTHEST)
        factor, even = np.exp(x), over_sources(self.phi(), self.own) * self.even**self.a
        return Growth(x, factor, size, data, even, (1.0 + even * factor) / (1.0 + even))

    def growth_slopes(self, growth: Growth, falls: Sequence[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
        """Derivatives of x by the logarithm of each symbol on which it hangs, by eta and zeta themselves.

        `falls` are those of log C along the path.
        """
        first, between, last = falls
        moves = (np.abs(growth.x) < FURTHEST) / self.gamma
        found = {
            name: moves * (self.eta * (first[name] - between[name]) + self.zeta * (between[name] - last[name]))
            for name in last
        }
        shares = {"eta": moves * growth.size, "zeta": moves * growth.data}
        return found | shares | {"gamma": -moves * self.gamma * growth.x}

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        law, N, D = self.at(N, D)
        cores, falls = zip(*(law.core_and_slopes(*budget) for budget in law.path_of(N, D)), strict=True)
        gamma, growth, exponent = law.gamma, law.growth(cores), law.exponent()
        factor, before, after = growth.factor, 1.0 + growth.help, 1.0 + growth.help * growth.factor
        raised, phi = powers(p[..., None], exponent), law.phi()  # (..., R, M, K)
        helped, own = sum_over_sources(raised, phi, phi * law.own)
        helped = helped + (factor - 1.0) * own
        theta = 1.0 + helped  # times the scale R
        log_theta = np.log(theta) - np.log(growth.scale)
        raised *= (-1.0 / theta)[..., None, :]
        spared = factor / after - 1.0 / before  # of log R by own data's help at an even ratio
        steep = law.u * exponent
        by_a, by_c = sum_over_sources(raised * log_ratios(p)[..., None], steep * law.own, steep * (law.own == 0))
        slopes = {  # of the logarithm of Theta^-gamma, first with the growth x as it is
            "gamma": -gamma * (log_theta - helped / theta - (1.0 / after - 1.0 / before)),
            "a": factor * by_a + gamma * growth.help * spared * law.a * np.log(law.even),
            "c": by_c,
        }
        by_growth = -gamma * (own * factor / theta - growth.help * factor / after)
        for name, by in law.growth_slopes(growth, falls).items():
            slopes[name] = slopes.get(name, 0.0) + by_growth * by
        theta_power = np.exp(-gamma * log_theta)
        loss_by_core = law.floor + (1 - law.floor) * theta_power
        reducible = (1 - law.floor) * theta_power / loss_by_core  # share of the loss above its floor
        if np.any(growth.x):
            raised *= np.where(law.own > 0, factor[..., None, :], 1.0)
            raised += law.own * (law.even**law.a * spared)[..., None, :]
        raised *= reducible[..., None, :]
        found = {name: reducible * by for name, by in slopes.items()}
        found |= {name: found.get(name, 0.0) + by for name, by in falls[-1].items()}
        found |= {"u": raised, "floor": (1 - theta_power) / loss_by_core}
        return np.log(cores[-1]) + np.log(loss_by_core), found

    def idle(self) -> dict[str, BoolArray]:
        foreign = ~np.any(self.own > 0, axis=-2)
        return {"a": foreign, "eta": foreign, "zeta": foreign}

    def rescale(self, N0: float, D0: float) -> Self:
        return super().rescale(N0, D0).swap(first_N=self.first_N * N0, first_D=self.first_D * D0)

    def redraw(self, budget: Budget, level: float, deviations: FloatArray) -> Self:
        drawn, here = np.clip(GROWTH * deviations, -1.0, 1.0), np.full(np.shape(self.E), level)
        return self.swap(eta=drawn, first_N=here) if budget == "N" else self.swap(zeta=drawn, first_D=here)

    @classmethod
    def beliefs(cls, knobs: Knobs, givens: Mapping[str, FloatArray]) -> dict[str, Belief]:
        own = givens["own"] > 0
        spread = knobs["u"] * np.where(own, np.where(own.sum(axis=0) > 1, OF_PARTS, RELIEF), 1.0)
        center = np.where(own, 0.0, knobs["sv"] * knobs["u"] * givens["nsv"])
        shapes = {name: Belief(float(np.log(knobs[name])), sd) for name, sd in SPREADS.items()}
        u = Belief(center, spread, givens["siblings"], knobs["kin"])
        growth = {"eta": Belief(0.0, GROWTH), "zeta": Belief(0.0, GROWTH), "floor": Belief(0.0, FLOOR)}
        return shapes | growth | {"alpha": EXPONENT_PRIOR["N"], "beta": EXPONENT_PRIOR["D"], "u": u}

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        in_runs = np.ones(len(inputs.sources), dtype=bool) if inputs.in_runs is None else inputs.in_runs
        own = own_data(inputs.paths, inputs.targets) * in_runs[:, None]
        parents = [path.rpartition("/")[0] or path for path in inputs.paths]
        siblings = np.unique(parents, return_inverse=True)[1][:, None] + len(parents) * own
        nsv = np.zeros(own.shape) if inputs.transfer is None else require_transfer(inputs, cls.name).nsv
        matrices = {"own": own.astype(np.float64), "nsv": nsv, "siblings": siblings.astype(np.float64)}
        alike = {"even": 1.0 / max(in_runs.sum(), 1), "first_N": inputs.least[0], "first_D": inputs.least[1]}
        return matrices | {name: np.full(len(inputs.targets), one) for name, one in alike.items()}
