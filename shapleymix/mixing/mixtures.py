"""What an optimisation answers: the mixture with its proof, its error bars and its rivals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shapleymix.mixing.certificate import BindingCap, Certificate
from shapleymix.records import FloatArray, Record


@dataclass(frozen=True)
class Rival(Record):
    """A baseline mixture at the same budget.

    `gain` is its objective less the optimum's (nats, positive = the optimum is better), with an interval over the
    bootstrap replicates; `probability` the share of replicates in which the optimum is better. NaN without
    replicates. `within_bounds` says whether it obeys the caps, floors and groups of the problem.
    """

    kind = "rival"

    name: str
    p: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float
    within_bounds: bool


@dataclass(frozen=True)
class Mixture(Record):
    """The mixture to train on, for N parameters and D tokens.

    Attributes
    ----------
    p : (M,) ratios of tokens; p_low, p_high : (M,) interval of the optimum over bootstrap replicates (NaN without
        replicates, and for a method that is not `exact`: the optimum's interval is not its).
    losses, losses_low, losses_high : (K,) predicted losses at p, nats per token, with the law's interval.
    weights : (K,) what the objective multiplies the losses by; weights_origin : where they are from.
    objective : value at p, with its interval over replicates.
    certificate : bound on what any other feasible mixture could gain; NaN where none exists.
    caps, floors : (M,) bounds; binding : sources at their cap, with shadow prices.
    epochs : (M,) realised repetitions p D / available, NaN where the available tokens are not known.
    baselines : comparisons with other mixtures.
    excess, distance : for a method other than `exact`, objective less the exact one's, and L1 distance to it.
    """

    kind = "mixture"

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    p: FloatArray
    p_low: FloatArray
    p_high: FloatArray
    losses: FloatArray
    losses_low: FloatArray
    losses_high: FloatArray
    weights: FloatArray
    weights_origin: str
    objective_kind: str
    objective: float
    objective_low: float
    objective_high: float
    certificate: Certificate
    caps: FloatArray
    floors: FloatArray
    binding: tuple[BindingCap, ...]
    available: FloatArray
    epochs: FloatArray
    baselines: tuple[Rival, ...]
    method: str
    engine: str
    excess: float
    distance: float
    level: float
    replicates: int
    notices: tuple[str, ...]
    provenance: dict[str, Any]

    def to_document(self) -> dict[str, Any]:
        """As every result, with the ratios by name for those who read the file."""
        return super().to_document() | {"mixture": self.mixture}

    @property
    def mixture(self) -> dict[str, float]:
        """Ratio of every source, unrounded."""
        return dict(zip(self.sources, self.p.tolist(), strict=True))

    @property
    def gap(self) -> float:
        """Excess over the optimum, at most; nats."""
        return self.certificate.gap

    @property
    def relative_gap(self) -> float:
        """`gap` in units of the objective."""
        return self.certificate.relative_gap

    @property
    def lower_bound(self) -> float:
        """No feasible mixture has a lower objective."""
        return self.certificate.lower_bound

    @property
    def shadow_prices(self) -> dict[str, float]:
        """Nats saved per extra billion unique tokens, for each source at its cap."""
        return {cap.source: cap.per_billion_tokens for cap in self.binding}
