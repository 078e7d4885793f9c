"""What settings may be: each by itself, and those that do not go together."""

from __future__ import annotations

from shapleymix.errors import Fault
from shapleymix_irds.train.settings import Settings, fields, flag

POSITIVE = (
    "seq",
    "batch",
    "lr",
    "lr_embedding",
    "peak_tflops",
    "clip",
    "test_windows",
    "toy_languages",
    "irds_val",
    "irds_pool",
    "irds_measure",
    "irds_overhead",
    "checkpoint_every",
    "keep",
    "log_every",
)
NOT_NEGATIVE = ("micro_batch", "shard_size", "weight_decay", "z_loss", "seed")
LARGEST_SEED = 2**63 - 1
FRACTIONS = ("val_share", "test_share", "min_lr", "warmup", "beta1", "beta2", "momentum", "toy_overlap")


def _positive(config: Settings) -> list[Fault]:
    below = [name for name, value in _given(config, POSITIVE) if not value > 0]
    negative = [name for name, value in _given(config, NOT_NEGATIVE) if not value >= 0]
    faults = [Fault(f"{flag(name)} {getattr(config, name)} is too small") for name in (*below, *negative)]
    if config.seed > LARGEST_SEED:
        faults.append(Fault(f"--seed {config.seed} is above {LARGEST_SEED}"))
    return faults


def _fractions(config: Settings) -> list[Fault]:
    outside = [name for name, value in _given(config, FRACTIONS) if not 0 <= value <= 1]
    ones = [name for name, value in _given(config, ("beta1", "beta2", "momentum")) if value == 1]
    return [
        *(Fault(f"{flag(name)} {getattr(config, name)} is outside 0 to 1") for name in outside),
        *(Fault(f"{flag(name)} 1 leaves nothing of a gradient, expected less") for name in ones),
    ]


def _given(config: Settings, names: tuple[str, ...]) -> list[tuple[str, float]]:
    """Names and values of those settings that have one."""
    return [(name, value) for name in names if (value := getattr(config, name)) is not None]


def _choices(config: Settings) -> list[Fault]:
    return [
        Fault(f"{flag(field.name)} {value} is not one of {', '.join(field.metadata['choices'])}")
        for field in fields()
        if field.metadata["choices"] and (value := str(getattr(config, field.name))) not in field.metadata["choices"]
    ]


def _combinations(config: Settings) -> list[Fault]:
    found = []
    if config.irds_fresh and config.irds_order == "2":
        found.append(Fault("--irds-order 2 does not go with --irds-fresh", hint="--irds-order 1"))
    if config.optimizer == "adafactor" and config.parallel != "ddp":
        hint = "--parallel ddp, or --optimizer adamw"
        found.append(Fault("--optimizer adafactor does not take sharded weights", hint=hint))
    return found


def faults_of(config: Settings) -> list[Fault]:
    """All that is wrong with settings as they are given."""
    return [fault for check in (_positive, _fractions, _choices, _combinations) for fault in check(config)]
