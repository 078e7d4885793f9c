"""What an optimisation or a comparison answers: mixtures with their proof, their intervals and their rivals.

Axes: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from shapleymix.display import Columns, Tabular
from shapleymix.files import Json
from shapleymix.mixing.proof import Certificate
from shapleymix.records import FloatArray, Record
from shapleymix.tables.mixtures import epochs_of
from shapleymix.tables.words import format_size

SURE_GAIN = 0.9
"""P(better) below which a gain is within its error bar."""
ROUNDING = 1e-12
"""A gap below this, relative to the objective, is rounding."""
SHOWN = 5
"""Rivals that the verdict names."""
MOST_TIMES = 16
"""Times the tokens beyond which nobody reckons with the number."""
AHEAD = 1e-5
"""Share of the objective by which another mixture must be predicted better to be named first."""
LEAST_SAID = 0.005
"""Ratios below it are left out of the sentence that one repeats."""


def is_sure(low: float, probability: float) -> bool | None:
    """Whether a gain is beyond its error bar; None where it has no interval."""
    return None if np.isnan(low) else bool(low > 0 and probability >= SURE_GAIN)


def list_names(names: Sequence[str]) -> str:
    """Names with commas, of many the first."""
    return ", ".join(names if len(names) <= SHOWN else [*names[: SHOWN - 1], f"{len(names) - SHOWN + 1} others"])


@dataclass(frozen=True)
class Answer(Tabular, Record):
    """What every answer says of its question.

    Attributes
    ----------
    sources, targets : tuple of str
        M labels, and K: of targets, or of tasks.
    N, D : float
        Parameters and tokens.
    weights_origin : str
        Where the weights come from.
    objective_kind, objective_unit : str
        "mean" or "worst"; and the unit of the objective and of every gain, such as "nats".
    measure : str
        `"loss"`, or `"error"`: losses, objective and gains are error rates of tasks, one less their score.
    unit : str
        Unit of the losses: "nats" a token, "bits a byte" or "error rate".
    level : float
        Probability of the intervals.
    available, max_epochs, min_tokens : array (M,)
        Unique tokens at hand (NaN where not known), how often they may be seen (infinite for no limit), and the fewest
        tokens that were asked for.
    read : array (M,)
        Tokens that the run has read already; 0 where it is not begun.
    families : dict of str to tuple of str
        Sources of each family and parent.
    warnings, notices : tuple of str
        At most three things that change what a reader would do, and what else is to be known.
    asked : dict
        The keywords of the `problem` as they were given.
    provenance : dict
        What the answer was made from.
    """

    axes: ClassVar[Mapping[str, str]] = {
        "sources": "M", "targets": "K", "available": "M", "max_epochs": "M", "min_tokens": "M", "read": "M",
    }  # fmt: skip

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    N: float
    D: float
    weights_origin: str
    objective_kind: str
    objective_unit: str
    measure: str
    unit: str
    level: float
    available: FloatArray
    max_epochs: FloatArray
    min_tokens: FloatArray
    read: FloatArray
    families: dict[str, tuple[str, ...]]
    warnings: tuple[str, ...]
    notices: tuple[str, ...]
    asked: dict[str, Json]
    provenance: dict[str, Json]

    @property
    def tokens_at_hand(self) -> dict[str, float]:
        """Unique tokens of the sources of which they are known."""
        return {name: one for name, one in zip(self.sources, self.available.tolist(), strict=True) if one == one}

    def rest_of(self, p: FloatArray) -> FloatArray:
        """Ratios (..., M) of the whole run, or ends of their intervals, as ratios of the tokens still to be read."""
        return np.maximum(p * self.D - self.read, 0.0) / (self.D - self.read.sum()) if self.read.any() else p

    def ratios_of(self, p: FloatArray) -> dict[str, list[float]]:
        """Columns of mixtures (R, M), and the sums of parents: of a begun run the rest first, then of the whole."""
        parts = ({"rest": self.rest_of(p)} if self.read.any() else {}) | {"p": p}
        named = ((part, name, i) for part in parts for i, name in enumerate(self.sources))
        found = {f"{part}_{name}": parts[part][:, i].tolist() for part, name, i in named}
        inside = {name: np.isin(self.sources, members) for name, members in self.families.items()}
        summed = ((part, name, one) for part in parts for name, one in inside.items() if 1 < one.sum() < len(one))
        return found | {f"sum_{part}_{name}": parts[part][:, one].sum(axis=1).tolist() for part, name, one in summed}

    def remaining(self, p: FloatArray) -> dict[str, Any]:
        """What a trainer has still to read of a mixture (M,): ratios by name, what is left of D, and what it `read`.

        Bounds are those of the whole run.
        """
        mixture = dict(zip(self.sources, self.rest_of(p).tolist(), strict=True))
        supply = {name: getattr(self, name) for name in ("available", "max_epochs", "min_tokens", "read")}
        return {"mixture": mixture, "D": self.D - float(self.read.sum()), **supply}


@dataclass(frozen=True)
class Compared(Record):
    """A mixture beside another at the same budget.

    Attributes
    ----------
    name, p : str and array (M,)
        Its name and ratios.
    objective, objective_low, objective_high : float
        Its mean or worst loss with its interval for one run; NaN if a loss of positive weight has no prediction.
    gain, gain_low, gain_high, probability : float
        What one of the two gains over the other, with the interval for one trained run of each, and the probability
        that it is better; NaN where nothing is known of that.
    """

    name: str
    p: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    gain: float
    gain_low: float
    gain_high: float
    probability: float

    @property
    def sure(self) -> bool | None:
        """Whether it is beyond its error bar that the one is better, or None where nothing is known of that."""
        return is_sure(self.gain_low, self.probability)


@dataclass(frozen=True)
class Rival(Compared):
    """Another mixture beside the optimum; `gain` is what the optimum gains over it.

    Attributes
    ----------
    gains, gains_low, gains_high : array (K,)
        What each loss gains over it, with the interval; negative where the optimum gives that target up.
    within_bounds : bool
        Whether it obeys every bound of the problem.
    lead : float
        By how much the optimum is better in all that was minimised: the gain, and what the pull spares.
    better : tuple of str
        Other rivals whose gain over this one is beyond its error bar.
    reason : str
        Why there is no number; empty where there is one.
    times, times_low, times_high : float
        How many times the D of the optimum it must be trained on to be as good, with what the gain's interval makes of
        that; at one N so many times the compute. Infinite if no D is enough, NaN if the runs do not tell what D does.
    """

    kind = "rival"
    axes: ClassVar[Mapping[str, str]] = {"gains": "K", "gains_low": "K", "gains_high": "K"}

    gains: FloatArray
    gains_low: FloatArray
    gains_high: FloatArray
    within_bounds: bool
    lead: float
    better: tuple[str, ...] = ()
    reason: str = ""
    times: float = np.nan
    times_low: float = np.nan
    times_high: float = np.nan


@dataclass(frozen=True)
class Price(Record):
    """A bound that holds the optimum back, and what the optimum without it saves.

    Attributes
    ----------
    source, side : str
        Name of the source, group or constraint, or "distance" for a ball around a mixture; and which of its bounds it
        is: "cap" or "floor".
    bound, origin : float and str
        The ratio of the bound, and where it comes from: "given", "tokens" or "regime".
    per_ratio : float
        Slope of the objective at the bound: what a first, small part of a unit of ratio saves.
    change, unit : float and str
        By how much the bound was relaxed: in "ratio", in "nats" of a KL ball, or by "tokens" (for a cap unique ones).
    saves, saves_low, saves_high, probability : float
        What the optimum of that other problem saves of what is minimised, a pull too, in the mean of many runs, with
        its interval, and the probability that it saves anything.
    """

    kind = "price"

    source: str
    side: str
    bound: float
    origin: str
    per_ratio: float
    change: float
    unit: str
    saves: float = np.nan
    saves_low: float = np.nan
    saves_high: float = np.nan
    probability: float = np.nan


@dataclass(frozen=True)
class WhatIf(Compared):
    """The optimum with other unique tokens at hand, beside that without; `gain` is what the new one gains.

    `name` is the change as it was asked for, and its gain is that of what is minimised, a pull too, by the law alone
    and in the mean of many runs.
    """

    kind = "what-if"


@dataclass(frozen=True)
class Mixture(Answer):
    """The mixture to train on, for N parameters and D tokens.

    Attributes
    ----------
    p, p_low, p_high : array (M,)
        Ratios of tokens, and the interval of the optimum over the fit's replicates (NaN without them).
    losses, losses_low, losses_high, weights : array (K,)
        Predicted losses at p with their intervals; and their weights in the objective.
    objective, objective_low, objective_high, penalty : float
        Mean or worst loss at p, with its interval for one run; and the term kl * KL(p || anchor).
    certificate : Certificate
        Bound on what any other mixture within the bounds could gain; NaN for a law without convexity.
    caps, floors : array (M,)
        Bounds of the ratios.
    binding : tuple of Price
        The bounds that hold the optimum back, the dearest first.
    epochs : array (M,)
        How often the mixture sees each token; NaN where not known.
    p_bytes : array (M,)
        Ratios of bytes, of a begun run those of the rest; NaN where the languages table has no `bytes_per_token` of a
        source in the mixture.
    baselines, what_if : tuple of Rival and tuple of WhatIf
        Comparisons with other mixtures, and the optimum under each change of available tokens that was asked for.
    kl, anchor : float and array (M,), optional
        Weight of the penalty, and the mixture that it pulls towards.
    N_low, N_high, D_low, D_high : float
        Intervals of N and D where these were chosen too; else NaN.
    beyond : dict of str to float
        By what factors N, D, N D, D / N and, of both, their `line` lie outside of the runs, 1 inside; empty without a
        fit's runs.
    indifferent : bool
        Whether the law tells no mixture from another: all within the bounds are as good as this one.
    """

    kind = "mixture"
    axes: ClassVar[Mapping[str, str]] = {
        **Answer.axes,
        "p": "M", "p_low": "M", "p_high": "M", "losses": "K", "losses_low": "K", "losses_high": "K", "weights": "K",
        "caps": "M", "floors": "M", "epochs": "M", "p_bytes": "M", "anchor": "M",
    }  # fmt: skip

    p: FloatArray
    p_low: FloatArray
    p_high: FloatArray
    losses: FloatArray
    losses_low: FloatArray
    losses_high: FloatArray
    weights: FloatArray
    objective: float
    objective_low: float
    objective_high: float
    certificate: Certificate
    caps: FloatArray
    floors: FloatArray
    binding: tuple[Price, ...]
    epochs: FloatArray
    p_bytes: FloatArray
    baselines: tuple[Rival, ...]
    replicates: int
    penalty: float = 0.0
    kl: float = 0.0
    anchor: FloatArray | None = None
    what_if: tuple[WhatIf, ...] = ()
    N_low: float = np.nan
    N_high: float = np.nan
    D_low: float = np.nan
    D_high: float = np.nan
    beyond: dict[str, float] = field(default_factory=dict)
    indifferent: bool = False

    def columns(self) -> Columns:
        """One row per source, and none of sums, so that ratios sum to 1; ratios of bytes where these are known."""
        names = [*(("rest",) if self.read.any() else ()), "p", "p_low", "p_high"]
        names += ["p_bytes"] if np.isfinite(self.p_bytes).all() else []
        names += ["epochs", "epochs_low", "epochs_high"] if self.tokens_at_hand else []
        return {"source": self.sources} | {name: getattr(self, name).tolist() for name in names}

    def headline(self) -> str:
        """The objective with its proof."""
        gap = f"at most {self.gap:.1e} {self.objective_unit} from the best" if self.gap < np.inf else "without a proof"
        loss = f"loss {self.objective:.4f} {self.objective_unit}"
        value = f"score {1 - self.objective:.4f}" if self.measure == "error" else loss
        origin = self.weights_origin.split(":")[0]
        return f"Mixture at {_budget(self)}: {self.objective_kind} {value} ({origin}), {gap}"

    def to_document(self) -> dict[str, Json]:
        """The fields, and for those who read the file the verdict, the ratios by name, and those of the rest."""
        known = {"verdict": self.verdict or None, "conclusion": self.conclusion, "mixture": dict(self.mixture)}
        known |= {"rest": self.remaining(self.p)["mixture"]} if self.read.any() else {}
        return super().to_document() | known

    @property
    def mixture(self) -> dict[str, float]:
        """Ratio of every source, unrounded."""
        return dict(zip(self.sources, self.p.tolist(), strict=True))

    @property
    def rest(self) -> FloatArray:
        """Ratios (M,) of the tokens that are still to be read, of which there are `D - read.sum()`."""
        return self.rest_of(self.p)

    @property
    def epochs_low(self) -> FloatArray:
        """Lower ends (M,) of the epochs, as those of the ratios and of D."""
        return epochs_of(self.p_low, self.available, float(np.fmin(self.D, self.D_low)))

    @property
    def epochs_high(self) -> FloatArray:
        """Upper ends (M,) of the epochs."""
        return np.minimum(epochs_of(self.p_high, self.available, float(np.fmax(self.D, self.D_high))), self.max_epochs)

    @property
    def verdict(self) -> str:
        """Over which rivals the gain is within its error bar, who does better there, and who beats this mixture."""
        others = [one for one in self.baselines if one.sure is False and not np.array_equal(one.p, self.p)]
        unsure, ahead = [one for one in others if one.gain_high >= 0], [one for one in others if one.gain_high < 0]
        better = [one.name for one in ahead if one.within_bounds and one.lead < 0]
        beyond = [one.name for one in ahead if one.name not in better]
        limits = "the bounds" if self.anchor is None else "the bounds or the pull"
        sentences = {
            "This mixture is better than {}, beyond its error bar.": [one.name for one in self.baselines if one.sure],
            "The predicted gain of this mixture over {} is within its error bar.": [one.name for one in unsure],
            "The gain of {} is not.": [f"{list_names(one.better)} over {one.name}" for one in unsure if one.better],
            "{} is better than this mixture, beyond its error bar.": better,
            f"Without {limits} a mixture such as {{}} is better, beyond its error bar.": beyond,
        }
        return " ".join(text.format(list_names(names)) for text, names in sentences.items() if names)

    @property
    def conclusion(self) -> str:
        """What one repeats: the mixture, the likely gain over the best other one, and how far beyond the runs it is."""
        ratios = self._name_ratios(self.rest)
        sentences = [f"Train {'the rest on ' if self.read.any() else ''}{ratios}."]
        others = [one for one in self.baselines if one.within_bounds and not np.array_equal(one.p, self.p)]
        best = min((one for one in others if not one.reason), key=lambda one: one.lead, default=None)
        if self.indifferent:
            sentences = [f"The runs tell no mixture from another: {ratios} is as good as any other within the bounds."]
        elif best is None:
            sentences.append("No other mixture within the bounds is known to compare it with.")
        elif best.lead >= -AHEAD * abs(self.objective) < best.gain:
            sentences.append(f"It is better than {best.name}, the best other mixture, by {self._say_gain(best)}")
        elif best.lead >= -AHEAD * abs(self.objective):
            gain = f"{-best.gain:.3f} {self.objective_unit}"
            sentences.append(f"Without the pull {best.name}, the best other mixture, is better by {gain}.")
        else:  # which comes first: the mixture to train is that one
            gain, other = f"{-best.lead:.3f} {self.objective_unit}", self._name_ratios(self.rest_of(best.p))
            measured = f"By what runs near there measured, {best.name} is better than the law's best by {gain}"
            sentences = [f"{measured}: {other}.", f"By the law alone: {ratios}."]
        off = {name: f"{name} is beyond the runs" for name in self.beyond}
        off |= {"line": "together N and D are off the runs' line"}
        texts = [f"{off[name]} by a factor of {factor:.3g}" for name, factor in self.beyond.items() if factor > 1]
        if texts and best is not None and not np.isnan(best.gain_low):
            level, ranking = self.objective_high - self.objective_low, best.gain_high - best.gain_low
            texts[-1] += f": the loss itself is known within {level / 2:.3f}, the gain within {ranking / 2:.3f}"
        sentences += [f"{' and '.join(texts)}."] if texts else ["N and D are within the runs."] * bool(self.beyond)
        return " ".join(sentences)

    def _name_ratios(self, p: FloatArray) -> str:
        """The largest ratios of a mixture (M,) with their names."""
        order = np.argsort(-p, kind="stable").tolist()
        return list_names([f"{self.sources[i]} {p[i]:.2f}" for i in order if p[i] >= LEAST_SAID])

    def _say_gain(self, rival: Rival) -> str:
        """The gain over a rival, how sure it is, and how many times the tokens the rival would take."""
        spread = "" if np.isnan(rival.gain_low) else f" ({rival.gain_low:.3f} .. {rival.gain_high:.3f})"
        gain = f"{rival.gain:.3f} {self.objective_unit}{spread}{'; that may be chance' * (rival.sure is False)}."
        if not rival.times > 1:
            return gain
        times, low, high = map(format_times, (rival.times, rival.times_low, rival.times_high))
        ends = "" if np.isnan(rival.times_low) else f" ({low} .. {high})"
        return f"{gain} To be as good, that would take {times}{ends} times as many tokens."

    @property
    def gap(self) -> float:
        """Excess over the optimum, at most, in the unit of the objective."""
        return self.certificate.gap

    @property
    def relative_gap(self) -> float:
        """`gap` as a share of the objective."""
        return self.certificate.relative_gap

    @property
    def lower_bound(self) -> float:
        """No feasible mixture has a lower objective."""
        return self.certificate.lower_bound


def format_times(value: float) -> str:
    """How many times the tokens, in words; beyond the most that anybody reckons with no number."""
    return "-" if np.isnan(value) else f"{value:.3g}" if value <= MOST_TIMES else f"over {MOST_TIMES}"


@dataclass(frozen=True)
class MixtureGrid(Tabular, Record):
    """Optimal mixtures of one fit to one question, each at its own budget.

    Attributes
    ----------
    law : str
        Name of the fitted law.
    entries : tuple of Mixture
        The mixtures, N by N and within each N by D.
    provenance : dict
        What the mixtures were made from.
    """

    kind = "mixture-grid"

    law: str
    entries: tuple[Mixture, ...]
    provenance: dict[str, Json]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What changes what a reader would do, each thing once, with the first budget where it is so."""
        first = {text: one for one in reversed(self.entries) for text in one.warnings}
        return tuple(f"{text} (first at {_budget(one)})" for text, one in first.items())

    @property
    def ratios(self) -> dict[str, list[float]]:
        """Columns of the ratios, as one mixture has them."""
        rows = [one.ratios_of(one.p[None]) for one in self.entries]
        return {name: [row[name][0] for row in rows] for name in rows[0]}

    def columns(self) -> Columns:
        """One row a budget: its objective with its interval, the gap, their unit, and the ratios, also of bytes."""
        names = ("N", "D", "objective", "objective_low", "objective_high", "gap", "objective_unit")
        table = {name: [getattr(one, name) for one in self.entries] for name in names} | self.ratios
        p_bytes = np.array([one.p_bytes for one in self.entries])
        each = zip(self.entries[0].sources, p_bytes.T.tolist(), strict=True)
        return table | {f"p_bytes_{name}": column for name, column in each if np.isfinite(p_bytes).all()}


def _budget(one: Answer) -> str:
    return f"N = {format_size(one.N)}, D = {format_size(one.D)}"


@dataclass(frozen=True)
class Candidate(Compared):
    """One mixture; `gain` is what it gains over the first of its table, of which `probability` is NaN.

    Attributes
    ----------
    losses, low, high : array (K,)
        Predicted losses with their interval, in the table's `unit`.
    """

    kind = "candidate"

    losses: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def sure(self) -> bool | None:
        """Whether this mixture is better or worse by more than the error bar; None where nothing is known of that."""
        better, worse = is_sure(self.gain_low, self.probability), is_sure(-self.gain_high, 1 - self.probability)
        return None if better is None or worse is None else better or worse


@dataclass(frozen=True)
class Candidates(Answer):
    """Several mixtures at N and D, in the order given; each is compared with the first.

    Attributes
    ----------
    weights : array (K,)
        Weights of the losses in the objective.
    entries : tuple of Candidate
        The mixtures.
    """

    kind = "candidates"
    axes: ClassVar[Mapping[str, str]] = {**Answer.axes, "weights": "K"}

    weights: FloatArray
    entries: tuple[Candidate, ...]

    @property
    def verdict(self) -> str:
        """Which mixtures differ from the first by less than the error bar; empty where there is none."""
        alike = [entry.name for entry in self.entries[1:] if entry.sure is False]
        first = self.entries[0].name
        return f"The predicted difference to {first} is within its error bar for {list_names(alike)}." if alike else ""

    def columns(self) -> Columns:
        """One row a mixture: its objective, a loss or for tasks a score, and what it gains."""
        scored = self.measure == "error"
        objectives = [1 - entry.objective if scored else entry.objective for entry in self.entries]
        names = ("gain", "gain_low", "gain_high", "probability")
        table = {"name": [entry.name for entry in self.entries], "score" if scored else "objective": objectives}
        table |= {name: [getattr(entry, name) for entry in self.entries] for name in names}
        return table | {"objective_unit": [self.objective_unit] * len(self.entries)}

    def headline(self) -> str:
        """The budget, and against which mixture the gains are."""
        return f"Candidates at {_budget(self)}: gain over {self.entries[0].name}"
