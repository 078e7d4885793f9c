"""Whether a run sees each sequence once: then training sequences can stand in for validation text.

A sequence that comes again was trained on before, so that its gradient is no longer that of text of its kind.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from shapleymix.errors import Fault, UsageError
from shapleymix.records import FloatArray, IntArray
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import Corpus
from shapleymix_irds.train.plan import FEWEST, Plan, plan_of

_REPEATS = "fewer --tokens, more text, or a lower ratio; or measure on validation text: --no-irds-fresh"


def check_fresh(config: TrainConfig, corpus: Corpus, ratios: FloatArray) -> None:
    """Refuse `--irds-fresh` where a language's text is not enough for the run.

    Raises
    ------
    UsageError
        Naming each language, what it has and what the run takes.
    """
    if not (config.irds and config.irds_fresh):
        return
    listed = zip(corpus.languages, _windows(corpus) * config.seq, _needed(config, ratios) * config.seq, strict=True)
    faults = [
        Fault(f"{name!r} would be seen more than once: {need:,.0f} tokens of the {have:,} that it has", hint=_REPEATS)
        for name, have, need in listed
        if need > have
    ]
    if faults:
        raise UsageError.of(faults, "--irds-fresh")


def how_measured(config: TrainConfig, corpus: Corpus, ratios: FloatArray, ranks: int) -> str:
    """What is evaluated on what, at which cost; and where it could be had without validation text."""
    plan = plan_of(config, len(corpus.languages), ranks)
    on = "without validation text (--irds-fresh)" if config.irds_fresh else "on validation text"
    told = f"IRDS: {_planned(plan)}, {on}"
    if config.irds_every == "auto" and plan.cost > config.irds_overhead:
        told += f"; above --irds-overhead {config.irds_overhead:.0%}: a short run has {FEWEST} evaluations, too"
    if config.irds_fresh or not _could_be_fresh(config, corpus, ratios):
        return told
    other = plan_of(dataclasses.replace(config, irds_fresh=True), len(corpus.languages), ranks)
    return f"{told}; the text is seen once, so it could be measured without: --irds-fresh ({_planned(other)})"


def _could_be_fresh(config: TrainConfig, corpus: Corpus, ratios: FloatArray) -> bool:
    """Whether text is seen once, and a language has, for its own value, two sequences or more in a step."""
    enough = (_needed(config, ratios) <= _windows(corpus)).all()
    return bool(enough) and config.irds_order == "1" and bool((config.batch * ratios >= 2).all())


def _planned(plan: Plan) -> str:
    return f"1 step of {plan.every} for {plan.cost:+.1%} time, reckoned"


def _needed(config: TrainConfig, ratios: FloatArray) -> FloatArray:
    """Sequences of each language that the run takes: its due, or one less."""
    return np.ceil(config.steps * config.batch * ratios - 1e-6)


def _windows(corpus: Corpus) -> IntArray:
    return np.array([stream.windows for stream in corpus.train])
