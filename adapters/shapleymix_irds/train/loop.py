"""The training loop: one model, one mixture, from the first step or from the last checkpoint."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from shapleymix.errors import Fault
from shapleymix.records import FloatArray
from shapleymix_irds.distributed import World
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.train.agreement import on_every, on_main
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.corpus import Corpus
from shapleymix_irds.train.data.evaluate import mean_losses
from shapleymix_irds.train.data.feed import Feed, Share
from shapleymix_irds.train.data.sampler import Sampler
from shapleymix_irds.train.plan import plan_of
from shapleymix_irds.train.results import Row, summary, write_run_log, write_summary
from shapleymix_irds.train.saving.checkpoint import Checkpoints
from shapleymix_irds.train.saving.recorded import fault_of
from shapleymix_irds.train.saving.resuming import resume
from shapleymix_irds.train.setup import Losses, Parts, make_tracker, speed_of
from shapleymix_irds.train.showing.measured import News
from shapleymix_irds.train.showing.telemetry import Metrics, Sink
from shapleymix_irds.train.speed import peak_memory
from shapleymix_irds.train.step import Shown, Stepper
from shapleymix_irds.train.stopping import StopSignals
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
        self.trained_with: dict[str, Any] = {"ranks": world.size, "torch": str(torch.__version__)}
        self.out = Path(config.out)
        self.checkpoints = Checkpoints(self.out, world, config.keep)
        self.begun = False  # whether there is a checkpoint
        self.step = 0
        self.rows: list[Row] = []
        self.stepper = Stepper(config, corpus, parts, self.losses, self.tracker, world)
        self.stops = StopSignals()
        self.stop = 0  # the signal that all ranks know of
        self.sinks: list[Sink] = []
        self.feed: Feed
        self.speed = speed_of(config, parts, world)
        self.shown = Shown()
        self.news = News(self.tracker)
        self.faults: list[Fault] = []  # why a matrix is missing at the end

    # -- position ------------------------------------------------------------------------------------------

    @property
    def D(self) -> int:
        """Tokens trained on so far."""
        return self.step * self.config.step_tokens

    def resume(self, tell: Callable[[str], None]) -> int:
        """Continue from the last checkpoint that is whole, if there is one; the step it was saved at.

        Errors are those of `resuming.resume`; `tell` says which checkpoints are broken.
        """
        wrong = functools.partial(fault_of, config=self.config, languages=self.corpus.languages, ratios=self.ratios)
        meta = resume(self.checkpoints, self.model, self.optimiser, self._meta(), wrong, tell)
        if meta is None:
            return 0
        self.begun = True
        self.step = int(meta["step"])
        self.rows = [Row(row["D"], tuple(row["loss"])) for row in meta["rows"]]
        self.sampler.counts[:] = meta["counts"]
        self.efficiency = {name: math.nan if ratio is None else ratio for name, ratio in meta["efficiency"].items()}
        if self.step == self.config.steps:  # all of it was trained then
            self.trained_with = meta["trained_with"]
        if self.tracker is not None:
            self.tracker.load_state_dict(meta["tracker"])
        self._write_rows()
        return self.step

    def save(self) -> None:
        """Begin to checkpoint the run as it stands."""
        self.checkpoints.save(self.step, self.model, self.optimiser, self._meta)

    def _meta(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "settings": self.config.result_settings,
            "corpus": self.corpus.fingerprint,
            "counts": self.sampler.counts.tolist(),
            "rows": [{"D": row.D, "loss": list(row.loss)} for row in self.rows],
            "efficiency": {name: ratio if math.isfinite(ratio) else None for name, ratio in self.efficiency.items()},
            "trained_with": self.trained_with,
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
        if not self.begun:
            if self.config.eval_untrained or self.config.irds_fresh:
                self.evaluate(log=self.config.eval_untrained)
            self.save()
            self.checkpoints.finish()  # before the first step, so that a disk that cannot take it is known now
            self.begun = True
            if self.rows:
                self._write_rows()
        with self.stops.heard(), self._fed() as self.feed:
            while self.step < self.config.steps:
                with self.speed.step(self.config.step_tokens):
                    self.train_step()
                if self.step in self.config.eval_steps:
                    self.evaluate()
                elif self.step in self.measured:
                    self._measure()
                self._report()
                last = self.step == self.config.steps
                if last or self.stop or self.step % self.config.checkpoint_every == 0:
                    self.save()
                if last or self.stop:
                    self.checkpoints.finish()
                self.checkpoints.settle()
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
        self.step += 1
        self.sampler.counts[:] = batch.counts

    def evaluate(self, log: bool = True) -> None:
        """Measure the test losses, log a row, and let the tracker measure the drop so far."""
        config = self.config
        batch = config.pass_sequences(self.world.size)
        found = mean_losses(self.losses.measured, self.corpus.test, self.world, most=config.test_windows, batch=batch)
        if log:
            self.rows.append(Row(self.D, tuple(found.tolist())))
            if self.begun:  # a result without a checkpoint would be taken for another's
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
        facts = {"run": self.config.run, "N": self.N, "D": self.D, **self.trained_with}
        facts |= {"settings": self.config.result_settings}
        told = summary(self.corpus, self.sampler, facts)
        on_main(self.world, lambda: write_summary(self.out / "summary.json", told))
        self._write_matrix("sv_raw.csv", "raw", "train for longer, or evaluate more steps (--irds-every)")
        self._write_matrix("sv.csv", "calibrated", "sv_raw.csv holds the values as they were summed")
        self.world.wait()

    def _write_matrix(self, name: str, kind: Literal["raw", "calibrated"], hint: str) -> None:
        """Write one of the matrices, or keep in `faults` why there is none."""
        if self.tracker is None:
            return
        save = self.tracker.save
        try:
            on_every(self.world, lambda: save(self.out / name, kind, force=True))
        except TrackerError as error:
            self.faults.append(Fault(f"there is no {name}: {error.message}", hint=hint))
            if self.world.main:  # of an earlier run in this folder
                for stale in (name, f"{name}.json"):
                    (self.out / stale).unlink(missing_ok=True)

    def _write_rows(self) -> None:
        """Write runs.csv; every rank must call."""
        facts = {"run": self.config.run, "N": self.N, "seed": self.config.seed}
        facts |= {"ratios": self.ratios, "languages": self.corpus.languages}
        on_main(self.world, lambda: write_run_log(self.out / "runs.csv", self.rows, **facts))

    def _report(self) -> None:
        """Show the step where it is one to be shown; every rank must call."""
        if self.step % self.config.log_every == 0 or self.step == self.config.steps:
            on_main(self.world, self._show)

    def _show(self) -> None:
        tracker, shown = self.tracker, self.shown
        losses = (shown.sums[0] / shown.sums[1]).tolist()
        pace = self.speed.read()
        metrics = Metrics(
            step=self.step,
            D=self.D,
            lr=shown.lr,
            grad_norm=shown.norm,
            loss=dict(zip(self.corpus.languages, losses, strict=True)),
            tokens_per_second=pace.tokens_per_second,
            mfu=pace.mfu,
            peak_memory=peak_memory(self.world.device),
            irds_overhead=float("nan") if tracker is None else float(tracker.overhead),
            irds_fresh=self.config.irds_fresh,
            efficiency=self.efficiency,
        )
        for sink in self.sinks:
            sink.step(metrics)
        if (measured := self.news.since()) is not None:
            for sink in self.sinks:
                sink.show(metrics, measured)
