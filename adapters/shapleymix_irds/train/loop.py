"""The training loop: one model, one mixture, from the first step or from the last checkpoint."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from shapleymix.errors import Fault, Location, UsageError
from shapleymix.records import FloatArray
from shapleymix_irds.distributed import World
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.train.checkpoint import Checkpoints
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.corpus import Corpus
from shapleymix_irds.train.evaluate import mean_losses
from shapleymix_irds.train.feed import Feed, Share
from shapleymix_irds.train.plan import plan_of
from shapleymix_irds.train.results import Row, summary, write_run_log, write_summary
from shapleymix_irds.train.sampler import Sampler
from shapleymix_irds.train.setup import Losses, Parts, make_tracker
from shapleymix_irds.train.step import Shown, Stepper
from shapleymix_irds.train.stopping import StopSignals
from shapleymix_irds.train.telemetry import Metrics, Rate, Sink
from shapleymix_irds.train.telling import Stopped


class Trainer:
    """One run: its parts, its position, and what it has measured so far."""

    def __init__(self, config: TrainConfig, corpus: Corpus, ratios: FloatArray, parts: Parts, world: World) -> None:
        self.config, self.corpus, self.ratios, self.world = config, corpus, ratios, world
        self.model, self.optimiser, self.N = parts.model, parts.optimiser, parts.N
        self.losses = Losses(parts.model, config.z_loss, parts.autocast)
        self.sampler = Sampler(ratios, np.array([stream.windows for stream in corpus.train]), config.seed)
        self.tracker = make_tracker(config, corpus, parts, world) if config.irds else None
        self.measured = plan_of(config, len(corpus.languages), world.size).measured if config.irds else frozenset()
        self.efficiency = dict.fromkeys(corpus.languages if config.irds else (), math.nan)  # as last measured
        self.out = Path(config.out)
        self.checkpoints = Checkpoints(self.out, world, config.keep)
        self.step = 0
        self.rows: list[Row] = []
        self.stepper = Stepper(config, corpus, parts, self.losses, self.tracker, world)
        self.stops = StopSignals()
        self.stop = 0  # the signal that all ranks know of
        self.sinks: list[Sink] = []
        self.feed: Feed
        self.rate = Rate()
        self.shown = Shown()
        self.faults: list[Fault] = []  # why a matrix is missing at the end

    # -- position ------------------------------------------------------------------------------------------

    @property
    def D(self) -> int:
        """Tokens trained on so far."""
        return self.step * self.config.step_tokens

    def resume(self) -> int:
        """Continue from the last checkpoint, if there is one; the step it was saved at.

        Raises
        ------
        UsageError
            If the checkpoint is of other settings or of another corpus.
        """
        steps = self.checkpoints.steps()
        if not steps:
            return 0
        meta = self.checkpoints.meta(steps[-1])
        check_same(meta, self._meta(), str(self.out))
        self.checkpoints.load(steps[-1], self.model, self.optimiser)
        self.step = int(meta["step"])
        self.rows = [Row(row["D"], tuple(row["loss"])) for row in meta["rows"]]
        self.sampler.counts[:] = meta["counts"]
        if self.tracker is not None:
            self.tracker.load_state_dict(meta["tracker"])
        return self.step

    def save(self) -> None:
        """Checkpoint the run as it stands."""
        self.checkpoints.save(self.step, self.model, self.optimiser, self._meta())

    def _meta(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "settings": self.config.result_settings,
            "corpus": self.corpus.fingerprint,
            "counts": self.sampler.counts.tolist(),
            "rows": [{"D": row.D, "loss": list(row.loss)} for row in self.rows],
            "tracker": self.tracker.state_dict() if self.tracker is not None else None,
        }

    # -- running -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train to the end and write the results.

        Raises
        ------
        Stopped
            If a signal asked for it; a checkpoint has been written.
        DataError
            If a loss is not finite.
        """
        if not self.checkpoints.steps():
            if self.config.eval_untrained or self.config.irds_fresh:
                self.evaluate(log=self.config.eval_untrained)
            self.save()  # before the first step, so that a disk that cannot take it is known now
        with self.stops.heard(), self._fed() as self.feed:
            while self.step < self.config.steps:
                with self.rate.step(self.config.step_tokens):
                    self.train_step()
                if self.step in self.config.eval_steps:
                    self.evaluate()
                elif self.step in self.measured:
                    self._measure()
                self._report()
                last = self.step == self.config.steps
                if last or self.stop or self.step % self.config.checkpoint_every == 0:
                    self.save()
                if self.stop and not last:
                    raise Stopped(self.stop, self.step)
        self.finish()

    def _fed(self) -> Feed:
        """The batches of all steps that are left."""
        config, world = self.config, self.world
        share = Share(config.batch, world.rank, world.size, config.micro_batch, mixed=config.irds_fresh)
        left = config.steps - self.step
        return Feed(self.corpus.train, self.sampler, share, left, pin=world.device.type == "cuda")

    def train_step(self) -> None:
        """One optimiser step over the global batch."""
        batch = self.feed.next()
        self.shown, self.stop = self.stepper.take(self.step, batch.pieces, self.stops.asked)
        self.sampler.counts[:] = batch.counts
        self.step += 1

    def evaluate(self, log: bool = True) -> None:
        """Measure the test losses, log a row, and let the tracker measure the drop so far."""
        config = self.config
        batch = config.micro_batch or -(-config.batch // self.world.size)
        found = mean_losses(self.losses.measured, self.corpus.test, self.world, most=config.test_windows, batch=batch)
        if log:
            self.rows.append(Row(self.D, tuple(found.tolist())))
            self._write_rows()
        if self.tracker is not None and config.irds_fresh:
            self.tracker.record_losses(dict(zip(self.corpus.languages, found.tolist(), strict=True)))
        if self.step:  # the first step measures the start by itself
            self._measure()

    def _measure(self) -> None:
        """Let the tracker measure the loss drop so far; where it is validation-free it was given the test losses."""
        if self.tracker is None:
            return
        if not self.config.irds_fresh:
            self.tracker.measure(self.losses)
        self.efficiency = dict(zip(self.corpus.languages, map(float, self.tracker.efficiency), strict=True))

    # -- results -------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write runs.csv, summary.json and the SV matrices; doing it again gives the same files."""
        self._write_rows()
        if self.world.main:
            facts = {"run": self.config.run, "N": self.N, "D": self.D, "ranks": self.world.size}
            facts |= {"torch": torch.__version__, "settings": self.config.result_settings}
            write_summary(self.out / "summary.json", summary(self.corpus, self.sampler, facts))
        self._write_matrix("sv_raw.csv", "raw", "train for longer, or evaluate more steps (--irds-every)")
        self._write_matrix("sv.csv", "calibrated", "sv_raw.csv holds the values as they were summed")
        self.world.wait()

    def _write_matrix(self, name: str, kind: Literal["raw", "calibrated"], hint: str) -> None:
        """Write one of the matrices, or keep in `faults` why there is none."""
        if self.tracker is None:
            return
        try:
            self.tracker.save(self.out / name, kind, force=True)
        except TrackerError as error:
            self.faults.append(Fault(f"there is no {name}: {error.message}", hint=hint))
            if self.world.main:  # of an earlier run in this folder
                for stale in (name, f"{name}.json"):
                    (self.out / stale).unlink(missing_ok=True)

    def _write_rows(self) -> None:
        if self.world.main:
            write_run_log(
                self.out / "runs.csv",
                self.rows,
                run=self.config.run,
                N=self.N,
                ratios=self.ratios,
                languages=self.corpus.languages,
                seed=self.config.seed,
            )

    def _report(self) -> None:
        if not self.sinks or (self.step % self.config.log_every and self.step != self.config.steps):
            return
        tracker, shown = self.tracker, self.shown
        losses = (shown.sums[0] / shown.sums[1]).tolist()
        metrics = Metrics(
            step=self.step,
            D=self.D,
            lr=shown.lr,
            grad_norm=shown.norm,
            loss=dict(zip(self.corpus.languages, losses, strict=True)),
            tokens_per_second=self.rate.read(),
            irds_overhead=float("nan") if tracker is None else float(tracker.overhead),
            efficiency=self.efficiency,
        )
        for sink in self.sinks:
            sink.step(metrics)


def check_same(saved: dict[str, Any], now: dict[str, Any], out: str) -> None:
    """Refuse to continue a run with other settings or on another corpus, naming what differs."""
    before, after = saved["settings"], json.loads(json.dumps(now["settings"]))
    changed = [name for name in after if before.get(name) != after[name]]
    if changed:
        told = "; ".join(f"{name} was {before.get(name)!r}, is {after[name]!r}" for name in changed)
        hint = "choose another --out, or start anew with --force"
        raise UsageError(f"holds a run with other settings: {told}", location=Location(file=out), hint=hint)
    if saved["corpus"] != now["corpus"]:
        hint = "give the corpus it began with, another --out, or --force"
        raise UsageError("holds a run on another corpus", location=Location(file=out), hint=hint)
