"""Settings of a run that fit together, and what follows from them: its length, its evaluations, its name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

from shapleymix.errors import UsageError
from shapleymix.tables.sizes import parse_size, parse_sizes
from shapleymix_irds.train.limits import faults_of
from shapleymix_irds.train.settings import Settings, fields
from shapleymix_irds.train.shapes import BYTE_VOCABULARY, ModelConfig, model_config, peak_rate


@dataclass(frozen=True)
class TrainConfig(Settings):
    """Settings of one run.

    Raises
    ------
    UsageError
        If some are out of range, or do not go together.
    """

    def __post_init__(self) -> None:
        if faults := faults_of(self):
            raise UsageError.of(faults, "the configuration")
        _ = self.peak_lr  # the model is known
        if self.total_tokens < self.step_tokens / 2:
            step = f"{self.step_tokens:,} tokens (--batch {self.batch} x --seq {self.seq})"
            message = f"--tokens {self.tokens} is less than half a step of {step}"
            raise UsageError(message, hint="give more tokens, or lower --batch or --seq")
        late = [size for size in self._eval_sizes if size > max(self.total_tokens, self.steps * self.step_tokens)]
        if late:
            message = f"--eval-at {self.eval_at}: {late[0]:,.0f} tokens are beyond the run's {self.length}"
            raise UsageError(message, hint="more --tokens, or leave it out")
        if any(size < self.step_tokens / 2 for size in self._eval_sizes):
            message = f"--eval-at {self.eval_at}: less than half a step of {self.step_tokens:,} tokens is D = 0"
            raise UsageError(message, hint="--eval-untrained logs the untrained model")
        _ = self.eval_steps, self.toy_characters, self.fixed_every

    @property
    def total_tokens(self) -> float:
        """D as asked for; the run trains on the nearest whole number of steps, `steps`."""
        return parse_size(self.tokens)

    @property
    def steps(self) -> int:
        return max(1, round(self.total_tokens / self.step_tokens))

    @property
    def length(self) -> str:
        """D as it is trained on, in words."""
        D = self.steps * self.step_tokens
        asked = "" if self.total_tokens == D else f"; {self.tokens} asked for"
        return f"D = {D:,} ({self.steps} steps of {self.step_tokens:,} tokens{asked})"

    @property
    def step_tokens(self) -> int:
        return self.batch * self.seq

    @property
    def toy_characters(self) -> int:
        return int(parse_size(self.toy_size))

    @property
    def _eval_sizes(self) -> tuple[float, ...]:
        return parse_sizes(self.eval_at) if self.eval_at else ()

    @property
    def eval_steps(self) -> frozenset[int]:
        """Steps after which the test losses are logged: those nearest to --eval-at, and the last."""
        early = {min(max(1, round(size / self.step_tokens)), self.steps) for size in self._eval_sizes}
        return frozenset(early | {self.steps})

    @property
    def fixed_every(self) -> int | None:
        """m of IRDS if it is given; None for auto."""
        if self.irds_every == "auto":
            return None
        if not self.irds_every.isdecimal() or not int(self.irds_every):
            raise UsageError(f"--irds-every {self.irds_every} is neither auto nor a number of steps")
        if self.irds and int(self.irds_every) > self.steps:
            message = f"--irds-every {self.irds_every} is more than the run's {self.steps} steps"
            raise UsageError(message, hint="auto, or a smaller number")
        return int(self.irds_every)

    def shape(self, vocabulary: int) -> ModelConfig:
        """Sizes of the model, with this vocabulary if the settings give none."""
        sizes = {name: getattr(self, name) for name in ("layers", "hidden", "ffn", "heads")}
        return model_config(self.model, **sizes, vocab=self.vocab or vocabulary)

    @property
    def peak_lr(self) -> float:
        """The peak learning rate, by the size of the model if it is not given."""
        return self.lr if self.lr is not None else peak_rate(self.shape(BYTE_VOCABULARY).non_embedding, self.optimizer)

    @property
    def actual_momentum(self) -> float:
        """The momentum of SGD or Muon."""
        return self.momentum if self.momentum is not None else 0.95 if self.optimizer == "muon" else 0.0

    def pass_sequences(self, ranks: int) -> int:
        """Sequences that pass the model of one rank at a time, at most."""
        return self.micro_batch or -(-self.batch // ranks)

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine from the peak to `min_lr` of it; `step` counts from 0."""
        warm = math.ceil(self.warmup * self.steps)
        if step < warm:
            return self.peak_lr * (step + 1) / warm
        done = (step - warm) / max(self.steps - warm, 1)
        return self.peak_lr * (self.min_lr + (1 - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done)))

    @property
    def result_settings(self) -> dict[str, Any]:
        """The settings that decide what the run gives."""
        values = dataclasses.asdict(self)
        return {field.name: values[field.name] for field in fields() if field.metadata["result"]}

    def resolved(self, languages: tuple[str, ...], mixture: str, corpus: str) -> TrainConfig:
        """These settings with what they stand for: languages, the ratios of the mixture, the learning rate, the name.

        The name is the one given, or a hash of the settings and of `corpus`, the fingerprint: the same run has the
        same name anywhere, and another mixture in the same file or other text in the same folder has another.
        """
        found = dataclasses.replace(self, languages=",".join(languages), mixture=mixture, lr=self.peak_lr)
        text = json.dumps({**found.result_settings, "corpus": corpus}, sort_keys=True)
        name = self.run or f"{self.model}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        return dataclasses.replace(found, run=name)
