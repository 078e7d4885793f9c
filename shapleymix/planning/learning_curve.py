"""How far more runs would bring the held-out error: a learning curve by subsampling, and where it leads.

Legend: S sizes (numbers of different mixtures), A sizes ahead, V draws of the curve.

The mixtures are split into k parts; fits to one part, and fits to all parts but one, each predict the mixtures that
they did not see. The mean error then follows `PE(m) = PE(n) (f + (1 - f) (m / n)^-b)` with n the mixtures at hand: a
power law down to a floor (Viering and Loog 2023), the share f of today's error that no run takes away. A few sizes tell
f and b only together, so that neither is estimated: draws from what the errors leave possible carry both ahead. Before
the errors speak, f is likelier large than small (density 2 f) and b near 1/2. That, `ROUGH` and `ROUGHER` were set so
that 90% intervals from 30 to 100 mixtures held the PE of 1.5 to 4 times as many nine times in ten: `mariner` and
a kernel ridge regression on RegMix, olmix and the five languages (47 curves).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Unpack

import numpy as np

from shapleymix.display import Columns, Tabular
from shapleymix.errors import FitError
from shapleymix.fitting.evidence import Logs, Table, fold_masks
from shapleymix.fitting.held_out import choose_law, predict_held_out, score
from shapleymix.fitting.regimes import part_regimes
from shapleymix.fitting.settings import AUTO, LEVEL, SEED, Keywords, Settings, with_settings
from shapleymix.fitting.study import Progress, Study, study_of
from shapleymix.laws import Law
from shapleymix.records import BoolArray, FloatArray, IntArray, Record
from shapleymix.statistics import RandomStream, interval_ends
from shapleymix.tables.languages import Languages
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.words import parse_level

PARTS = (5, 3)
FEWEST = 4  # mixtures of a fit
SIZES_NEEDED = 3
AHEAD = (1.0, 1.5, 2.0, 4.0)
DRAWS = 999
FLOORS = np.linspace(0.0, 0.98, 50)
SLOPES = np.geomspace(0.1, 3.0, 60)
USUAL_SLOPE, SLOPE_SPREAD = 0.5, 0.6  # of errors in root n, and the spread of log b between laws and logs
ROUGH, ROUGHER = 0.03, 0.2  # relative: no exact truth is a power law to a floor, the less the farther below today


@dataclass(frozen=True)
class LearningCurve(Tabular, Record):
    """Held-out error against the number of different mixtures that a law is fitted to.

    Attributes
    ----------
    law : str
        The law.
    mixtures, PE : array (S,)
        Sizes that were fitted (mean number of mixtures), and the mean held-out PE over targets.
    error : array (S,)
        Standard error of PE.
    now : int
        Mixtures at hand.
    ahead, expected, low, high : array (A,)
        Numbers of mixtures, today's first; the PE that a fit to them would have, and its interval.
    level : float
        Probability of the intervals.
    curves : array (V, 3)
        Draws of the PE now, the share of it that stays whatever the runs, and the slope b.
    scatter : float
        Relative spread of PE between fits to as many mixtures as there are now.
    notices : tuple of str
        Losses and sizes that were left out, with the reason.
    """

    kind = "learning-curve"
    axes: ClassVar[Mapping[str, str]] = {
        "mixtures": "S", "PE": "S", "error": "S",
        "ahead": "A", "expected": "A", "low": "A", "high": "A", "curves": "V3",
    }  # fmt: skip

    law: str
    mixtures: FloatArray
    PE: FloatArray
    error: FloatArray
    now: int
    ahead: IntArray
    expected: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    curves: FloatArray
    scatter: float
    notices: tuple[str, ...]

    def columns(self) -> Columns:
        """One row per number of mixtures: those that were fitted, then those ahead."""
        blank = [float("nan")] * len(self.PE)
        return {
            "mixtures": [*self.mixtures.tolist(), *self.ahead.tolist()],
            "fitted": [True] * len(self.PE) + [False] * len(self.ahead),
            "PE": [*self.PE.tolist(), *self.expected.tolist()],
            "low": [*blank, *self.low.tolist()],
            "high": [*blank, *self.high.tolist()],
        }


@with_settings
def learning_curve(
    log: Logs,
    law: str | type[Law] = AUTO,
    transfer: TransferMatrix | Table | None = None,
    languages: Languages | Table | None = None,
    *,
    level: float = LEVEL,
    seed: int = SEED,
    progress: Progress | None = None,
    **settings: Unpack[Keywords],
) -> LearningCurve:
    """How the held-out error falls with the number of mixtures, and how far more of them would bring it.

    Parameters
    ----------
    log : RunLog, path, or a sequence of them
        Run logs; several are fitted together.
    law : str or type[Law]
        A law's name or class; `"auto"` takes what `fit` takes.
    transfer : table or path, optional
        The transfer matrix, for laws that need it.
    languages : table or path, optional
        The languages table, for laws that need it.
    level : float
        Probability of the intervals.
    seed : int
        Seed of the draws.
    progress : Progress, optional
        Is called with the stage, how much of it is done, and how much there is.

    Raises
    ------
    DataError, UsageError, FitError
        If a table is wrong, a name is unknown, or the mixtures are too few for three sizes.
    """
    study = part_regimes(study_of(log, transfer, languages, Settings(**settings, bootstrap=0), seed)).study
    law, level = choose_law(law, study), parse_level(level)
    sizes, notices = _fit_sizes(law, study, _designs(study), progress)
    if len(sizes) < SIZES_NEEDED:
        message = f"{study.mixtures} mixtures are too few for a learning curve: {len(sizes)} sizes can be fitted"
        raise FitError(f"{message}, {SIZES_NEEDED} are needed", hint="give more runs, or another law")
    return _curve(law.name, study, sizes, level, (*study.evidence.notices, *notices))


class _Size(NamedTuple):
    """Fits to so many mixtures, and the PE of each."""

    mixtures: float
    each: FloatArray


def _fit_sizes(
    law: type[Law], study: Study, designs: Sequence[tuple[float, BoolArray]], progress: Progress | None
) -> tuple[list[_Size], list[str]]:
    """The errors at every size that the law can be fitted to, and why it cannot be at the others."""
    found: list[_Size] = []
    notices: list[str] = []
    for number, (size, masks) in enumerate(designs):
        if progress is not None:
            progress("learning curve", number, len(designs))
        try:
            found.append(_Size(size, np.array(_errors(law, study, masks))))
        except FitError as error:
            notices.append(f"no fit to {size:g} mixtures: {error.message}")
    return found, notices


def _curve(law: str, study: Study, sizes: Sequence[_Size], level: float, notices: tuple[str, ...]) -> LearningCurve:
    """The curve that the errors tell, and where it leads."""
    now = study.mixtures
    share = np.array([one.mixtures for one in sizes]) / now
    PE, count = np.array([one.each.mean() for one in sizes]), np.array([len(one.each) for one in sizes])
    scatter = _scatter(sizes, now)
    error = scatter / np.sqrt(share * count)
    curves = _draws(share, np.log(PE), error, study.seed)
    ahead = np.unique(np.round(np.array(AHEAD) * now)).astype(np.int64)
    each = _predict(curves, scatter, ahead[:, None] / now)
    ends = sorted([0.5, *interval_ends(level)])
    low, expected, high = np.quantile(each, ends, axis=1, method="nearest")  # of infinite values, too
    return LearningCurve(
        law, share * now, PE, error * PE, now, ahead, expected, low, high, level, curves, scatter, notices
    )


def _designs(study: Study) -> list[tuple[float, BoolArray]]:
    """Mean number of fitted mixtures, and the held-out rows (V, R) of the fits to as many; smallest first."""
    found: list[tuple[float, BoolArray]] = []
    for k in PARTS:
        if study.mixtures >= k:
            masks = fold_masks(study.log, k)
            found += [(study.mixtures / k, ~masks), (study.mixtures * (1 - 1 / k), masks)]
    return sorted((one for one in found if one[0] >= FEWEST), key=lambda one: one[0])


def _errors(law: type[Law], study: Study, masks: BoolArray) -> list[float]:
    """Mean PE over targets of each fit, over the rows that no earlier one of the masks (V, R) holds out as well."""
    predicted = predict_held_out(law, study, masks).losses
    seen = np.where(study.evidence.judged, study.log.loss, np.nan)
    first = np.where(masks.any(axis=0), masks.argmax(axis=0), -1)
    each = (np.where((first == number)[:, None], seen, np.nan) for number in range(len(masks)))
    return [score(study.inputs.targets, loss, predicted).mean["PE"] for loss in each if not np.isnan(loss).all()]


def _scatter(sizes: Sequence[_Size], now: int) -> float:
    """Relative spread of PE between fits to all mixtures, as the fits to a share of them tell it by root n."""
    squares = sum(one.mixtures / now * ((one.each / one.each.mean() - 1) ** 2).sum() for one in sizes)
    freedom = sum(len(one.each) - 1 for one in sizes)
    return float(np.sqrt(squares / max(freedom, 1)))


def _draws(share: FloatArray, log_PE: FloatArray, error: FloatArray, seed: int) -> FloatArray:
    """Curves (V, 3) from the posterior on a grid of floors and slopes, the level integrated out exactly."""
    floor, slope = (grid.ravel() for grid in np.meshgrid(FLOORS, SLOPES, indexing="ij"))
    precision = 1 / (error**2 + (ROUGH - ROUGHER * np.log(share)) ** 2)
    shape = np.log(floor + (1 - floor) * share[:, None] ** -slope)  # (S, grid)
    level = precision @ (log_PE[:, None] - shape) / precision.sum()
    misfit = precision @ (log_PE[:, None] - shape - level) ** 2
    belief = -0.5 * (misfit + (np.log(slope / USUAL_SLOPE) / SLOPE_SPREAD) ** 2) + np.log(np.maximum(floor, 1e-3))
    chance = np.exp(belief - belief.max())
    rng = np.random.default_rng([seed, RandomStream.CURVE])
    place = rng.choice(len(chance), size=DRAWS, p=chance / chance.sum())
    now = np.exp(level[place] + rng.normal(size=DRAWS) / np.sqrt(precision.sum()))
    return np.stack([now, floor[place], slope[place]], axis=1)


def _predict(curves: FloatArray, scatter: float, share: FloatArray) -> FloatArray:
    """PE (A, V) of one fit to so many times (A, 1) the mixtures, by each draw and the scatter between fits."""
    level, floor, slope = curves.T
    normal = np.random.default_rng([len(curves), RandomStream.CURVE]).normal(size=len(curves))
    return level * (floor + (1 - floor) * share**-slope) * np.exp(scatter / np.sqrt(share) * normal)
