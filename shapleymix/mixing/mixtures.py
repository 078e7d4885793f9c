"""What an optimisation answers: the mixture with its proof, its error bars and its rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Unpack, cast

import numpy as np

from shapleymix.display import Drawn, cut, short, text_table
from shapleymix.errors import UsageError
from shapleymix.exporting.export import Export, ExportKeywords, export
from shapleymix.fields import AMOUNT, FINITE, ROUNDING, SHARE, Range
from shapleymix.files import Json
from shapleymix.fitting.measures import ERROR, LOSS, Kind
from shapleymix.mixing.certificate import FEASIBLE, Certificate
from shapleymix.mixing.closed_forms import EXACT
from shapleymix.mixing.gains import Rival, verdict_of
from shapleymix.mixing.prices import Price
from shapleymix.mixing.what_if import WhatIf
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.sizes import format_size

UNIT_SUM = 1e-6  # how far the ratios of a stored mixture may be from a sum of 1


@dataclass(frozen=True)
class Mixture(Tabular, Record):
    """The mixture to train on, for N parameters and D tokens.

    Attributes
    ----------
    p, p_low, p_high : array (M,)
        Ratios of tokens, and the optimum's interval over replicates (NaN for methods other than `exact`).
    losses, losses_low, losses_high, weights : array (K,)
        Predicted losses at p, nats per token, with the law's interval; and their weights in the objective.
    objective, penalty : float
        Mean or worst loss at p, with its interval for one run; and the term kl * KL(p || anchor), nats.
    kl, anchor : float and array (M,), optional
        Weight of the penalty and the mixture that it pulls towards; None without a penalty.
    certificate : Certificate
        Bound on what any other feasible mixture could gain; NaN where none exists.
    caps, floors, binding : array (M,) and tuple of Price
        Bounds of the ratios, and those that hold the optimum back, with their shadow prices.
    epochs : array (M,)
        Realised repetitions p D / available, NaN where the available tokens are not known.
    baselines, what_if : tuple of Rival and tuple of WhatIf
        Comparisons with other mixtures, and the optimum under each change of available tokens that was asked for.
    repetition, repetition_cost : array (K,), optional, and float
        Loss that repeated tokens cost each target, and the objective: against unlimited data, nats. Zero where nothing
        is repeated, and for a fit that does not know.
    token_worths : array (M,), optional
        Nats that as many more unique tokens would save as the `unit` of a price counts; NaN where tokens are not known.
    max_epochs : array (M,), optional
        How often each source's tokens may be seen, infinite for no limit.
    min_tokens : array (M,), optional
        Fewest tokens of each source that were asked for, 0 for none.
    cautious : str
        The baseline over which this mixture has the best lower bound of its gain that was found; empty for optima.
    measure : str
        `"loss"` in nats, or `"error"`: losses, objective and gains are error rates of tasks, one less their score.
    excess, distance : float
        For methods other than `exact`: the objective's excess over the exact one's, and the L1 distance to it.
    """

    kind = "mixture"
    plot = Drawn("bars.plot_mixture")
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "targets": "K", "p": "M", "p_low": "M", "p_high": "M", "losses": "K", "losses_low": "K",
        "losses_high": "K", "weights": "K", "caps": "M", "floors": "M", "available": "M", "epochs": "M",
        "repetition": "K", "token_worths": "M", "max_epochs": "M",
        "min_tokens": "M",
    }  # fmt: skip
    ranges: ClassVar[Mapping[str, Range]] = {
        "weights": AMOUNT, "caps": SHARE, "available": AMOUNT, "epochs": AMOUNT, "level": SHARE, "replicates": AMOUNT,
        "penalty": AMOUNT, "kl": AMOUNT, "distance": (-ROUNDING, 2 + ROUNDING), "repetition": AMOUNT,
        "repetition_cost": AMOUNT, "token_worths": AMOUNT, "max_epochs": AMOUNT, "min_tokens": AMOUNT,
        "objective": FINITE, "excess": FINITE,
    }  # fmt: skip

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
    binding: tuple[Price, ...]
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
    provenance: dict[str, Json]
    penalty: float = 0.0
    kl: float = 0.0
    anchor: FloatArray | None = None
    what_if: tuple[WhatIf, ...] = ()
    cautious: str = ""
    repetition: FloatArray | None = None
    repetition_cost: float = 0.0
    token_worths: FloatArray | None = None
    measure: Kind = LOSS
    max_epochs: FloatArray | None = None
    min_tokens: FloatArray | None = None

    def __post_init__(self) -> None:
        if not (self.p >= -FEASIBLE).all() or not abs(self.p.sum() - 1) <= UNIT_SUM:
            raise ValueError("p is no mixture: its ratios are not 0 or more with a sum of 1")
        if not (0 < self.N < np.inf and 0 < self.D < np.inf):
            raise ValueError(f"N = {self.N:g} and D = {self.D:g} are not both positive and finite")
        for rival in self.baselines:
            if rival.p.shape != self.p.shape:
                raise ValueError(f"baselines: {rival.name} has {rival.p.size} ratios for {self.p.size} sources")
        for other in self.what_if:
            if other.p.shape != self.p.shape:
                raise ValueError(f"what_if: {other.name} has {other.p.size} ratios for {self.p.size} sources")

    def columns(self) -> Columns:
        """One row per source."""
        return {"source": self.sources} | {name: getattr(self, name).tolist() for name in ("p", "p_low", "p_high")}

    def summary(self) -> str:
        """The ratios, the objective with its proof, and what to beware of."""
        budget = f"N = {format_size(self.N)}, D = {format_size(self.D)}"
        loss = f"{self.told} ({self.weights_origin.split(':')[0]})"
        proof = f"  no mixture within the bounds is better by more than {self.gap:.1e}"
        told = [cut(f"warning: {notice}") for notice in self.notices if notice != self.verdict][:3]
        head = [f"Mixture at {budget}: {loss}", proof if np.isfinite(self.gap) else "  no certificate"]
        first = [self.verdict] if self.verdict else []
        return "\n".join([*first, *head, *text_table(self.columns()), *told])

    def to_document(self) -> dict[str, Json]:
        """The one document of a mixture: what is saved, printed as JSON, and read wherever a mixture is meant.

        Beside the fields, `verdict` says first which scores are none, and over which rivals nothing can be told to be
        gained (null where there are none of either, or no interval), `mixture` holds the ratios by name, `by_source`
        and `by_target` what is known of each, and `rivals` the mixtures that it was compared with, for those who read
        the file.
        """
        fields = super().to_document()
        head = {name: fields.pop(name) for name in ("schema_version", "kind")}
        document = {**head, "verdict": self.verdict or None, **fields}
        source = {"p": "ratio", "p_low": "low", "p_high": "high", "floors": "floor", "caps": "cap"}
        source |= {"available": "available", "epochs": "epochs"}
        target = {"losses": self.measure, "losses_low": "low", "losses_high": "high", "weights": "weight"}
        source |= {} if self.token_worths is None else {"token_worths": "token_worth"}
        target |= {} if self.repetition is None else {"repetition": "repetition"}
        rivals = {rival.name: dict(zip(self.sources, rival.p.tolist(), strict=True)) for rival in self.baselines}
        return document | {
            "mixture": self.mixture,
            "by_source": _by_label(self.sources, document, source),
            "by_target": _by_label(self.targets, document, target),
            "rivals": rivals,
        }

    def export(self, format: str, **keywords: Unpack[ExportKeywords]) -> Export:
        """The mixture in the form that a trainer takes: `mix.export("megatron", paths="paths.csv").write("blend.txt")`.

        See `shapleymix.export` for the formats and keywords.
        """
        return export(self, format, **keywords)

    @property
    def mixture(self) -> dict[str, float]:
        """Ratio of every source, unrounded."""
        return dict(zip(self.sources, self.p.tolist(), strict=True))

    @property
    def told(self) -> str:
        """The objective in words: a loss in nats, or a score."""
        value = f"loss {self.objective:.4f} nats" if self.measure == LOSS else f"score {1 - self.objective:.4f}"
        return f"{self.objective_kind} {value}"

    @property
    def scores(self) -> dict[str, float]:
        """Predicted score of every task.

        Raises
        ------
        UsageError
            If the mixture was chosen by losses.
        """
        if self.measure != ERROR:
            raise UsageError("this mixture was chosen by losses: it has no scores", hint="optimize a scored_fit")
        return dict(zip(self.targets, (1 - self.losses).tolist(), strict=True))

    @property
    def verdict(self) -> str:
        """What to know first: scores that are none, and over which rivals nothing is gained that can be told."""
        return "; ".join(filter(None, (self._impossible(), self._verdict())))

    def _impossible(self) -> str:
        """The tasks by whose lines the mixture was chosen beyond what a task can score."""
        if self.measure != ERROR:
            return ""
        rows = np.flatnonzero((self.weights > 0) & (self.losses < 0)).tolist()
        if not rows:
            return ""
        told = short([f"{self.targets[row]} ({1 - self.losses[row]:.3g})" for row in rows])
        return (
            f"the mixture was chosen by scores above 1, which are none, of {told}: calibrate by a sigmoid, or leave out"
        )

    def _verdict(self) -> str:
        """Over which rivals nothing is gained that can be told."""
        own = [rival.name for rival in self.baselines if np.array_equal(rival.p, self.p)]
        if self.cautious in own:
            name = self.cautious
            return f"no mixture was found that is better than {name} by more than can be told: this is {name} itself"
        best = self.method == EXACT and self.kl == 0 and bool(np.isfinite(self.gap))
        return verdict_of([rival for rival in self.baselines if rival.name not in own], best=best)

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
        """Nats saved per unit of ratio that a bound gives way, for each source or group at one."""
        return {price.source: price.per_ratio for price in self.binding}


def _by_label(
    labels: tuple[str, ...], document: Mapping[str, Json], fields: Mapping[str, str]
) -> dict[str, dict[str, Json]]:
    """Columns of a document as one row of named values for each label."""
    columns = {name: cast(list[Json], document[field]) for field, name in fields.items()}
    return {label: {name: column[row] for name, column in columns.items()} for row, label in enumerate(labels)}
