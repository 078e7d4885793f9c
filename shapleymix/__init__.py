"""ShapleyMix: from proxy runs to a certified language mixture.

>>> import shapleymix as sm
>>> log = sm.read_runs("runs.csv")
>>> fit = sm.fit(log, law="shapley-tempered", transfer=sm.read_transfer("sv.csv"))
>>> mix = sm.optimize(fit, N="243M", D="100B")

Names are loaded when they are first used: importing the package costs next to nothing.

The wings, in the order in which data flows; each imports only from those above it:

  errors      every error: its place, what was expected, the next step
  keywords    keywords that several functions share, named and typed once
  files       files read once, with their hash, and written whole
  display     results as people see them: a few lines, a table, a summary
  fields      what the fields of a record hold: labels once, lengths that agree, numbers within their range
  records     results as versioned JSON, read back bit for bit
  tables      what comes in: run logs, transfer matrices, languages tables
  game        coalitions, payoffs, exact and sampled Shapley values
  laws        the laws: one equation with named symbols each
  fitting     from logs to fitted laws, predictions and comparisons
  exporting   a mixture as trainers take it: a file or keywords, exact, in the trainer's unit
  downstream  what the losses of runs say of their scores on tasks, and mixtures chosen for scores
  mixing      from a fitted law and a budget to a certified mixture
  planning    which runs to train next: the mixtures that tell most
  sweeping    sweeps as data: plans of runs, what each handed back, and the log that they make
  plotting    figures of results, with a caption and the numbers that are drawn
  reports     a page about a fit, on which its readers move the question themselves
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what type checkers and editors read; `_HOME` says the same to the interpreter
    from shapleymix.downstream.calibrating import calibrate_scores as calibrate_scores
    from shapleymix.downstream.calibrations import Downstream as Downstream
    from shapleymix.downstream.scoring import scored_fit as scored_fit
    from shapleymix.errors import DataError as DataError
    from shapleymix.errors import FitError as FitError
    from shapleymix.errors import InfeasibleError as InfeasibleError
    from shapleymix.errors import LayoutError as LayoutError
    from shapleymix.errors import OutsideError as OutsideError
    from shapleymix.errors import ShapleyMixError as ShapleyMixError
    from shapleymix.errors import ShapleyMixWarning as ShapleyMixWarning
    from shapleymix.errors import SolveError as SolveError
    from shapleymix.errors import StoreError as StoreError
    from shapleymix.errors import UsageError as UsageError
    from shapleymix.exporting.export import Export as Export
    from shapleymix.exporting.export import export as export
    from shapleymix.fitting.comparison import compare as compare
    from shapleymix.fitting.comparisons import Comparison as Comparison
    from shapleymix.fitting.evaluation import Evaluation as Evaluation
    from shapleymix.fitting.evaluation import evaluate as evaluate
    from shapleymix.fitting.fit import fit as fit
    from shapleymix.fitting.fits import Fit as Fit
    from shapleymix.fitting.learning_curve import LearningCurve as LearningCurve
    from shapleymix.fitting.learning_curve import learning_curve as learning_curve
    from shapleymix.fitting.likeness import like as like
    from shapleymix.fitting.prediction import Prediction as Prediction
    from shapleymix.game import exact_shapley as exact_shapley
    from shapleymix.game import sampled_shapley as sampled_shapley
    from shapleymix.game import shapley_values as shapley_values
    from shapleymix.laws import LAWS as LAWS
    from shapleymix.laws import Inputs as Inputs
    from shapleymix.laws import Law as Law
    from shapleymix.laws.base import Terms as Terms
    from shapleymix.laws.symbols import fitted as fitted
    from shapleymix.laws.symbols import given as given
    from shapleymix.mixing.candidates import Candidates as Candidates
    from shapleymix.mixing.candidates import compare_mixtures as compare_mixtures
    from shapleymix.mixing.compute import optimize_compute as optimize_compute
    from shapleymix.mixing.curves import Frontier as Frontier
    from shapleymix.mixing.frontier import frontier as frontier
    from shapleymix.mixing.groups import Group as Group
    from shapleymix.mixing.mixtures import Mixture as Mixture
    from shapleymix.mixing.optimization import optimize as optimize
    from shapleymix.mixing.optimization import optimize_scales as optimize_scales
    from shapleymix.planning.design import design as design
    from shapleymix.planning.designs import Design as Design
    from shapleymix.plotting.agreement import plot_agreement as plot_agreement
    from shapleymix.plotting.bars import plot_mixture as plot_mixture
    from shapleymix.plotting.designs import plot_design as plot_design
    from shapleymix.plotting.fits import plot_fit as plot_fit
    from shapleymix.plotting.frontiers import plot_frontier as plot_frontier
    from shapleymix.plotting.heatmaps import plot_transfer as plot_transfer
    from shapleymix.plotting.laws import plot_compare as plot_compare
    from shapleymix.plotting.laws import plot_learning_curve as plot_learning_curve
    from shapleymix.plotting.pictures import Picture as Picture
    from shapleymix.plotting.scores import plot_downstream as plot_downstream
    from shapleymix.reports.pages import Report as Report
    from shapleymix.reports.pages import report as report
    from shapleymix.tables.languages import Languages as Languages
    from shapleymix.tables.languages import read_languages as read_languages
    from shapleymix.tables.run_reading import read_runs as read_runs
    from shapleymix.tables.runs import RunLog as RunLog
    from shapleymix.tables.runs import write_runs as write_runs
    from shapleymix.tables.transfer import TransferMatrix as TransferMatrix
    from shapleymix.tables.transfer_reading import read_transfer as read_transfer

    __version__: str

_HOME = {
    "Candidates": "mixing.candidates",
    "Comparison": "fitting.comparisons",
    "DataError": "errors",
    "Design": "planning.designs",
    "Downstream": "downstream.calibrations",
    "Evaluation": "fitting.evaluation",
    "Export": "exporting.export",
    "Fit": "fitting.fits",
    "FitError": "errors",
    "Frontier": "mixing.curves",
    "Group": "mixing.groups",
    "InfeasibleError": "errors",
    "Inputs": "laws",
    "LAWS": "laws",
    "Languages": "tables.languages",
    "LayoutError": "errors",
    "Law": "laws",
    "LearningCurve": "fitting.learning_curve",
    "Mixture": "mixing.mixtures",
    "OutsideError": "errors",
    "Picture": "plotting.pictures",
    "Prediction": "fitting.prediction",
    "Report": "reports.pages",
    "RunLog": "tables.runs",
    "ShapleyMixError": "errors",
    "ShapleyMixWarning": "errors",
    "SolveError": "errors",
    "StoreError": "errors",
    "Terms": "laws.base",
    "TransferMatrix": "tables.transfer",
    "UsageError": "errors",
    "calibrate_scores": "downstream.calibrating",
    "compare": "fitting.comparison",
    "compare_mixtures": "mixing.candidates",
    "design": "planning.design",
    "evaluate": "fitting.evaluation",
    "exact_shapley": "game",
    "export": "exporting.export",
    "fit": "fitting.fit",
    "fitted": "laws.symbols",
    "frontier": "mixing.frontier",
    "given": "laws.symbols",
    "learning_curve": "fitting.learning_curve",
    "like": "fitting.likeness",
    "optimize": "mixing.optimization",
    "optimize_compute": "mixing.compute",
    "optimize_scales": "mixing.optimization",
    "plot_agreement": "plotting.agreement",
    "plot_compare": "plotting.laws",
    "plot_downstream": "plotting.scores",
    "plot_design": "plotting.designs",
    "plot_fit": "plotting.fits",
    "plot_frontier": "plotting.frontiers",
    "plot_learning_curve": "plotting.laws",
    "plot_mixture": "plotting.bars",
    "plot_transfer": "plotting.heatmaps",
    "read_languages": "tables.languages",
    "read_runs": "tables.run_reading",
    "read_transfer": "tables.transfer_reading",
    "report": "reports.pages",
    "sampled_shapley": "game",
    "scored_fit": "downstream.scoring",
    "shapley_values": "game",
    "write_runs": "tables.runs",
}

__all__ = [
    "LAWS",
    "Candidates",
    "Comparison",
    "DataError",
    "Design",
    "Downstream",
    "Evaluation",
    "Export",
    "Fit",
    "FitError",
    "Frontier",
    "Group",
    "InfeasibleError",
    "Inputs",
    "Languages",
    "Law",
    "LayoutError",
    "LearningCurve",
    "Mixture",
    "OutsideError",
    "Picture",
    "Prediction",
    "Report",
    "RunLog",
    "ShapleyMixError",
    "ShapleyMixWarning",
    "SolveError",
    "StoreError",
    "Terms",
    "TransferMatrix",
    "UsageError",
    "calibrate_scores",
    "compare",
    "compare_mixtures",
    "design",
    "evaluate",
    "exact_shapley",
    "export",
    "fit",
    "fitted",
    "frontier",
    "given",
    "learning_curve",
    "like",
    "optimize",
    "optimize_compute",
    "optimize_scales",
    "plot_agreement",
    "plot_compare",
    "plot_design",
    "plot_downstream",
    "plot_fit",
    "plot_frontier",
    "plot_learning_curve",
    "plot_mixture",
    "plot_transfer",
    "read_languages",
    "read_runs",
    "read_transfer",
    "report",
    "sampled_shapley",
    "scored_fit",
    "shapley_values",
    "write_runs",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("shapleymix")
    if name not in _HOME:
        raise AttributeError(f"module 'shapleymix' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"shapleymix.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
