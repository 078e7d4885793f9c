"""Settings of a tracker."""

from __future__ import annotations

from dataclasses import dataclass

from shapleymix_irds.errors import TrackerError
from shapleymix_irds.schedule import Schedule, choose_every, extra_cost

Setting = str | int | bool | list[str] | None


@dataclass(frozen=True)
class Options:
    """Settings of a tracker beyond the common ones.

    Attributes
    ----------
    seed : int
        Seed of the evaluated steps and of the rotation of the validation set.
    val_sequences : int
        Validation sequences of each language at an evaluation; the set rotates, so that few suffice. Ranks divide
        them; with more ranks than sequences, each takes one.
    overhead : float
        With `every="auto"`: the share of a plain run's time that may be added.
    total_steps : int, optional
        Length of the run, if known: helps `every="auto"` not to evaluate more often than is useful.
    ignore_index : int
        Labels in `y` that carry no loss (they are not counted as tokens).
    unseen_limit : int
        Number of consecutive evaluations without a token of a language after which an error is raised.
    numbers, side : int
        Numbers of a sketch, d, and of a side of a matrix in it, r (engine "sketch"; see `engines.sketches`).
    measure_sequences : int
        Validation sequences of each language on which the loss drop of the run is measured (for calibration).
    pass_tokens : int
        Validation tokens that pass the model at a time, at most, or one sequence: no more than you train with, so that
        they take no more memory.
    any_divisor : bool
        Whether `tokens=` may be another number than that of the step's labelled tokens.
    """

    seed: int = 0
    val_sequences: int = 8
    overhead: float = 0.05
    total_steps: int | None = None
    ignore_index: int = -100
    unseen_limit: int = 50
    numbers: int = 65_536
    side: int = 256
    measure_sequences: int = 64
    pass_tokens: int = 8192
    any_divisor: bool = False

    def __post_init__(self) -> None:
        counts = ("val_sequences", "measure_sequences", "unseen_limit", "total_steps")
        for name in (*counts, "numbers", "side", "pass_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise TrackerError(f"Options: {name} is {value!r}: it must be a whole number from 1 on")
        if not self.overhead > 0:
            raise TrackerError(f"Options: overhead is {self.overhead!r}: it must be above 0")

    def settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        return {name: getattr(self, name) for name in ("seed", "val_sequences")}


def automatic(options: Options, tokens: float, val_tokens: float, share: float) -> Schedule:
    """The schedule that holds the overhead.

    Parameters
    ----------
    tokens, val_tokens, share : float
        As for `extra_cost`, on one rank.
    """
    extra = extra_cost(tokens, val_tokens, share)
    return Schedule(choose_every(extra, options.overhead, options.total_steps), options.seed)
