"""Scores on tasks as functions of losses: a line for each task, through which mixtures can be chosen.

>>> tasks = calibrate_scores("runs.csv", "scores.csv", chance="hellaswag=0.25")
>>> tasks.calibrations[0].transform, tasks.calibrations[0].held_out
>>> mix = optimize(fit, "243M", "100B", downstream=tasks, weights="hellaswag=1,xwinograd=1")

A task follows the loss l of its target by `s = a g(l) + b`, with g one of five transforms (ShapleyLaw paper, appendix
"Additional Experiments on Downstream Tasks"), or by a sigmoid above its chance level (`laws.task_curves`). The paper
takes exp(-l) by the R2 in the sample; here the transform with the lowest error on mixtures left out one at a time is.
Rows of one mixture stand or fall together: they are held out together, and the degrees of freedom count mixtures.

Axes: S scores, G mixtures, B replicates, T tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.special import logit
from scipy.stats import t as student_t

from shapleymix.display import Tabular, short
from shapleymix.errors import FitError, UsageError, caution, did_you_mean
from shapleymix.files import Json
from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.laws.task_curves import CODES, TRANSFORMS, TaskCurves, Transform
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import RandomStream
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Sheet, Table, read_sheet
from shapleymix.tables.words import Pairs, as_word, format_size, parse_number, parse_pairs, require_names

FEWEST = 3
"""Mixtures below which two numbers can be fitted and nothing is known of their error."""
SAME_TOKENS = 0.01
"""Of D: a score stands at the checkpoint that is no further from it than that."""
UNSURE = 0.05
"""A p-value above which a task does not tell better losses from worse."""
CLIPPED, LEAST_SLOPE = 0.02, 0.02
"""Where the search for a sigmoid begins, scores lie at least so far (as a share) from chance and from one; and the
share of a fitted slope that is left in every draw, so that no line is drawn that scores worse for a lower loss."""


class ScoredRuns(NamedTuple):
    """The scores of one task beside the losses of its target: losses, scores and mixtures (S,), and the chance."""

    task: str
    target: str
    loss: FloatArray
    score: FloatArray
    groups: IntArray
    chance: float


@dataclass(frozen=True)
class Calibration(Record):
    """`s = a g(l) + b` of one task and target, or `s = chance + (1 - chance) / (1 + exp(a l - b))` for the sigmoid.

    Attributes
    ----------
    task, target, transform : str
        Which scores, which losses, and the name of g.
    a, b : float
        The fitted line.
    covariance : array (2, 2)
        Of a and b.
    chance : float
        The score of a guess; NaN where it is not known.
    scatter, dof : float and int
        Standard deviation of scores about the line, and degrees of freedom.
    losses, scores : array (S,)
        What was fitted: the losses of scored runs, and their scores.
    R2, held_out, held_out_R2 : float
        R2 in the sample, held-out error (root mean square) and held-out R2, which is NaN where three mixtures are all
        there are.
    pearson, p_value : float
        Correlation of losses and scores, and how likely one so far from 0 is by chance.
    """

    kind = "downstream/calibration"
    axes: ClassVar[Mapping[str, str]] = {"covariance": "22", "losses": "S", "scores": "S"}

    task: str
    target: str
    transform: str
    a: float
    b: float
    covariance: FloatArray
    chance: float
    scatter: float
    dof: int
    losses: FloatArray
    scores: FloatArray
    R2: float
    held_out: float
    held_out_R2: float
    pearson: float
    p_value: float

    @property
    def label(self) -> str:
        """`hellaswag/en`."""
        return f"{self.task}/{self.target}"

    @property
    def shape(self) -> Transform:
        """The transform of the loss."""
        return TRANSFORMS[self.transform]

    @property
    def sensible(self) -> bool:
        """Whether a lower loss scores higher."""
        return (self.a > 0) == self.shape.falls

    @property
    def formula(self) -> str:
        """The line as it is printed: `4.03 exp(-l) + 0.098`."""
        if self.shape.is_sigmoid:
            return f"{self.chance:.3g} + {1 - self.chance:.3g} / (1 + exp({self.a:.3g} l - {self.b:.3g}))"
        return f"{self.a:.4g} {self.shape.formula} {'-' if self.b < 0 else '+'} {abs(self.b):.3g}"

    def score(self, loss: FloatArray | float) -> FloatArray:
        """Predicted scores at losses."""
        return self.shape.score(np.asarray(loss, dtype=float), self.a, self.b, self.chance)


@dataclass(frozen=True)
class Downstream(Tabular, Record):
    """What the losses of runs say of their scores, task by task; `optimize` and `Fit.at` take it as their score.

    Attributes
    ----------
    calibrations : tuple of Calibration
        One for each task and target.
    left_out : dict of str to str
        Tasks that could not be calibrated, with the reason.
    notices : tuple of str
        What was left out.
    provenance : dict
        Inputs and settings from which this can be made again.
    """

    kind = "downstream"

    calibrations: tuple[Calibration, ...]
    left_out: dict[str, str]
    notices: tuple[str, ...]
    provenance: dict[str, Json]

    @property
    def labels(self) -> tuple[str, ...]:
        """`hellaswag/en` of every calibration (T)."""
        return tuple(one.label for one in self.calibrations)

    @property
    def targets(self) -> tuple[str, ...]:
        """The law's target of every calibration (T)."""
        return tuple(one.target for one in self.calibrations)

    @property
    def scatter(self) -> FloatArray:
        """Standard deviation (T,) of the score of one run about its line."""
        return np.array([one.scatter for one in self.calibrations])

    @property
    def loss_range(self) -> FloatArray:
        """Lowest and highest loss (T, 2) that each line rests on."""
        return np.array([(one.losses.min(), one.losses.max()) for one in self.calibrations])

    @cached_property
    def curves(self) -> TaskCurves:
        """The fitted curves (T,)."""
        return self._curves(*(np.array([getattr(one, name) for one in self.calibrations]) for name in ("a", "b")))

    def draw(self, replicates: int) -> TaskCurves:
        """Lines (B, T) drawn about the fitted ones by Student's t, beside the replicates of a law.

        A slope keeps its sign and a share of its size: no line is drawn that scores worse for a lower loss.
        """
        rng = np.random.default_rng([0, RandomStream.LINES])
        drawn = np.empty((2, replicates, len(self.calibrations)))
        for t, one in enumerate(self.calibrations):
            values, vectors = np.linalg.eigh(one.covariance)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            scale = np.sqrt(one.dof / rng.chisquare(one.dof, replicates))
            drawn[:, :, t] = np.array([[one.a], [one.b]]) + scale * (root @ rng.standard_normal((2, replicates)))
        (a, b), fitted = drawn, self.curves.a
        kept = np.where(fitted > 0, np.maximum(a, LEAST_SLOPE * fitted), np.minimum(a, LEAST_SLOPE * fitted))
        middle = np.array([one.shape.value(one.losses.mean()) for one in self.calibrations])
        return self._curves(kept, b + (a - kept) * middle)  # turned about what it says of the middle loss

    def weights(self, given: Pairs | None = None, objective: str = "mean") -> dict[str, float]:
        """Weight of every label: of a task for several targets its weight in equal shares, or that of a label alone.

        Parameters
        ----------
        given : mapping or str, optional
            `"hellaswag=1,xwinograd/ja=0.5"`; tasks without a weight get 0. None = every task alike.
        objective : str
            `"mean"`, or `"worst"`, where nothing is shared.

        Raises
        ------
        UsageError
            If a name is no task, nothing counts, or a task counts that scores worse for a lower loss.
        """
        counts = Counter(one.task for one in self.calibrations)
        weights = dict.fromkeys(counts, 1.0) if given is None else parse_pairs(given, parse_number, "task weight")
        require_names(weights, (*counts, *self.labels), "task weight")
        shares = counts if objective == "mean" else dict.fromkeys(counts, 1)
        even = {task: weights.get(task, 0.0) / share for task, share in shares.items()}
        found = {one.label: weights.get(one.label, even[one.task]) for one in self.calibrations}
        if not any(weight > 0 for weight in found.values()):
            raise UsageError("no task counts for anything", hint="give one of them a weight above 0")
        senseless = [one.label for one in self.calibrations if found[one.label] > 0 and not one.sensible]
        if senseless:
            raise UsageError(
                f"{short(senseless)} scores higher at a higher loss", hint="give weights to the others alone"
            )
        return found

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes these lines untrustworthy."""
        return tuple(why for one in self.calibrations if (why := _doubt(one)))

    def columns(self) -> dict[str, Any]:
        """One row a task and target."""
        names = ("task", "target", "transform", "R2", "held_out_R2", "held_out", "pearson")
        return {name: [getattr(one, name) for one in self.calibrations] for name in names}

    def _curves(self, a: FloatArray, b: FloatArray) -> TaskCurves:
        chance = np.array([one.chance for one in self.calibrations])
        return TaskCurves(a, b, chance, np.array([CODES[one.transform] for one in self.calibrations]))


def calibrate_scores(
    log: Logs,
    scores: Table,
    *,
    task_language: Mapping[str, str] | str | None = None,
    chance: Mapping[str, float] | str | float | None = None,
) -> Downstream:
    """Calibrate the scores of tasks by the losses of their languages.

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        The runs that were scored, with their losses.
    scores : Table
        A table `run,task,score[,target][,D][,chance]`, scores between 0 and 1. The target may end the task's name
        (`hellaswag_en`).
    task_language : mapping or str, optional
        The language of tasks whose name does not end in it: `"hellaswag=en,belebele_deu_Latn=de"`.
    chance : float, mapping or str, optional
        What a guess scores, by task or for all: `"hellaswag=0.25"`; a sigmoid is tried where it is known.

    Raises
    ------
    DataError, UsageError
        If a table is wrong, or a name is unknown.
    FitError
        If no task can be calibrated.
    """
    rows = one_log(log)
    sheet = read_sheet(scores)
    points, notices = _points(sheet, rows, _meanings(task_language, rows.targets), _chances(chance))
    refused = {f"{one.task}/{one.target}": why for one in points if (why := _why_not(one))}
    lines = [lines_of(one).values() for one in points if f"{one.task}/{one.target}" not in refused]
    # the lowest held-out error, the first of equals
    found = tuple(min((one for one, _ in each), key=lambda one: round(one.held_out, 12)) for each in lines)
    if not found:
        label, why = next(iter(refused.items()), ("scores", "there are none"))
        raise FitError(f"no task can be calibrated: {label}: {why}", hint="score more runs of different mixtures")
    provenance: dict[str, Json] = {"log_sha256": rows.digest, "scores_sha256": sheet.digest}
    answer = Downstream(found, refused, (*rows.notices, *notices), provenance)
    caution(answer.warnings)
    return answer


def lines_of(points: ScoredRuns) -> dict[str, tuple[Calibration, FloatArray]]:
    """The line of every transform that the scores allow, with its residuals held out (S,).

    A sigmoid is tried where the chance level is known.
    """
    kinds = [one for one in TRANSFORMS.values() if not (one.is_sigmoid and np.isnan(points.chance))]
    return {one.name: _line(points, one) for one in kinds}


def _line(points: ScoredRuns, shape: Transform) -> tuple[Calibration, FloatArray]:
    """A transform's line through all scores, and its errors on mixtures left out one at a time."""
    groups, rows = np.unique(points.groups), len(points.score)
    through = _fit_sigmoid if shape.is_sigmoid else _fit_line
    a, b = through(points, shape, np.ones(rows, dtype=bool))
    misses = np.empty(rows)
    for group in groups:
        out = points.groups == group
        slope, level = through(points, shape, ~out)
        misses[out] = points.score[out] - shape.score(points.loss[out], slope, level, points.chance)
    residual, mixtures = points.score - shape.score(points.loss, a, b, points.chance), len(groups)
    squares = float(np.square(points.score - points.score.mean()).sum())
    held_out_R2 = 1 - float(np.square(misses).sum()) / squares if mixtures > FEWEST else np.nan
    scatter = float(np.sqrt(np.square(residual).sum() / max(rows - 2, 1)))
    J = _jacobian(points, shape, a, b)
    spread = np.linalg.pinv(J.T @ J, hermitian=True)
    r = float(np.clip(np.corrcoef(points.loss, points.score)[0, 1], -1.0, 1.0))
    by_chance = 2 * student_t.sf(abs(r) * np.sqrt((mixtures - 2) / max(1 - r * r, 1e-300)), mixtures - 2)
    found = Calibration(
        task=points.task, target=points.target, transform=shape.name, a=a, b=b,
        covariance=np.asarray(scatter**2 * (rows / mixtures) * spread, dtype=np.float64), chance=points.chance,
        scatter=scatter, dof=mixtures - 2, losses=points.loss, scores=points.score,
        R2=1 - float(np.square(residual).sum()) / squares, held_out=float(np.sqrt(np.square(misses).mean())),
        held_out_R2=held_out_R2, pearson=r, p_value=float(by_chance),
    )  # fmt: skip
    return found, misses


def _fit_line(points: ScoredRuns, shape: Transform, kept: BoolArray) -> tuple[float, float]:
    """a and b by least squares; centred, so that no digits are lost."""
    g, s = shape.value(points.loss[kept]), points.score[kept]
    off = g - g.mean()
    a = float(off @ (s - s.mean()) / max(off @ off, 1e-300))
    return a, float(s.mean() - a * g.mean())


def _fit_sigmoid(points: ScoredRuns, shape: Transform, kept: BoolArray) -> tuple[float, float]:
    """a and b of a sigmoid by least squares, from the line through the log odds."""
    loss, score, chance = points.loss[kept], points.score[kept], points.chance
    share = np.clip((score - chance) / (1 - chance), CLIPPED, 1 - CLIPPED)
    start = np.polyfit(shape.value(loss), logit(share), 1)

    def residuals(x: FloatArray) -> FloatArray:
        return shape.score(loss, x[0], x[1], chance) - score

    found = least_squares(residuals, start, x_scale=np.maximum(np.abs(start), 1e-3), xtol=1e-12, ftol=1e-12, gtol=1e-12)
    return float(found.x[0]), float(found.x[1])


def _jacobian(points: ScoredRuns, shape: Transform, a: float, b: float) -> FloatArray:
    """Derivatives (S, 2) of the scores by a and b."""
    g, chance = shape.value(points.loss), points.chance
    steep = np.ones_like(g)
    if shape.is_sigmoid:
        share = (shape.score(points.loss, a, b, chance) - chance) / (1 - chance)
        steep = (1 - chance) * share * (1 - share)
    return np.stack([steep * g, steep], axis=1)


def _why_not(points: ScoredRuns) -> str:
    """Why no line can be drawn through these scores; empty where one can."""
    mixtures = len(np.unique(points.groups))
    if mixtures < FEWEST:
        return f"a line needs {FEWEST} runs of different mixtures with loss and score, and there are {mixtures}"
    for what, values in (("loss", points.loss), ("score", points.score)):
        if np.ptp(values) <= 1e-9 * np.abs(values).max():
            return f"the {what} is the same in all runs"
    return ""


def _doubt(one: Calibration) -> str:
    """What is doubtful of a line; empty where nothing is."""
    if not one.sensible:
        return f"{one.label} scores higher where the loss is higher, so it cannot choose a mixture"
    if one.p_value > UNSURE:
        return f"{one.label}: losses and scores may be unrelated (p = {one.p_value:.2g})"
    if one.held_out_R2 <= 0:
        return f"{one.label}: on held-out mixtures the line is no better than the mean score"
    if one.chance > one.scores.max():
        return f"{one.label}: no run scores above {one.scores.max():.3g}, and guessing gives {one.chance:.3g}"
    return ""


def _points(
    sheet: Sheet, log: RunLog, meanings: Mapping[str, str], chances: Mapping[str, float]
) -> tuple[list[ScoredRuns], tuple[str, ...]]:
    """The scores of every task beside the losses of its target, and what was left out.

    Raises
    ------
    DataError
        With every fault of the table: a run that the log has not, a score outside of 0 to 1, a repeated row.
    """
    sheet.need(["run", "task", "score"], "a row a run and task, with a target where the task's name does not say it")
    sheet.raise_faults()
    runs, names, score = sheet.texts("run"), sheet.texts("task"), sheet.numbers("score")
    far = (score < 0) | (score > 1)
    sheet.refuse(far, "score", score, "expected a score between 0 and 1", "divide percentages by 100")
    D, guess = sheet.numbers("D", empty=True, sizes=True), sheet.numbers("chance", empty=True)
    tasks = _tasks(sheet, names, log, meanings)
    rows = _rows(sheet, log, runs, D)
    sheet.raise_faults()
    sheet.once(zip(runs, map("/".join, tasks), rows, strict=True), "the score of run {!r} on {}", "score")
    sheet.raise_faults()
    found, lost = [], 0
    for task in sorted(set(tasks)):
        mine = np.array([place for place, one in enumerate(tasks) if one == task])
        loss = log.loss[np.array(rows)[mine], log.targets.index(task[1])]
        kept = mine[~np.isnan(loss)]
        lost += len(mine) - len(kept)
        known = [chances[name] for name in ("/".join(task), task[0], "*") if name in chances]
        level = known[0] if known else float(np.nanmax(guess[mine])) if not np.isnan(guess[mine]).all() else np.nan
        groups = log.groups[np.array(rows)[kept]]
        found.append(ScoredRuns(*task, loss[~np.isnan(loss)], score[kept], groups, level))
    silent = len(set(log.runs) - set(runs))
    notices = [f"left out {lost} scores of runs that have no loss for the target"] if lost else []
    notices += [f"{silent} of {len(set(log.runs))} runs of the log have no scores"] if silent else []
    return found, tuple(notices)


def _tasks(sheet: Sheet, names: Sequence[str], log: RunLog, meanings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Task and target of each row: by its column target, by what was said of the name, or by the name's end."""
    if "target" in sheet.columns:
        targets = sheet.texts("target")
        for row, target in enumerate(targets):
            if target and target not in log.targets:
                sheet.fault(f"{target!r} is no target of the log", row, "target", did_you_mean(target, log.targets))
        return list(zip(names, targets, strict=True))
    found = []
    for row, name in enumerate(names):
        stem, _, end = name.replace("/", "_").rpartition("_")
        task = (name, meanings[name]) if name in meanings else (stem, end)
        if task[1] not in log.targets and name:
            hint = f"add a column target, or say task_language {name}={log.targets[0]}"
            sheet.fault(f"the target of task {name!r} is not known", row, "task", hint)
        found.append(task)
    return found


def _rows(sheet: Sheet, log: RunLog, runs: Sequence[str], D: FloatArray) -> list[int]:
    """The row of the log of every score: the run's last, or its checkpoint at D; -1 where there is none."""
    own: dict[str, list[int]] = {}
    for row, run in enumerate(log.runs):
        own.setdefault(run, []).append(row)
    found = []
    for row, run in enumerate(runs):
        if run not in own:
            sheet.fault(f"the log has no run {run!r}", row, "run", did_you_mean(run, own))
            found.append(-1)
            continue
        tokens = log.D[own[run]]
        nearest = int(np.argmax(tokens) if np.isnan(D[row]) else np.argmin(np.abs(tokens - D[row])))
        if abs(tokens[nearest] - D[row]) > SAME_TOKENS * D[row]:
            where = " but at ".join(map(format_size, (D[row], tokens[nearest])))
            sheet.fault(f"run {run!r} has no row at D = {where}", row, "D")
        found.append(own[run][nearest])
    return found


def _meanings(given: Mapping[str, str] | str | None, targets: Sequence[str]) -> dict[str, str]:
    """The targets of tasks by name, as they were given: `"hellaswag=en"`."""
    found = {} if given is None else parse_pairs(given, as_word, "task_language", "write it like hellaswag=en")
    for name, target in found.items():
        if target not in targets:
            raise UsageError(f"{name}={target}: {target!r} is no target of the log", hint=did_you_mean(target, targets))
    return found


def _chances(given: Mapping[str, float] | str | float | None) -> dict[str, float]:
    """Chance levels by task, by task and target, or (under `*`) one for all."""
    if given is None:
        return {}
    pairs = given if isinstance(given, Mapping) or (isinstance(given, str) and "=" in given) else {"*": given}
    found = parse_pairs(pairs, parse_number, "chance")
    for name, value in found.items():
        if not 0 <= value < 1:
            raise UsageError(f"the chance level of {name} is {value:g}, expected 0 or more and below 1")
    return found
