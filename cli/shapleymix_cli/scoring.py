"""`--downstream` and `--task-weights`: a fit of losses as one of scores on tasks, and what its tasks weigh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shapleymix.errors import UsageError
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.downstream.scoring import ScoredFit
    from shapleymix.fitting.fits import Fit
    from shapleymix.mixing.weights import WeightSpec

Tasks = tuple[str | None, str | None]
"""The values of `--downstream` and `--task-weights`."""


def scored(
    out: Output, fit: Fit, tasks: Tasks, weights: WeightSpec | None, objective: str = "mean"
) -> tuple[Fit | ScoredFit, WeightSpec | None]:
    """The fit with the weights of its targets, or what it says of scores with those of tasks."""
    downstream, task_weights = tasks
    if downstream is None:
        if task_weights is not None:
            raise UsageError("--task-weights does nothing without --downstream", hint="give --downstream, or --weights")
        return fit, weights
    from shapleymix.downstream.calibrations import Downstream
    from shapleymix.downstream.scoring import scored_fit
    from shapleymix_cli.inputs import load_record

    if weights is not None:
        raise UsageError("--weights weighs losses, and --downstream asks for scores", hint="give --task-weights")
    known = load_record(out, Downstream, downstream)
    out.warn(known.warnings)
    found = scored_fit(fit, known)
    return found, found.weights(task_weights, objective)
