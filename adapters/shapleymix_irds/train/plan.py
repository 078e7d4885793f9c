"""When a run is measured: which steps IRDS evaluates and after which ones it takes the loss drop.

Everything follows from the settings and the number of ranks, not from the clock, so that a run can be repeated bit for
bit. Costs are shares of the time that the same run takes without IRDS. Ranks divide validation sequences as they divide
training sequences, so that the plan is the same for any number of ranks that is not above the sequences'.
"""

from __future__ import annotations

from dataclasses import dataclass

from shapleymix.errors import Fault, UsageError
from shapleymix.records import FloatArray
from shapleymix_irds.engines.sketches import Form, share_of_step
from shapleymix_irds.schedule import choose_every, extra_cost
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.shapes import BYTE_VOCABULARY

FEWEST = 12  # evaluations of a run, however short: from fewer its matrix would be noise
LEAST = 5  # sequences of a language in all evaluated steps: below this it cannot be told from nothing
MOST = 10  # measurements of the loss drop between the first and the last
FORWARD = 1 / 3  # a pass without gradients, as a part of a training step


@dataclass(frozen=True)
class Plan:
    """What IRDS does when.

    Attributes
    ----------
    every : int
        Block length m: one step of each block of m is evaluated.
    measured : frozenset of int
        Steps after which the loss drop is measured, the last among them.
    cost : float
        The share of time that this adds, by the cost model.
    """

    every: int
    measured: frozenset[int]
    cost: float


def plan_of(config: TrainConfig, languages: int, ranks: int = 1) -> Plan:
    """The plan of a run.

    Parameters
    ----------
    languages, ranks : int
        Number of languages, K, and of ranks, R.
    """
    val_tokens = 0 if config.irds_fresh else _val_tokens(config, languages, ranks)
    extra = extra_cost(
        config.step_tokens, val_tokens, share_of_step(config.shape(BYTE_VOCABULARY).matrices, _form(config))
    )
    each = _measurement(config, languages)
    every = config.fixed_every or _every(config, extra, config.irds_overhead - 3 * each)
    spare = config.irds_overhead - extra / every - 2 * each  # the start and the end are always measured
    between = min(MOST, max(1, int(spare / each))) if each else 0
    steps = {round(config.steps * part / (between + 1)) for part in range(1, between + 2)}
    measured = frozenset(step for step in steps if step)
    return Plan(every, measured, extra / every + each * (len(measured) + 1))


def check_shares(config: TrainConfig, languages: tuple[str, ...], ratios: FloatArray, ranks: int = 1) -> None:
    """Refuse languages of which the evaluated steps have next to nothing.

    Raises
    ------
    UsageError
        Naming each language, its ratio and the number of its sequences.
    """
    every = plan_of(config, len(languages), ranks).every
    sequences = config.steps / every * config.batch
    steps = f"1 step of {every} of {config.steps} steps of {config.batch} sequences is evaluated"
    faults = [
        Fault(
            f"{name!r} with ratio {ratio:.3g} has {ratio * sequences:.2g} sequences to be measured by ({steps})",
            hint=_SHARE,
        )
        for name, ratio in zip(languages, ratios, strict=True)
        if ratio * sequences < LEAST
    ]
    if faults:
        raise UsageError.of(faults, "the mixture")


_SHARE = "raise its ratio or --tokens, lower --irds-every, leave it out of --languages, or take --no-irds"


def _every(config: TrainConfig, extra: float, overhead: float) -> int:
    longest = max(1, config.steps // FEWEST)
    return longest if overhead <= 0 else min(longest, choose_every(extra, overhead, config.steps))


def _form(config: TrainConfig) -> Form:
    """That of the tracker, where it is not exact because the model is small: then sides are whole, too."""
    return Form(0) if config.irds_engine == "exact" else Form()


def _val_tokens(config: TrainConfig, languages: int, ranks: int) -> float:
    """V of one evaluated step, over all ranks, as if each had as many as the one that has most."""
    sequences = max(config.irds_val, ranks // languages) * languages
    return -(-sequences // ranks) * ranks * config.seq


def _measurement(config: TrainConfig, languages: int) -> float:
    """The cost of one measurement of the loss drop; none where the test losses serve for it."""
    tokens = 0 if config.irds_fresh else min(config.irds_measure, config.irds_pool) * languages * config.seq
    return FORWARD * tokens / (config.steps * config.step_tokens)
