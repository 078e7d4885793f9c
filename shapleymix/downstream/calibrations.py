"""What is known of each task: the line through its scores, with its errors, and all tasks of a log together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shapleymix.display import Drawn, cut, text_table
from shapleymix.downstream.scores import FEWEST
from shapleymix.downstream.tasks import Task
from shapleymix.downstream.transforms import SIGMOID, TRANSFORMS, Transform
from shapleymix.errors import UsageError, did_you_mean
from shapleymix.fields import AMOUNT, SHARE, Range
from shapleymix.files import Json
from shapleymix.records import FloatArray, Record
from shapleymix.tables.frames import Columns, Tabular

UNSURE = 0.05
"""A p-value above which a task does not tell better losses from worse."""


@dataclass(frozen=True)
class Tried(Record):
    """One transform that was tried on a task.

    Attributes
    ----------
    transform : str
        Its name.
    a, b, R2 : float
        The fit to all runs, and the share of the variance that it explains in the sample.
    held_out, held_out_R2 : float
        Root mean square error, and R2, on mixtures left out one at a time.
    alike : bool
        Whether held-out errors do not tell it from the best.
    """

    kind = "downstream/tried"
    ranges: ClassVar[Mapping[str, Range]] = {"held_out": AMOUNT}

    transform: str
    a: float
    b: float
    R2: float
    held_out: float
    held_out_R2: float
    alike: bool


@dataclass(frozen=True)
class Calibration(Record):
    """`s = a g(l) + b` of one task and target, or `s = chance + (1 - chance) / (1 + exp(a l - b))` for the sigmoid.

    Attributes
    ----------
    task, target, transform : str
        Which scores, which losses, and the name of g.
    a, b, a_low, a_high, b_low, b_high : float
        The fit with its intervals (Student's t).
    covariance : array (2, 2)
        Of a and b.
    chance : float
        The score of a guess; NaN where it is not known.
    scatter, dof : float and int
        Standard deviation of scores about the line, and degrees of freedom.
    rows, mixtures : int
        Scores that were fitted, and of how many mixtures (runs, where mixtures are few) they are.
    losses, scores : array (2,)
        Lowest and highest that were fitted.
    run_losses, run_scores : array (S,)
        What was fitted: the losses of scored runs, and their scores.
    R2, held_out, held_out_R2 : float
        As of `Tried`; the last is NaN where three mixtures are all there are.
    pearson, p_value : float
        Correlation of losses and scores, and how likely one so far from 0 is by chance.
    tried : tuple of Tried
        Every transform, the best first.
    """

    kind = "downstream/calibration"
    axes: ClassVar[Mapping[str, str]] = {
        "covariance": "22",
        "losses": "2",
        "scores": "2",
        "run_losses": "S",
        "run_scores": "S",
    }
    ranges: ClassVar[Mapping[str, Range]] = {
        "chance": SHARE, "scatter": AMOUNT, "held_out": AMOUNT, "p_value": SHARE, "pearson": (-1.0, 1.0),
        "losses": AMOUNT,
    }  # fmt: skip

    task: str
    target: str
    transform: str
    a: float
    b: float
    a_low: float
    a_high: float
    b_low: float
    b_high: float
    covariance: FloatArray
    chance: float
    scatter: float
    dof: int
    rows: int
    mixtures: int
    losses: FloatArray
    scores: FloatArray
    run_losses: FloatArray
    run_scores: FloatArray
    R2: float
    held_out: float
    held_out_R2: float
    pearson: float
    p_value: float
    tried: tuple[Tried, ...]

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            raise ValueError(f"there is no transform {self.transform!r}")
        if self.dof < 1 or not (np.isfinite(self.covariance).all() and np.isfinite([self.a, self.b]).all()):
            raise ValueError("a calibration has finite numbers and at least one degree of freedom")
        if self.transform == SIGMOID and not 0 <= self.chance < 1:
            raise ValueError("a sigmoid begins at a chance level of 0 or more and below 1")

    @property
    def label(self) -> str:
        """`hellaswag/en`."""
        return Task(self.task, self.target).label

    @property
    def shape(self) -> Transform:
        """The transform of the loss."""
        return TRANSFORMS[self.transform]

    @property
    def base(self) -> float:
        """Where the curve begins: the chance level of a sigmoid, 0 of a line."""
        return self.chance if self.shape.bent else 0.0

    @property
    def sensible(self) -> bool:
        """Whether a lower loss scores higher."""
        return (self.a > 0) == self.shape.falls

    def score(self, loss: FloatArray | float) -> FloatArray:
        """Predicted scores at losses."""
        found = np.asarray(loss, dtype=float)
        return self.shape.score(found, np.asarray(self.a), np.asarray(self.b), np.asarray(self.base))


@dataclass(frozen=True)
class Downstream(Tabular, Record):
    """What the losses of runs say of their scores, task by task.

    Attributes
    ----------
    calibrations : tuple of Calibration
        One for each task and target.
    left_out : dict of str to str
        Tasks that could not be calibrated, with the reason.
    level : float
        Probability of the intervals.
    notices : tuple of str
        What was left out.
    provenance : dict
        Inputs and settings from which this can be made again.
    """

    kind = "downstream"
    plot = Drawn("scores.plot_downstream")
    ranges: ClassVar[Mapping[str, Range]] = {"level": SHARE}

    calibrations: tuple[Calibration, ...]
    left_out: dict[str, str]
    level: float
    notices: tuple[str, ...]
    provenance: dict[str, Json]

    def __post_init__(self) -> None:
        if not self.calibrations:
            raise ValueError("there is no calibration")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("a task and target is calibrated twice")

    @property
    def labels(self) -> tuple[str, ...]:
        """`hellaswag/en` of every calibration."""
        return tuple(one.label for one in self.calibrations)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes these lines untrustworthy."""
        return questions_of(self.calibrations)

    def calibration(self, label: str) -> Calibration:
        """The calibration of a task and target, such as `hellaswag/en`.

        Raises
        ------
        UsageError
            If there is none.
        """
        if label not in self.labels:
            raise UsageError(f"no calibration of {label!r}", hint=did_you_mean(label, self.labels))
        return self.calibrations[self.labels.index(label)]

    def score(self, label: str, loss: FloatArray | float) -> FloatArray:
        """Predicted scores of a task at losses."""
        return self.calibration(label).score(loss)

    def columns(self) -> Columns:
        """One row a task and target."""
        names = ("task", "target", "transform", "a", "a_low", "a_high", "b", "b_low", "b_high", "R2", "held_out_R2")
        names += ("held_out", "pearson", "p_value", "scatter", "rows", "mixtures")
        return {name: [getattr(one, name) for one in self.calibrations] for name in names}

    def summary(self) -> str:
        """The lines, a row each, and what to beware of."""
        shown = {
            "task": self.labels,
            "s": [formula(one) for one in self.calibrations],
            "R2": [f"{one.R2:.3f}" for one in self.calibrations],
            "held-out R2": [told_R2(one) for one in self.calibrations],
        }
        told = [cut(f"warning: {text}") for text in self.warnings[:3]]
        return "\n".join([f"Downstream: {len(self.calibrations)} tasks and targets", *text_table(shown), *told])


def told_R2(one: Calibration) -> str:
    """The held-out R2 in words, which three mixtures do not tell."""
    return "not told" if np.isnan(one.held_out_R2) else f"{one.held_out_R2:.3f}"


def formula(one: Calibration) -> str:
    """The line in words: `4.03 exp(-l) + 0.098`."""
    if one.shape.bent:
        return f"{one.chance:.3g} + {1 - one.chance:.3g} / (1 + exp({one.a:.3g} l - {one.b:.3g}))"
    return f"{one.a:.4g} {one.shape.formula} {'-' if one.b < 0 else '+'} {abs(one.b):.3g}"


def questions_of(found: Sequence[Calibration]) -> tuple[str, ...]:
    """What is doubtful of calibrations: the wrong sign, no relation, nothing gained over the mean, few runs."""
    told = []
    for one in found:
        if not one.sensible:
            told.append(f"{one.label} scores higher where the loss is higher: nothing can be chosen by it")
        elif one.p_value > UNSURE:
            told.append(f"{one.label}: losses and scores are not told from unrelated (p = {one.p_value:.2g})")
        elif one.held_out_R2 <= 0:
            told.append(f"{one.label}: on mixtures left out the line is no better than the mean score")
        if one.chance > one.scores[1]:
            told.append(
                f"{one.label}: no run scores more than {one.scores[1]:.3g}, and a guess {one.chance:.3g} (chance)"
            )
        if one.mixtures < 2 * FEWEST:
            told.append(f"{one.label} rests on {one.mixtures} mixtures: its held-out error says little")
    return tuple(told)
