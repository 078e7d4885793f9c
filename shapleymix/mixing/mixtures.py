"""What an optimisation answers: the mixture with its proof, its error bars and its rivals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from shapleymix.display import cut, text_table
from shapleymix.files import Json
from shapleymix.laws.terms import Terms
from shapleymix.mixing.baselines import epochs_of
from shapleymix.mixing.certificate import FEASIBLE, Answer, Certificate, violation
from shapleymix.mixing.closed_forms import EXACT
from shapleymix.mixing.gains import gain, interval
from shapleymix.mixing.judgement import judged
from shapleymix.mixing.prices import Price, prices_of
from shapleymix.mixing.problem import Task
from shapleymix.mixing.repetition import repetition
from shapleymix.mixing.weights import Weights
from shapleymix.mixing.what_if import Change, WhatIf, answered
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular
from shapleymix.tables.sizes import format_size


@dataclass(frozen=True)
class Rival(Record):
    """A baseline mixture at the same budget.

    `objective` is its mean or worst loss, and `penalty` what kl KL(p || anchor) adds to it. `gain` is its loss less the
    optimum's (nats, positive = the optimum is better), with an interval over the bootstrap replicates; `probability`
    the share of replicates in which the optimum is better. NaN without replicates, and where `reason` says why there
    is no number. `within_bounds` says whether it obeys every bound of the problem.
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
    penalty: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class Mixture(Tabular, Record):
    """The mixture to train on, for N parameters and D tokens.

    Attributes
    ----------
    p : array (M,)
        Ratios of tokens.
    p_low, p_high : array (M,)
        Interval of the optimum over bootstrap replicates; NaN without replicates, and for methods other than `exact`.
    losses, losses_low, losses_high : array (K,)
        Predicted losses at p, nats per token, with the law's interval.
    weights, weights_origin : array (K,) and str
        Weights of the losses in the objective, and where they come from.
    objective : float
        Mean or worst loss at p, with its interval over replicates.
    penalty : float
        The term kl * KL(p || anchor), nats.
    kl, anchor : float and array (M,), optional
        Weight of the penalty and the mixture that it pulls towards; None without a penalty.
    certificate : Certificate
        Bound on what any other feasible mixture could gain; NaN where none exists.
    caps, floors : array (M,)
        Bounds of the ratios.
    binding : tuple of Price
        Bounds that hold the optimum back, with their shadow prices.
    epochs : array (M,)
        Realised repetitions p D / available, NaN where the available tokens are not known.
    baselines : tuple of Rival
        Comparisons with other mixtures.
    what_if : tuple of WhatIf
        The optimum with other unique tokens at hand, for each change that was asked for.
    excess, distance : float
        For a method other than `exact`: how much its objective exceeds the exact one's, and the L1 distance between the
        two.
    """

    kind = "mixture"
    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "targets": "K", "p": "M", "p_low": "M", "p_high": "M", "losses": "K", "losses_low": "K",
        "losses_high": "K", "weights": "K", "caps": "M", "floors": "M", "available": "M", "epochs": "M",
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
    provenance: dict[str, Any]
    penalty: float = 0.0
    kl: float = 0.0
    anchor: FloatArray | None = None
    what_if: tuple[WhatIf, ...] = ()

    def __post_init__(self) -> None:
        if not (self.p >= -FEASIBLE).all() or not abs(self.p.sum() - 1) <= CONVERGED:
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
        proof = f"no mixture within the bounds is better by more than {self.gap:.1e}"
        return "\n".join(
            [
                f"Mixture at N = {format_size(self.N)}, D = {format_size(self.D)}: {self.objective_kind} loss "
                f"{self.objective:.4f} nats ({self.weights_origin.split(':')[0]})",
                f"  {proof if np.isfinite(self.gap) else 'no certificate'}",
                *text_table(self.columns()),
                *(cut(f"warning: {notice}") for notice in self.notices[:3]),
            ]
        )

    def to_document(self) -> dict[str, Json]:
        """The one document of a mixture: what is saved, printed as JSON, and read wherever a mixture is meant.

        Beside the fields, `mixture` holds the ratios by name, `by_source` and `by_target` what is known of each, and
        `rivals` the mixtures that it was compared with, for those who read the file.
        """
        document = super().to_document()
        source = {"p": "ratio", "p_low": "low", "p_high": "high", "floors": "floor", "caps": "cap"}
        source |= {"available": "available", "epochs": "epochs"}
        target = {"losses": "loss", "losses_low": "low", "losses_high": "high", "weights": "weight"}
        rivals = {rival.name: dict(zip(self.sources, rival.p.tolist(), strict=True)) for rival in self.baselines}
        return document | {
            "mixture": self.mixture,
            "by_source": _by_label(self.sources, document, source),
            "by_target": _by_label(self.targets, document, target),
            "rivals": rivals,
        }

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
        """Nats saved per unit of ratio that a bound gives way, for each source or group at one."""
        return {price.source: price.per_ratio for price in self.binding}


def _by_label(
    labels: tuple[str, ...], document: Mapping[str, Json], fields: Mapping[str, str]
) -> dict[str, dict[str, Json]]:
    """Columns of a document as one row of named values for each label."""
    columns = {name: cast(list[Json], document[field]) for field, name in fields.items()}
    return {label: {name: column[row] for name, column in columns.items()} for row, label in enumerate(labels)}


CONVERGED = 1e-6
NO_SUPPLY = "no available tokens are given (languages table): no natural or smoothed mixture to compare with"


@dataclass(frozen=True)
class Summary:
    """All that is known of one solved budget: `best` is the exact answer, `answer` that of the method asked for,
    `replicates` the law's bootstrap (or None) and `optima` (B, M) the optimum under each."""

    fit: Any
    N: float
    D: float
    demands: Any
    task: Task
    weights: Weights
    answer: Answer
    best: Answer
    replicates: Terms | None
    optima: FloatArray | None
    notices: tuple[str, ...]
    changes: tuple[Change, ...] = ()

    @property
    def level(self) -> float:
        """Probability of the intervals."""
        return self.demands.level


def assemble(summary: Summary, baselines: dict[str, FloatArray]) -> Mixture:
    """The reported mixture."""
    task, answer, bounds = summary.task, summary.answer, summary.task.constraints
    exact = summary.demands.method == EXACT
    seen = judged(summary.fit, answer.p, baselines, summary.N, summary.D, summary.level, summary.demands.strict)
    predicted = seen.optimum
    spread = interval(summary.optima if exact else None, summary.level, len(answer.p))
    reasons = [seen.reason(row, task.w) for row in range(1 + len(baselines))]
    values = None if reasons[0] else _values(summary, answer.p)
    low, high = interval(None if values is None else values[:, None], summary.level, 1)
    return Mixture(
        sources=tuple(summary.fit.sources),
        targets=tuple(summary.fit.targets),
        N=summary.N,
        D=summary.D,
        p=answer.p,
        p_low=spread[0],
        p_high=spread[1],
        losses=np.asarray(predicted.losses, dtype=float)[0],
        losses_low=np.asarray(predicted.low, dtype=float)[0],
        losses_high=np.asarray(predicted.high, dtype=float)[0],
        weights=task.w,
        weights_origin=summary.weights.origin,
        objective_kind=task.objective,
        objective=np.nan if reasons[0] else float(task.value(answer.p)),
        objective_low=float(low[0]),
        objective_high=float(high[0]),
        certificate=answer.certificate,
        caps=bounds.upper,
        floors=bounds.lower,
        binding=prices_of(task, answer) if exact and answer.proved else (),
        available=bounds.available,
        epochs=epochs_of(answer.p, bounds.available, bounds.D),
        baselines=tuple(
            _rival(summary, name, p, reasons[0] or reason)
            for (name, p), reason in zip(baselines.items(), reasons[1:], strict=True)
        ),
        method=summary.demands.method if answer.proved else answer.engine,
        engine=answer.engine,
        excess=answer.certificate.objective - summary.best.certificate.objective if answer.proved else np.nan,
        distance=float(np.abs(answer.p - summary.best.p).sum()) if answer.proved else np.nan,
        level=summary.level,
        replicates=0 if summary.optima is None else len(summary.optima),
        notices=_notices(summary, baselines, seen.warnings, reasons[0]),
        provenance=_provenance(summary),
        penalty=task.penalty(answer.p),
        kl=task.kl,
        anchor=task.anchor,
        what_if=answered(
            summary.fit, summary.N, summary.demands, summary.changes, task, answer, summary.replicates, reasons[0]
        ),
    )


def _values(summary: Summary, p: FloatArray) -> FloatArray | None:
    """The mean or worst loss of one mixture under each replicate (B,)."""
    return None if summary.replicates is None else summary.task.value(p, summary.replicates)


def _rival(summary: Summary, name: str, p: FloatArray, reason: str) -> Rival:
    task, replicates = summary.task, None if reason else summary.replicates
    values = None if replicates is None else task.value(p, replicates)[:, None]
    low, high = interval(values, summary.level, 1)
    found = gain(task, summary.answer.p, p, replicates, summary.level)
    return Rival(
        name=name,
        p=p,
        objective=np.nan if reason else float(task.value(p)),
        objective_low=float(low[0]),
        objective_high=float(high[0]),
        gain=np.nan if reason else found.value,
        gain_low=found.low,
        gain_high=found.high,
        probability=found.probability,
        within_bounds=violation(p, task.constraints) <= FEASIBLE,
        penalty=task.penalty(p),
        reason=reason,
    )


def _notices(
    summary: Summary, baselines: dict[str, FloatArray], warnings: tuple[str, ...], undefined: str
) -> tuple[str, ...]:
    task, answer, bounds = summary.task, summary.answer, summary.task.constraints
    found = [*summary.notices, *warnings]
    for who, p in (("the mixture", answer.p), *((f"the rival {name}", p) for name, p in baselines.items())):
        found += repetition(p, bounds.sources, bounds.available, bounds.D, who)
    if undefined:
        found.append(f"the law is of no use at this mixture: its prediction is {undefined}")
    if not answer.proved:
        found.append("the law is not convex in the mixture: the best of a random search, without a certificate")
    if summary.demands.method != EXACT and violation(answer.p, task.constraints) > FEASIBLE:
        found.append(f"method {summary.demands.method!r} breaks the bounds: it knows nothing of them")
    if summary.demands.method == "first-order-printed":
        found.append("the printed first-order correction has the wrong sign; it is here for reproduction only")
    if summary.demands.method == EXACT and answer.proved and not answer.certificate.relative_gap <= CONVERGED:
        found.append(f"the certificate is loose: relative gap {answer.certificate.relative_gap:.1e}")
    if np.isnan(task.constraints.available).all():
        found.append(NO_SUPPLY)
    if answer.proved and not answer.gradient.any():
        found.append("the objective does not depend on the mixture: every feasible mixture is optimal")
    return tuple(dict.fromkeys(found))


def _provenance(summary: Summary) -> dict[str, Any]:
    from importlib.metadata import version

    own = getattr(summary.fit, "provenance", None)
    return {
        "shapleymix": version("shapleymix"),
        "fit": dict(own) if own else None,
        "seed": summary.demands.seed,
        "kl": summary.task.kl,
        "anchor": None if summary.task.anchor is None else summary.task.anchor.tolist(),
        "groups": list(summary.task.constraints.group_names),
        "further_constraints": len(summary.task.further),
    }
