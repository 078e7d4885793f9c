"""From settings to a finished run."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.tables.names import labels_of, require_labels
from shapleymix.tables.simplex import format_mixture
from shapleymix_irds.distributed import World
from shapleymix_irds.train.agreement import on_main
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import check_vocabulary
from shapleymix_irds.train.data.opening import document_end, drop_shared, names_in, open_for
from shapleymix_irds.train.data.toy import toy_names
from shapleymix_irds.train.disk import check_folder, locked
from shapleymix_irds.train.distributed import joined_world
from shapleymix_irds.train.fresh import check_fresh, how_measured
from shapleymix_irds.train.loop import Trainer
from shapleymix_irds.train.mixtures import Mixture, read_mixture
from shapleymix_irds.train.plan import check_shares, plan_of
from shapleymix_irds.train.results import clear_results, files_of, in_the_way
from shapleymix_irds.train.saving.checkpoint import Checkpoints
from shapleymix_irds.train.saving.export import export
from shapleymix_irds.train.saving.exported import check_goal
from shapleymix_irds.train.saving.resuming import ALONE
from shapleymix_irds.train.saving.tensors import tensor_bytes
from shapleymix_irds.train.setup import Parts, make_parts
from shapleymix_irds.train.showing.live import LiveView
from shapleymix_irds.train.showing.loggers import RUN_ID, TensorBoard, WeightsAndBiases
from shapleymix_irds.train.showing.telemetry import JsonLines, Lines, Sink, irds_line
from shapleymix_irds.train.speed import peak_memory, speed_parts
from shapleymix_irds.train.telling import say, told

SHOWN = 8  # files that are named


def launch(config: TrainConfig) -> None:
    """Train, or continue to train, as the settings say.

    Raises
    ------
    ShapleyMixError
        If a setting, the corpus or the folder is wrong; before the first step where that can be known.
    """
    languages = language_names(config)
    mixture = read_mixture(config.mixture, languages)
    ratios = mixture.ratios
    if config.irds and (ratios == 0).any():
        missing = ", ".join(name for name, ratio in zip(languages, ratios, strict=True) if ratio == 0)
        message = f"IRDS measures languages that are trained on; the mixture has none of {missing}"
        raise UsageError(message, hint="--no-irds, or leave them out of --languages")
    with joined_world(config.device) as world, told():
        if config.export:
            on_main(world, lambda: check_goal(Path(config.export), Path(config.out)))
        _train(config, languages, mixture, world)


def _train(config: TrainConfig, languages: tuple[str, ...], mixture: Mixture, world: World) -> None:
    if config.irds:
        check_shares(config, languages, mixture.ratios, world.size)
    opened = open_for(config, languages, world)
    config, corpus = opened.config, opened.corpus
    check_fresh(config, corpus, mixture.ratios)
    config = config.resolved(languages, format_mixture(mixture.ratios, languages), corpus.fingerprint)
    end = document_end(opened) if config.mask_documents else None
    parts = make_parts(config, opened.settings.vocabulary, world, end)
    check_vocabulary(corpus, parts.vocabulary)
    if mixture.rescaled:
        scaled = format_mixture(mixture.ratios, languages, 4)
        _tell(world, f"warning: the mixture sums to {mixture.total:.6g}, expected 1: rescaled to {scaled}")
    with _claimed(config, parts, world):
        trainer = Trainer(config, corpus, mixture.ratios, parts, world)
        on_main(world, lambda: trainer.sinks.extend(_loggers(config, world)))
        if config.force:
            _clear(config, world)
        if config.keep == 1:
            _tell(world, ALONE)
        resumed = trainer.resume(functools.partial(_tell, world))
        how = f"{opened.settings.named}, {config.optimizer} with learning rate {config.peak_lr:g}"
        _tell(
            world,
            f"{config.run}: N = {parts.N:,}, {config.length}, {how}, from step {resumed}",
        )
        if config.irds:
            _tell(world, how_measured(config, corpus, mixture.ratios, world.size))
        _run(trainer, world, resumed)
        drop_shared(config, world)
        if config.export:
            on_main(world, lambda: export(Path(config.out), Path(config.export)))
            _tell(world, f"wrote the model in {config.export}")
    _tell_speed(trainer, world, resumed)
    written = (name for name in files_of(config.irds) if Path(config.out, name).exists())
    _tell(world, f"wrote {', '.join(written)} in {config.out}")
    if (tracker := trainer.tracker) is not None:
        every = plan_of(config, len(languages), world.size).every
        overhead, ratios = tracker.overhead, tracker.efficiency
        _tell(
            world, irds_line(tracker.ledger.count, every, overhead, ratios, tracker.fallback, fresh=config.irds_fresh)
        )
    if trainer.faults:
        raise DataError.of(trainer.faults, "the SV matrix")


def _tell_speed(trainer: Trainer, world: World, resumed: int) -> None:
    """The speed of the steps that this process has taken, and the peak memory of its first rank."""
    if trainer.step > resumed:
        _tell(world, "trained at " + ", ".join(speed_parts(trainer.speed.whole(), peak_memory(world.device))))


def _run(trainer: Trainer, world: World, resumed: int) -> None:
    on_main(world, lambda: trainer.sinks.extend(shown_by(trainer.config, resumed)))
    try:
        trainer.run()
    finally:
        for sink in trainer.sinks:
            sink.close()


def language_names(config: TrainConfig) -> tuple[str, ...]:
    """The languages of the run.

    Raises
    ------
    UsageError
        If a name cannot be a label or comes twice.
    """
    if config.languages:
        return labels_of(config.languages, "--languages")
    names = toy_names(config.toy_languages) if config.corpus == "toy" else names_in(config.corpus)
    if len(names) < 1:
        raise UsageError("there are no files of text in it", location=Location(file=config.corpus))
    require_labels(names, "the corpus")
    return names


@contextlib.contextmanager
def _claimed(config: TrainConfig, parts: Parts, world: World) -> Iterator[None]:
    """Within, the folder can take the run, is free or holds this very run, and is no other process's.

    Raises
    ------
    UsageError
        If it is not so.
    """
    out = Path(config.out)
    check_folder(out, tensor_bytes(parts.model, parts.optimiser) * (config.keep + 1))
    with locked(out, world):
        if not config.force:
            on_main(world, lambda: _check_free(config, world))
        yield


def _check_free(config: TrainConfig, world: World) -> None:
    out = Path(config.out)
    begun = bool(Checkpoints(out, world, config.keep).steps())
    if begun and not config.resume:
        raise UsageError("holds a run", location=Location(file=str(out)), hint="--resume, another --out, or --force")
    if not begun and (found := in_the_way(out, config.irds)):
        shown = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
        hint = "choose another --out, or overwrite them with --force"
        raise UsageError(f"holds {shown}, of no run to continue", location=Location(file=str(out)), hint=hint)


def _clear(config: TrainConfig, world: World) -> None:
    """Remove what the folder holds of an old run; its checkpoints first, so that nothing continues what is left."""
    on_main(world, Checkpoints(Path(config.out), world, config.keep).clear)
    on_main(world, lambda: clear_results(Path(config.out)))
    if not config.wandb:  # which has taken a new id by now
        on_main(world, lambda: (Path(config.out) / RUN_ID).unlink(missing_ok=True))


def _loggers(config: TrainConfig, world: World) -> list[Sink]:
    """Sinks that need a package of their own, and so may be refused."""
    sinks: list[Sink] = []
    if config.tensorboard:
        sinks.append(TensorBoard(Path(config.out) / "tensorboard", config.steps))
    done = not config.force and Checkpoints(Path(config.out), world, config.keep).steps()[-1:] == [config.steps]
    if config.wandb and not done:  # which would begin a record of nothing
        settings, out = config.result_settings, Path(config.out)
        sinks.append(WeightsAndBiases(config.wandb, config.run, settings, out, config.steps, anew=config.force))
    return sinks


def shown_by(config: TrainConfig, resumed: int) -> list[Sink]:
    """Where the run is shown: in its folder, and on a terminal or in lines."""
    live = config.live and sys.stderr.isatty()
    shown = LiveView(config.steps, resumed) if live else Lines(config.steps)
    return [JsonLines(Path(config.out) / "metrics.jsonl", resumed), shown]


def _tell(world: World, text: str) -> None:
    if world.main:
        say(text)
