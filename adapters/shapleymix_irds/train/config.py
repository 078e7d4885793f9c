"""Every setting of a training run: each field of one frozen dataclass is a flag and a key of CONFIG.toml."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapleymix.errors import Fault, Location, UsageError, did_you_mean
from shapleymix.tables.names import repeated
from shapleymix.tables.sizes import parse_size, parse_sizes


def setting(default: Any, text: str, *, result: bool = True, choices: tuple[str, ...] = ()) -> Any:
    """A field with its help text; `result` says whether it can change what a run gives."""
    return dataclasses.field(default=default, metadata={"help": text, "result": result, "choices": choices})


PREPARED = "if not given, what the corpus was prepared with,"


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one run; the help texts are the documentation."""

    corpus: str = setting(
        "toy",
        "Folder with a file or a folder for each language; or what shapleymix-irds prepare made of it; or: toy.",
        result=False,
    )
    languages: str = setting("", "Languages, such as en,de; all of the folder's if not given.")
    mixture: str = setting("uniform", "uniform, en=.7,de=.3 (shares of tokens), or a file of them.")
    out: str = setting("run", "Folder for runs.csv, sv.csv, metrics and checkpoints.", result=False)
    resume: bool = setting(True, "Continue from the last checkpoint in --out if there is one.", result=False)
    force: bool = setting(False, "Start anew although --out holds a run; it is overwritten.", result=False)
    run: str = setting("", "Name of the run in the run log; a hash of settings and corpus if not given.", result=False)

    model: str = setting("tiny", "tiny, mini, small, or the paper's 50M, 243M, 684M, 1460M, 3171M.")
    layers: int | None = setting(None, "Layers, in place of the model's own.")
    hidden: int | None = setting(None, "Hidden size.")
    ffn: int | None = setting(None, "Size of the feed-forward layer.")
    heads: int | None = setting(None, "Attention heads.")
    vocab: int | None = setting(None, "Vocabulary; the tokenizer's if not given.")

    tokenizer: str = setting("", f"bytes, or a Hugging Face tokenizers JSON file; {PREPARED} or bytes.")
    end_token: int | None = setting(None, "Token that ends a document; found in the tokenizer if not given.")
    text_field: str = setting("", f"Field of .jsonl lines and Parquet rows that holds the text; {PREPARED} or text.")
    val_share: float | None = setting(None, f"Share of documents kept for validation (IRDS); {PREPARED} or 0.05.")
    test_share: float | None = setting(None, f"Share of documents kept for the test losses; {PREPARED} or 0.05.")
    test_windows: int = setting(256, "Test sequences of each language that are evaluated, at most.")
    toy_overlap: float = setting(0.5, "Share of words that neighbouring toy languages have in common.")
    toy_size: str = setting("400k", "Characters of each toy language.")

    tokens: str = setting("1M", "D, tokens to train on.")
    eval_at: str = setting("", "Further D at which the test losses are logged, such as 250k,500k.")
    eval_untrained: bool = setting(False, "Log the untrained model as well (D = 0).")
    seq: int = setting(128, "Tokens of a sequence.")
    batch: int = setting(32, "Sequences of a step, over all ranks.")
    micro_batch: int = setting(0, "Sequences of one pass of a rank; 0 for all of its share at once.")
    lr: float = setting(6e-3, "Peak learning rate.")
    min_lr: float = setting(0.1, "Last learning rate as a part of the peak.")
    warmup: float = setting(0.05, "Part of the steps that warms up linearly.")
    weight_decay: float = setting(0.1, "AdamW's weight decay of matrices.")
    beta1: float = setting(0.9, "AdamW's first beta.")
    beta2: float = setting(0.95, "AdamW's second beta.")
    clip: float = setting(1.0, "Largest gradient norm.")
    z_loss: float = setting(1e-4, "Weight of log(Z) squared in the training loss.")
    seed: int = setting(0, "Seed of weights, data order and IRDS.")

    irds: bool = setting(True, "Measure the Shapley values of the languages and write sv.csv.")
    irds_every: str = setting("auto", "Evaluate one step of each block of so many; auto: as --irds-overhead allows.")
    irds_overhead: float = setting(0.1, "Share of a plain run's time that IRDS may add, by the cost model.")
    irds_val: int = setting(2, "Validation sequences of each language in one evaluation.")
    irds_pool: int = setting(256, "Validation sequences of each language through which evaluations rotate.")
    irds_measure: int = setting(16, "Validation sequences of each language on which the loss drop is measured.")
    irds_order: str = setting("1", "1, or 2 for the midpoint rule.", choices=("1", "2"))
    irds_engine: str = setting(
        "auto",
        "How gradients are held: whole, or sketched; auto: whole in small models.",
        choices=("auto", "sketch", "exact"),
    )
    irds_fresh: bool = setting(False, "Validation-free: fresh training sequences stand in for validation.")

    parallel: str = setting("ddp", "Of several ranks.", choices=("ddp", "fsdp"))
    device: str = setting("auto", "Where to train.", choices=("auto", "cpu", "cuda"))
    precision: str = setting("auto", "auto: bf16 on CUDA, else fp32.", choices=("auto", "fp32", "bf16"))
    compile: bool = setting(False, "Compile the model with torch.compile.")
    recompute: bool = setting(False, "Activation checkpointing: recompute each layer in the backward pass.")

    checkpoint_every: int = setting(100, "Steps between checkpoints.", result=False)
    keep: int = setting(2, "Checkpoints that are kept.", result=False)
    log_every: int = setting(10, "Steps between lines of metrics.", result=False)
    tensorboard: bool = setting(False, "Write TensorBoard scalars (needs tensorboard).", result=False)
    wandb: str = setting("", "Weights & Biases project to log to (needs wandb).", result=False)

    def __post_init__(self) -> None:
        faults = [fault for check in (_positive, _fractions, _choices, _combinations) for fault in check(self)]
        if faults:
            raise UsageError.of(faults, "the configuration")
        if self.total_tokens < self.step_tokens / 2:
            step = f"{self.step_tokens:,} tokens (--batch {self.batch} x --seq {self.seq})"
            message = f"--tokens {self.tokens} is less than half a step of {step}"
            raise UsageError(message, hint="give more tokens, or lower --batch or --seq")
        late = [size for size in self._eval_sizes if size > max(self.total_tokens, self.steps * self.step_tokens)]
        if late:
            message = f"--eval-at {self.eval_at}: {late[0]:,.0f} tokens are beyond the run's {self.length}"
            raise UsageError(message, hint="more --tokens, or leave it out")
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

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine from the peak to `min_lr` of it; `step` counts from 0."""
        warm = math.ceil(self.warmup * self.steps)
        if step < warm:
            return self.lr * (step + 1) / warm
        done = (step - warm) / max(self.steps - warm, 1)
        return self.lr * (self.min_lr + (1 - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done)))

    @property
    def result_settings(self) -> dict[str, Any]:
        """The settings that decide what the run gives."""
        values = dataclasses.asdict(self)
        return {field.name: values[field.name] for field in fields() if field.metadata["result"]}

    def resolved(self, languages: tuple[str, ...], mixture: str, corpus: str) -> TrainConfig:
        """These settings with what they stand for: the languages, the ratios of the mixture, and the run's name.

        The name is the one given, or a hash of the settings and of `corpus`, the fingerprint: the same run has the
        same name anywhere, and another mixture in the same file or other text in the same folder has another.
        """
        found = dataclasses.replace(self, languages=",".join(languages), mixture=mixture)
        text = json.dumps({**found.result_settings, "corpus": corpus}, sort_keys=True)
        name = self.run or f"{self.model}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        return dataclasses.replace(found, run=name)


def fields() -> tuple[dataclasses.Field[Any], ...]:
    """The settings in the order of the help."""
    return dataclasses.fields(TrainConfig)


def types() -> dict[str, type]:
    """The type of each setting: bool, int, float or str."""
    hints = typing.get_type_hints(TrainConfig)
    return {
        field.name: next(
            (part for part in typing.get_args(hints[field.name]) if part is not type(None)), hints[field.name]
        )
        for field in fields()
    }


def read_toml(path: str) -> dict[str, Any]:
    """Settings of a TOML file: keys are the flags' names, with hyphens or underscores; tables are only
    headings.

    Raises
    ------
    UsageError
        If the file is not TOML, or a key is unknown, repeated or of a wrong type.
    """
    entries = list(_entries(_document(path)))
    faults = [fault for entry in entries for fault in _key_faults(path, *entry)]
    twice = repeated([key for _, key, _ in entries])
    faults += [Fault(f"gives {key!r} twice", Location(file=path), hint="keep one of them") for key in twice]
    if faults:
        raise UsageError.of(faults, path)
    return {key: _plain(value, types()[key]) for _, key, value in entries}


def _document(path: str) -> dict[str, Any]:
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", location=Location(file=path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = _clash(text) if "overwrite" in str(error) else None
        raise UsageError(f"is not TOML: {error}", location=Location(file=path), hint=hint) from error


def _clash(text: str) -> str | None:
    """What to do if a heading is called like a key that the file gives."""
    headings = re.findall(r"^[ \t]*\[[ \t]*([\w-]+)[ \t]*\]", text, re.MULTILINE)
    name = next((name for name in headings if re.search(rf"^[ \t]*{name}[ \t]*=", text, re.MULTILINE)), None)
    return f"{name} is a setting here, so that no heading can be called [{name}]: take another name" if name else None


def _entries(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(heading, key, value) of each setting in a document."""
    for name, value in document.items():
        heading = isinstance(value, dict) and name != "mixture"
        for key, each in value.items() if heading else ((name, value),):
            yield (name if heading else "", key.replace("-", "_"), each)


def _key_faults(path: str, heading: str, key: str, value: Any) -> list[Fault]:
    known = types()
    if key not in known:
        whole = f"{heading}_{key}"
        hint = f"headings are no part of a name: write {whole}" if whole in known else did_you_mean(key, known)
        return [Fault(f"unknown setting {key!r}", Location(file=path), hint=hint)]
    wanted = known[key]
    fits = isinstance(value, wanted) and not (wanted is not bool and isinstance(value, bool))
    if fits or (wanted is float and type(value) is int) or (wanted is str and not isinstance(value, bool)):
        return []
    return [Fault(f"{key} = {value!r} is not of type {wanted.__name__}", Location(file=path))]


def _plain(value: Any, wanted: type) -> Any:
    """A TOML value as the setting has it; a list is joined by commas, a table becomes name=ratio pairs."""
    if wanted is str and isinstance(value, dict):
        return ",".join(f"{name}={ratio}" for name, ratio in value.items())
    if wanted is str and isinstance(value, list):
        return ",".join(map(str, value))
    return wanted(value)


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


def _positive(config: TrainConfig) -> list[Fault]:
    below = [name for name in POSITIVE if not getattr(config, name) > 0]
    negative = [name for name in NOT_NEGATIVE if not getattr(config, name) >= 0]
    faults = [Fault(f"{flag(name)} {getattr(config, name)} is too small") for name in (*below, *negative)]
    if config.seed > LARGEST_SEED:
        faults.append(Fault(f"--seed {config.seed} is above {LARGEST_SEED}"))
    return faults


def _fractions(config: TrainConfig) -> list[Fault]:
    given = [name for name in FRACTIONS if getattr(config, name) is not None]
    outside = [name for name in given if not 0 <= getattr(config, name) <= 1]
    ones = [name for name in ("beta1", "beta2") if getattr(config, name) == 1]
    return [
        *(Fault(f"{flag(name)} {getattr(config, name)} is outside 0 to 1") for name in outside),
        *(Fault(f"{flag(name)} 1 leaves nothing of a gradient, expected less") for name in ones),
    ]


def _choices(config: TrainConfig) -> list[Fault]:
    return [
        Fault(f"{flag(field.name)} {value} is not one of {', '.join(field.metadata['choices'])}")
        for field in fields()
        if field.metadata["choices"] and (value := str(getattr(config, field.name))) not in field.metadata["choices"]
    ]


def _combinations(config: TrainConfig) -> list[Fault]:
    both = config.irds_fresh and config.irds_order == "2"
    return [Fault("--irds-order 2 does not go with --irds-fresh", hint="--irds-order 1")] if both else []


def flag(name: str) -> str:
    """`--val-share` for val_share."""
    return "--" + name.replace("_", "-")
