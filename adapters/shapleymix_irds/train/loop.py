"""The training loop: one model, one mixture, from the first step or from the last checkpoint to the results."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from shapleymix.errors import DataError, Location, UsageError
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.mixtures import format_mixture, parse_mixture
from shapleymix.tables.words import amounts, parse_size
from shapleymix_irds import IRDS, Options
from shapleymix_irds.hooked_watch import save_matrices
from shapleymix_irds.train import checkpoint, outputs
from shapleymix_irds.train.corpus import Corpus, Feed, Sampler, Sequences, open_corpus, passes, spread, windows_of
from shapleymix_irds.train.distributed import World, bf16, build, join, sync_gradients
from shapleymix_irds.train.model import sequence_losses
from shapleymix_irds.train.outputs import check_goal, export
from shapleymix_irds.train.settings import TrainingSettings

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
UNSOUND = "a lower --lr or a longer --warmup; the last checkpoint is sound"


def train(settings: TrainingSettings) -> None:
    """Train, or continue to train, as the settings say.

    Raises
    ------
    ShapleyMixError
        If a setting, the corpus or the folder is wrong; before the first step where that can be known.
    SystemExit
        If a signal asked for a stop, with 128 and its number; a checkpoint has been written.
    """
    world = join(settings.device)
    if settings.export:
        check_goal(Path(settings.export))
    corpus = open_corpus(settings)
    ratios = parse_mixture(settings.mixture, corpus.languages)
    _check(settings, corpus, ratios, world)
    settings = settings.resolved(corpus.languages, format_mixture(ratios, corpus.languages), corpus.fingerprint)
    with outputs.claimed(settings) if world.main else contextlib.nullcontext():
        Run(settings, corpus, ratios, world).train()
        world.wait()


def _check(settings: TrainingSettings, corpus: Corpus, ratios: FloatArray, world: World) -> None:
    """Refuse a mixture or ranks that do not go with the settings."""
    count = passes(settings.batch, settings.micro_batch, world.size)
    if settings.batch < world.size or count > max(settings.batch // world.size, 1):
        message = (
            f"--batch {settings.batch} leaves one of {world.size} ranks without a sequence in one of {count} passes"
        )
        raise UsageError(message, hint="a larger --batch that the ranks divide, or a larger --micro-batch")
    if not settings.irds:
        return
    if missing := [name for name, ratio in zip(corpus.languages, ratios, strict=True) if ratio == 0]:
        message = f"IRDS measures languages that are trained on; the mixture has none of {', '.join(missing)}"
        raise UsageError(message, hint="--no-irds, or leave them out of --languages")
    again = repeated(settings, corpus, ratios)
    if settings.irds_fresh and again.any():
        names = [name for name, often in zip(corpus.languages, again, strict=True) if often]
        message = f"--irds-fresh measures text that is seen once; the run would repeat {', '.join(names)}"
        raise UsageError(message, hint="fewer --tokens, more text, or --no-irds-fresh")


def repeated(settings: TrainingSettings, corpus: Corpus, ratios: FloatArray) -> np.ndarray:
    """Whether the run sees a language's training text more than once (M,)."""
    due = np.ceil(settings.steps * settings.batch * ratios - 1e-6)
    return due > pools(settings, corpus)


def pools(settings: TrainingSettings, corpus: Corpus) -> IntArray:
    """Sequences of each language's training text that a run draws on (M,): all, or as many as `unique_tokens` says."""
    whole = np.array([stream.windows for stream in corpus.train], dtype=np.int64)
    asked = amounts(np.full(len(whole), np.inf), settings.unique_tokens or None, corpus.languages, parse_size, "tokens")
    return np.clip(np.floor(asked / settings.seq), 1, whole).astype(np.int64)


def make_optimiser(model: nn.Module, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW, in which matrices decay and vectors do not, with its state made, so that a checkpoint can fill it."""
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=settings.peak_lr, betas=(0.9, 0.95))
    for weight in weights:
        zeros = {key: torch.zeros_like(weight, requires_grad=False) for key in ("exp_avg", "exp_avg_sq")}
        optimiser.state[weight] = {"step": torch.zeros(()), **zeros}
    return optimiser


class Run:
    """One run: its model, its position, and what it has measured so far."""

    def __init__(self, settings: TrainingSettings, corpus: Corpus, ratios: FloatArray, world: World) -> None:
        self.settings, self.corpus, self.ratios, self.world = settings, corpus, ratios, world
        self.out, self.pools = Path(settings.out), pools(settings, corpus)
        self.shape = settings.shape(corpus.tokenizer.vocabulary)
        self.decoder, self.model = build(settings, corpus.tokenizer.vocabulary, world)
        self.optimiser = make_optimiser(self.decoder, settings)
        self.autocast = bf16(settings, world)
        self.tracker = self._tracker() if settings.irds else None
        self.step = 0
        self.seconds: list[float] = []  # of the steps since the last line of metrics
        self.counts = np.zeros(len(ratios), dtype=np.int64)  # sequences of each language, dealt so far
        self.rows: list[dict[str, Any]] = []  # D, and loss by language
        self.metrics: outputs.Metrics | None = None  # on rank 0

    def _tracker(self) -> IRDS:
        settings = self.settings
        streams = self.corpus.val if settings.validated else ()
        pool = {stream.language: windows_of(stream, spread(stream, settings.irds_pool)) for stream in streams}
        at_most = min(8192, self._pass_sequences * settings.seq)
        options = Options(settings.seed, settings.irds_val, settings.irds_overhead, settings.steps, pass_tokens=at_most)
        options = replace(options, measure_sequences=settings.irds_measure)
        told = {"every": settings.every, "out": settings.out, "options": options}
        return IRDS(self.model, self.corpus.languages, val=pool or None, **told)

    @property
    def _pass_sequences(self) -> int:
        """Sequences that pass the model of one rank at a time, at most."""
        return self.settings.micro_batch or -(-self.settings.batch // self.world.size)

    @property
    def D(self) -> int:
        """Tokens trained on so far."""
        return self.step * self.settings.step_tokens

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of each sequence (B,) in nats: what is trained on, and what is measured."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.autocast):
            logits = self.model(x)
        return sequence_losses(logits, y, self.settings.z_loss)

    # -- from the first step to the last -------------------------------------------------------------------

    def train(self) -> None:
        """Train to the end and write the results.

        Raises
        ------
        SystemExit
            If a signal asked for a stop; a checkpoint has been written.
        DataError
            If a loss is not finite, or there is no matrix.
        """
        settings, resumed = self.settings, self.resume()
        sizes = f"N = {self.shape.non_embedding:,}, D = {settings.steps * settings.step_tokens:,}"
        self._say(f"{settings.run}: {sizes}, learning rate {settings.peak_lr:g}, step {self.step} of {settings.steps}")
        if not resumed:
            if settings.eval_untrained or settings.irds_fresh:
                self.evaluate(log=settings.eval_untrained)
            self.save()  # before the first step, so that a disk that cannot take it is known now
        self.metrics = outputs.Metrics(settings, self.step) if self.world.main else None
        sampler = Sampler(self.ratios, self.pools, settings.seed, self.counts)
        feed = Feed(self.corpus.train, sampler, settings, self.world)
        try:
            with _heard() as asked_to_stop:
                while self.step < settings.steps:
                    stop = self._one_step(feed, asked_to_stop)
                    if stop and self.step < settings.steps:
                        name = signal.Signals(stop).name
                        self._say(f"stopped by {name} after step {self.step}; the same command continues")
                        raise SystemExit(128 + stop)
            self._finish()
        finally:
            feed.close()
            if self.metrics is not None:
                self.metrics.close()

    def _one_step(self, feed: Feed, asked: list[int]) -> int:
        """One step with what comes after it; the signal by which the run should stop, or 0."""
        settings = self.settings
        begun = time.perf_counter()
        pieces, counts = feed.next()
        told, stop = self._agree(self._backward(pieces), asked)
        rate, norm = self._update()
        self.seconds.append(time.perf_counter() - begun)
        self.step, self.counts = self.step + 1, counts
        if self.step in settings.eval_steps:
            self.evaluate()
        last = self.step == settings.steps
        if self.step % settings.log_every == 0 or last:
            self._report(told, rate, norm)
        if last or stop or self.step % settings.checkpoint_every == 0:
            self.save()
        return stop

    def _backward(self, pieces: list[Sequences]) -> Tensor:
        """Gradients of this rank's share; its loss sums and tokens by language, (2, K)."""
        sums = torch.zeros(2, len(self.corpus.languages), dtype=torch.float64)
        tokens, device = self.settings.step_tokens, self.world.device
        for number, piece in enumerate(pieces):
            x, y, lang = (part.to(device, non_blocking=True) for part in piece)
            sync_gradients(self.model, last=number == len(pieces) - 1)
            if self.tracker is not None:
                self.tracker.backward(self.losses, x, y, lang, step=self.step, tokens=tokens)
                measured = self.tracker.sequence_losses
            else:
                trained, measured = self.losses(x, y)
                (trained.sum() * (self.world.size / tokens)).backward()
            sums[0].index_add_(0, piece.languages, measured.detach().double().cpu())
            sums[1] += torch.bincount(piece.languages, minlength=sums.shape[1]) * x.shape[1]
        return sums

    def _agree(self, sums: Tensor, asked: list[int]) -> tuple[Tensor, int]:
        """Loss sums and tokens over all ranks, and the signal that any rank got."""
        flags = torch.tensor([float(signum in asked) for signum in STOP_SIGNALS])
        told = self.world.sum(torch.cat([sums.flatten(), flags.double()]))
        sums, flags = told[: -len(flags)].view_as(sums), told[-len(flags) :]
        if len(bad := torch.nonzero(~torch.isfinite(sums[0]))):
            name = self.corpus.languages[int(bad[0])]
            raise DataError(f"the loss of {name!r} is not finite at step {self.step}", hint=UNSOUND)
        return sums, next((signum for signum, flag in zip(STOP_SIGNALS, flags, strict=True) if flag), 0)

    def _update(self) -> tuple[float, float]:
        """Clip, let the tracker see it, and step; the learning rate and the gradient's norm."""
        settings = self.settings
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        norm = float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        if not math.isfinite(norm):
            raise DataError(f"the gradient is not finite at step {self.step}", hint=UNSOUND)
        rate = settings.learning_rate(self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        if self.tracker is not None:
            self.tracker.commit(lr=rate, grad_norm=norm, max_norm=settings.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return rate, norm

    def _by_language(self, sums: Tensor) -> dict[str, float]:
        """Mean losses from sums and counts of tokens, (2, K)."""
        return dict(zip(self.corpus.languages, (sums[0] / sums[1]).tolist(), strict=True))

    @torch.no_grad()
    def evaluate(self, log: bool = True) -> None:
        """Measure the test losses, log a row, and let the tracker measure the drop so far.

        Every rank makes the same number of passes, as sharded models require; one without a window repeats the last.
        """
        world, batch = self.world, self._pass_sequences
        sums = torch.zeros(2, len(self.corpus.languages), dtype=torch.float64)
        for index, stream in enumerate(self.corpus.test):
            numbers = spread(stream, self.settings.test_windows)
            for start in range(0, len(numbers), batch * world.size):
                mine = numbers[start : start + batch * world.size][world.rank :: world.size]
                x, y = windows_of(stream, mine if len(mine) else numbers[-1:])
                _, found = self.losses(x.to(world.device), y.to(world.device))
                sums[0, index] += float(found.double().sum()) if len(mine) else 0.0
                sums[1, index] += len(mine) * stream.seq
        losses = self._by_language(world.sum(sums))
        if log:
            self.rows.append({"D": self.D, "loss": losses})
        if self.tracker is not None and self.settings.irds_fresh:
            self.tracker.record_losses(losses)
        elif self.tracker is not None and self.step:  # the first step measures the start by itself
            self.tracker.measure(self.losses)

    # -- position ------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Checkpoint the run as it stands, and write the rows that it has; every rank must call."""
        record = {
            "step": self.step,
            "settings": self.settings.results,
            "corpus": self.corpus.fingerprint,
            "counts": self.counts.tolist(),
            "rows": self.rows,
            "tracker": None if self.tracker is None else self.tracker.state_dict(),
        }
        tensors = checkpoint.tensors_of(self.decoder, self.optimiser)
        checkpoint.save(self.out, self.step, tensors, record, self.world, self.settings.keep)
        self._write_rows()

    def resume(self) -> bool:
        """Continue from the last checkpoint that is whole, if there is one; every rank must call."""
        record = self.world.told(checkpoint.newest(self.out) if self.world.main else None)
        if record is None:
            return False
        self._check_same(record)
        self.step, self.rows = record["step"], record["rows"]
        self.counts = np.array(record["counts"], dtype=np.int64)
        checkpoint.load(self.out, self.step, checkpoint.tensors_of(self.decoder, self.optimiser))
        if self.tracker is not None:
            self.tracker.load_state_dict(record["tracker"])
        self._write_rows()
        return True

    def _check_same(self, record: dict[str, Any]) -> None:
        """Refuse to continue a run with other settings or on another corpus, naming what differs."""
        before, now = record["settings"], self.settings.results
        told = [f"{name} was {before.get(name)!r}, is {now[name]!r}" for name in now if before.get(name) != now[name]]
        told += ["another corpus"] if record["corpus"] != self.corpus.fingerprint else []
        if told:
            hint = "choose another --out, or start anew with --force"
            message = f"holds a run with other settings: {'; '.join(told)}"
            raise UsageError(message, location=Location(file=str(self.out)), hint=hint)

    # -- results -------------------------------------------------------------------------------------------

    def _report(self, sums: Tensor, rate: float, norm: float) -> None:
        """Log the numbers of the step."""
        settings, world = self.settings, self.world
        speed = settings.step_tokens * len(self.seconds) / sum(self.seconds)
        self.seconds.clear()
        numbers = {
            "step": self.step, "D": self.D, "lr": rate, "grad_norm": norm, "loss": self._by_language(sums),
            "tokens_per_second": speed, "peak_memory": outputs.peak_memory(world.device),
        }  # fmt: skip
        if self.metrics is not None:
            self.metrics.step(numbers)

    def _write_rows(self) -> None:
        """Write the rows that there are so far."""
        if self.world.main and self.rows:
            again = repeated(self.settings, self.corpus, self.ratios).any() or self.settings.unique_tokens
            unique = (self.pools * self.settings.seq).astype(np.float64) if again else None
            outputs.write_rows(self.settings, self.rows, self.shape.non_embedding, self.ratios, unique)

    def _finish(self) -> None:
        """Write the results; doing it again gives the same files."""
        settings = self.settings
        if self.world.main:
            outputs.write_summary(settings, self.shape.non_embedding, self.corpus, self.counts, self.pools)
            if self.tracker is not None:
                outputs.write_text_matrix(settings, self.corpus)
        faults = [] if self.tracker is None else save_matrices(self.tracker, self.out)
        if self.world.main and settings.export:
            export(settings, self.shape, self.corpus.tokenizer.end)
        written = [name for name in outputs.WRITTEN if (self.out / name).exists()]
        self._say(f"wrote {', '.join(written)} in {self.out}")
        if faults:
            raise DataError.of(faults, "the SV matrix")

    def _say(self, text: str) -> None:
        if self.world.main:
            outputs.say(text)


@contextlib.contextmanager
def _heard() -> Iterator[list[int]]:
    """The signals that asked for a stop at the end of a step; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(signum: int, _frame: Any) -> None:
        asked.append(signum)
        signal.signal(signum, previous[signum])

    previous = {int(signum): signal.signal(signum, ask) for signum in STOP_SIGNALS}
    try:
        yield asked
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
