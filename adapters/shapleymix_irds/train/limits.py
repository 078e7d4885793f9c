"""What settings may be: each by itself, and those that do not go together."""

from __future__ import annotations

from shapleymix.errors import Fault
from shapleymix_irds.train.settings import Settings, fields, flag

POSITIVE = (
    "seq",
    "batch",
    "lr",
    "clip",
    "test_windows",
    "irds_val",
    "irds_pool",
    "irds_measure",
    "irds_overhead",
    "checkpoint_every",
    "keep",
    "log_every",
)
NOT_NEGATIVE = ("micro_batch", "weight_decay", "z_loss", "seed")
LARGEST_SEED = 2**63 - 1
FRACTIONS = ("val_share", "test_share", "min_lr", "warmup", "beta1", "beta2", "toy_overlap")


def _positive(config: Settings) -> list[Fault]:
    below = [name for name in POSITIVE if not getattr(config, name) > 0]
    negative = [name for name in NOT_NEGATIVE if not getattr(config, name) >= 0]
    faults = [Fault(f"{flag(name)} {getattr(config, name)} is too small") for name in (*below, *negative)]
    if config.seed > LARGEST_SEED:
        faults.append(Fault(f"--seed {config.seed} is above {LARGEST_SEED}"))
    return faults


def _fractions(config: Settings) -> list[Fault]:
    outside = [name for name in FRACTIONS if not 0 <= getattr(config, name) <= 1]
    ones = [name for name in ("beta1", "beta2") if getattr(config, name) == 1]
    return [
        *(Fault(f"{flag(name)} {getattr(config, name)} is outside 0 to 1") for name in outside),
        *(Fault(f"{flag(name)} 1 leaves nothing of a gradient, expected less") for name in ones),
    ]


def _choices(config: Settings) -> list[Fault]:
    return [
        Fault(f"{flag(field.name)} {value} is not one of {', '.join(field.metadata['choices'])}")
        for field in fields()
        if field.metadata["choices"] and (value := str(getattr(config, field.name))) not in field.metadata["choices"]
    ]


def _combinations(config: Settings) -> list[Fault]:
    both = config.irds_fresh and config.irds_order == "2"
    return [Fault("--irds-order 2 does not go with --irds-fresh", hint="--irds-order 1")] if both else []


def faults_of(config: Settings) -> list[Fault]:
    """All that is wrong with settings as they are given."""
    return [fault for check in (_positive, _fractions, _choices, _combinations) for fault in check(config)]
