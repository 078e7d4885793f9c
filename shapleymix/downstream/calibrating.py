"""Every task of a log calibrated: scores as a function of the target's loss, by the transform that predicts best.

>>> found = calibrate_scores("runs.csv", "scores.csv", chance="hellaswag=0.25")
>>> found.calibrations[0].transform, found.calibrations[0].held_out, found.score("hellaswag/en", 2.4)

The paper (ShapleyLaw, section "Experiments on Downstream Tasks") chooses `exp(-l)` by the R2 in the sample; here the
held-out error chooses, and both are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import t as student_t

from shapleymix.downstream.calibrations import Calibration, Downstream, Tried, questions_of
from shapleymix.downstream.harness import is_harness, read_harness
from shapleymix.downstream.lines import SAME_SCORE, alike, best_of, correlation, lines_of, why_not
from shapleymix.downstream.scores import Points, Scored, chances_of, points_of, read_scores
from shapleymix.downstream.tasks import Task, meanings_of
from shapleymix.downstream.transforms import Transform, transform_of
from shapleymix.errors import FitError, UsageError, caution
from shapleymix.files import Json
from shapleymix.fitting.evidence import Logs, one_log
from shapleymix.fitting.settings import LEVEL
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_level
from shapleymix.tables.runs import RunLog
from shapleymix.tables.sheets import Table


def calibrate_scores(
    log: Logs,
    scores: Table,
    *,
    task_language: Mapping[str, str] | Sequence[str] | str | None = None,
    chance: Mapping[str, float] | str | float | None = None,
    transform: str | None = None,
    metric: str = "acc",
    shots: int | None = None,
    run_pattern: str | None = None,
    percent: bool = False,
    level: float = LEVEL,
) -> Downstream:
    """Calibrate the scores of tasks by the losses of their languages.

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        The runs that were scored, with their losses.
    scores : Table
        A table `run,task,target,score[,D][,chance]`, or the folder in which lm-eval left its `results_*.json`.
    task_language : mapping or str, optional
        The language of tasks whose name does not end in it: `"hellaswag=en,belebele_deu_Latn=belebele/de"`.
    chance : float, mapping or str, optional
        What a guess scores, by task: `"hellaswag=0.25"`; a sigmoid is tried where it is known.
    transform : str, optional
        Take this one for every task; by default that of the lowest held-out error.
    metric, shots, run_pattern : str, int and str, optional
        Of lm-eval's results: which number, of evaluations with how many examples, and where the run's id stands in the
        name of the model or of the file (`"checkpoints/{run}/final"`).
    percent : bool
        Whether the scores of a table are given from 0 to 100.
    level : float
        Probability of the intervals.

    Raises
    ------
    DataError, UsageError
        If a table is wrong, or a name is unknown.
    FitError
        If no task can be calibrated.
    """
    rows, level = one_log(log), parse_level(level)
    only = None if transform is None else transform_of(transform)
    meanings = meanings_of(task_language, rows.targets)
    known, notes, digest = _read(scores, rows, meanings, (metric, shots, run_pattern), percent)
    points, left = points_of(known, rows, chances_of(chance))
    refused = {one.task.label: why for one in points if (why := _why_not(one, only))}
    found = tuple(_calibrated(one, only, level) for one in points if one.task.label not in refused)
    if not found:
        label, why = next(iter(refused.items()), ("scores", "there are none"))
        hint = {NO_CHANCE: _CHANCE_HINT, SAME_SCORE: _SAME_HINT}.get(why, "score more runs of different mixtures")
        raise FitError(f"no task can be calibrated: {label}: {why}", hint=hint)
    notices = (*rows.notices, *notes, *left)
    caution(questions_of(found))
    provenance: dict[str, Json] = {"log_sha256": rows.digest, "scores_sha256": digest, "transform": transform}
    return Downstream(found, refused, level, notices, provenance)


def _read(
    scores: Table,
    log: RunLog,
    meanings: Mapping[str, Task],
    harness: tuple[str, int | None, str | None],
    percent: bool,
) -> tuple[list[Scored], tuple[str, ...], str]:
    """The scores of a table or a folder, what was left out, and their hash."""
    if is_harness(scores):
        if percent:
            raise UsageError("percent is for tables: lm-eval writes shares")
        return read_harness(scores, log, meanings, *harness)
    if harness[1] is not None or harness[2] is not None:
        raise UsageError("shots and run_pattern are for the folders that lm-eval writes", hint="leave them out")
    found, digest = read_scores(scores, log, meanings, percent=percent)
    return found, (), digest


def _why_not(points: Points, only: Transform | None) -> str:
    why = why_not(points)
    unknown = only is not None and only.bent and np.isnan(points.chance)
    return why or (NO_CHANCE if unknown else "")


NO_CHANCE = "the sigmoid needs its chance level"
_SAME_HINT = "a task that no run does better than another says nothing of mixtures: score others, or longer runs"
_CHANCE_HINT = "say what a guess scores: chance 0.25, or a column chance"


def _calibrated(points: Points, only: Transform | None, level: float) -> Calibration:
    lines = lines_of(points)
    best = best_of(lines) if only is None else lines[only.name]
    related = correlation(points)
    reach = student_t.ppf(0.5 + level / 2, best.dof) * np.sqrt(np.diag(best.covariance))
    return Calibration(
        task=points.task.name, target=points.task.target, transform=best.transform.name,
        a=best.a, b=best.b, a_low=best.a - reach[0], a_high=best.a + reach[0],
        b_low=best.b - reach[1], b_high=best.b + reach[1],
        covariance=best.covariance, chance=points.chance, scatter=best.scatter, dof=best.dof,
        rows=len(points.score), mixtures=best.dof + 2,
        losses=_range(points.loss), scores=_range(points.score), run_losses=points.loss, run_scores=points.score,
        R2=best.R2, held_out=best.held_out, held_out_R2=best.held_out_R2, pearson=related.r, p_value=related.p,
        tried=tuple(
            Tried(line.transform.name, line.a, line.b, line.R2, line.held_out, line.held_out_R2, alike(line, best))
            for line in sorted(lines.values(), key=lambda line: (line is not best, line.held_out))
        ),
    )  # fmt: skip


def _range(values: FloatArray) -> FloatArray:
    return np.array([values.min(), values.max()])
