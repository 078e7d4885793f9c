"""Every setting of a training run, each a flag and a key of CONFIG.toml, and what follows from them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import typing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from shapleymix import files
from shapleymix.errors import Fault, Location, UsageError, did_you_mean
from shapleymix.tables.words import parse_size


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a decoder.

    Raises
    ------
    UsageError
        If a size is below 1, or the hidden size cannot be split into heads.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    vocab: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if size < 1:
                raise UsageError(f"--{name} {size} is below 1")
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            message = f"--hidden {self.hidden} cannot be split into {self.heads} heads of an even size"
            raise UsageError(message, hint="choose --hidden as a multiple of 2 x --heads")

    @property
    def non_embedding(self) -> int:
        """N of a run log: parameters without the input and output embeddings."""
        h = self.hidden
        return self.layers * (4 * h * h + 3 * h * self.ffn + 2 * h) + h


PAPER_VOCABULARY = 99_487
BYTE_VOCABULARY = 256

# The first five: ShapleyLaw paper, table of model configurations (ffn sizes of llm-jp); the rest suit a CPU.
MODELS = {
    "50M": ModelConfig(12, 512, 2048, 8, PAPER_VOCABULARY),
    "243M": ModelConfig(16, 1024, 3584, 8, PAPER_VOCABULARY),
    "684M": ModelConfig(20, 1536, 5376, 8, PAPER_VOCABULARY),
    "1460M": ModelConfig(24, 2048, 7168, 16, PAPER_VOCABULARY),
    "3171M": ModelConfig(28, 3072, 8192, 24, PAPER_VOCABULARY),
    "tiny": ModelConfig(2, 32, 80, 4, BYTE_VOCABULARY),
    "mini": ModelConfig(2, 64, 168, 4, BYTE_VOCABULARY),
    "small": ModelConfig(4, 256, 768, 8, BYTE_VOCABULARY),
}


def model_config(name: str, **sizes: int | None) -> ModelConfig:
    """The named configuration with the given sizes in place of its own.

    Raises
    ------
    UsageError
        If the name is unknown or the sizes do not fit together.
    """
    if name not in MODELS:
        raise UsageError(f"unknown model {name!r}", hint=did_you_mean(name, MODELS))
    return replace(MODELS[name], **{key: size for key, size in sizes.items() if size is not None})


LARGEST_RATE, SMALLEST_RATE = 6e-3, 3e-4  # for `tiny`, which is our own, and for 3171M, which is the paper's
SLOPE = math.log(LARGEST_RATE / SMALLEST_RATE) / math.log(MODELS["3171M"].non_embedding / MODELS["tiny"].non_embedding)


def peak_rate(N: int) -> float:
    """The learning rate of a decoder with N parameters without embeddings, where none is given, in two digits.

    A power of N through the rates of `tiny` and of the paper's 3171M, and not above the first; the exponent is -0.25.
    Other models: GPT-3's (Brown et al. 2020, table 2.1) are 0.5 to 0.9 times as large from 125M to 2.7B; TinyLlama
    (Zhang et al. 2024) has 4e-4 at 1.1B, as here.
    """
    return float(f"{min(LARGEST_RATE, SMALLEST_RATE * (MODELS['3171M'].non_embedding / N) ** SLOPE):.2g}")


def setting(default: Any, text: str, *, result: bool = True, **limits: Any) -> Any:
    """A field with its help text and limits (`least`, `most`, `above`, `choices`).

    `result` says whether it can change what a run gives.
    """
    return dataclasses.field(default=default, metadata={"help": text, "result": result, **limits})


def share(default: float, text: str) -> Any:
    """A setting from 0 to 1."""
    return setting(default, text, least=0, most=1)


@dataclass(frozen=True)
class TrainingSettings:
    """What can be set; the help texts are the documentation.

    Raises
    ------
    UsageError
        If a setting is out of its range, or some do not go together.
    """

    corpus: str = setting("", "Folder with a file or a folder for each language; or toy: toy_a, ...", result=False)
    languages: str = setting("", "Languages, such as en,de; all of the folder's if not given.")
    mixture: str = setting("uniform", "uniform, en=.7,de=.3 (shares of tokens), or a .json file of a mixture.")
    unique_tokens: str = setting("", "Draw on so many training tokens of a language alone: en=1M,de=500k.")
    out: str = setting("run", "Folder for runs.csv, sv.csv, metrics and checkpoints.", result=False)
    force: bool = setting(False, "Start anew although --out holds a run or such files; overwrite them.", result=False)
    run: str = setting("", "Name of the run in the run log; a hash of settings and corpus if not given.", result=False)

    model: str = setting("tiny", "tiny, mini, small, or the paper's 50M, 243M, 684M, 1460M, 3171M.")
    layers: int | None = setting(None, "Layers, in place of the model's own.")
    hidden: int | None = setting(None, "Hidden size.")
    ffn: int | None = setting(None, "Size of the feed-forward layer.")
    heads: int | None = setting(None, "Attention heads.")
    vocab: int | None = setting(None, "Vocabulary; the tokenizer's if not given.", least=1)

    tokenizer: str = setting("bytes", "bytes, or a Hugging Face tokenizers JSON file.")
    end_token: int | None = setting(None, "Token that ends a document; the tokenizer's if not given.", least=0)
    text_field: str = setting("text", "Field of .jsonl lines and Parquet rows that holds the text.")
    val_share: float = share(0.05, "Share of documents kept for validation (IRDS).")
    test_share: float = share(0.05, "Share of documents kept for the test losses.")
    test_windows: int = setting(256, "Test sequences of each language that are evaluated, at most.", least=1)
    toy_overlap: float = share(0.5, "Share of words that neighbouring toy languages have in common.")
    toy_languages: int = setting(4, "Number of toy languages, if --languages names none.", result=False, least=1)
    toy_size: str = setting("400k", "Characters of each toy language.")

    tokens: str = setting("1M", "D, tokens to train on.")
    eval_at: str = setting("", "More values of D at which the test losses are logged, such as 250k,500k.")
    eval_untrained: bool = setting(False, "Log the untrained model as well (D = 0).")
    seq: int = setting(128, "Tokens of a sequence.", least=1)
    batch: int = setting(32, "Sequences of a step, over all ranks.", least=1)
    micro_batch: int = setting(0, "Sequences that a rank processes at once; 0 for its whole share.", least=0)
    lr: float | None = setting(None, "Peak learning rate; by N if not given: 6e-3 for tiny, 3e-4 for 3171M.", above=0)
    min_lr: float = share(0.1, "Last learning rate as a part of the peak.")
    warmup: float = share(0.05, "Part of the steps that warms up linearly.")
    weight_decay: float = setting(0.1, "Weight decay of matrices.", least=0)
    clip: float = setting(1.0, "Largest gradient norm.", above=0)
    z_loss: float = setting(1e-4, "Weight of log(Z) squared in the training loss.", least=0)
    seed: int = setting(0, "Seed of weights, data order and IRDS.", least=0, most=2**63 - 1)

    irds: bool = setting(True, "Measure the Shapley values of the languages and write sv.csv.")
    irds_every: str = setting("auto", "Evaluate one of so many steps; auto: as often as --irds-overhead allows.")
    irds_overhead: float = setting(0.1, "Share of a plain run's time that IRDS may add, by the cost model.", above=0)
    irds_val: int = setting(2, "Validation sequences of each language in one evaluation.", least=1)
    irds_pool: int = setting(256, "Validation sequences of each language through which evaluations rotate.", least=1)
    irds_measure: int = setting(16, "Validation sequences of each language that measure the loss drop.", least=1)
    irds_fresh: bool = setting(False, "Measure on training text instead of validation text; no text may be seen twice.")

    parallel: str = setting(
        "ddp", "Several ranks: ddp copies the model, fsdp shards it, hsdp in groups.", choices=("ddp", "fsdp", "hsdp")
    )
    shard_size: int = setting(0, "Ranks in a group of hsdp; 0 for those of a node.", result=False, least=0)
    device: str = setting("auto", "Where to train.", choices=("auto", "cpu", "cuda"))
    precision: str = setting("auto", "auto: bf16 on CUDA, else fp32.", choices=("auto", "fp32", "bf16"))
    compile: bool = setting(False, "Compile the model with torch.compile.")
    recompute: bool = setting(False, "Activation checkpointing: recompute each layer in the backward pass.")

    checkpoint_every: int = setting(100, "Steps between checkpoints.", result=False, least=1)
    keep: int = setting(2, "How many checkpoints are kept, in case the last one is broken.", result=False, least=1)
    log_every: int = setting(10, "Steps between lines of metrics.", result=False, least=1)
    export: str = setting("", "Folder for the trained model as transformers loads it (LlamaForCausalLM).", result=False)

    def __post_init__(self) -> None:
        if faults := [*_faults(self), *_together(self)]:
            raise UsageError.of(faults, "the configuration")
        _ = self.peak_lr, self.eval_steps, self.every, parse_size(self.toy_size)  # each can be read

    @property
    def step_tokens(self) -> int:
        return self.batch * self.seq

    @property
    def steps(self) -> int:
        """Steps of the run: the whole number nearest to D."""
        asked = parse_size(self.tokens)
        if asked < self.step_tokens / 2:
            message = f"--tokens {self.tokens} is less than half a step of {self.step_tokens:,} tokens"
            raise UsageError(message, hint="give more tokens, or lower --batch or --seq")
        return max(1, round(asked / self.step_tokens))

    @property
    def eval_steps(self) -> frozenset[int]:
        """Steps after which the test losses are logged: those nearest to --eval-at, and the last."""
        early = {round(parse_size(size) / self.step_tokens) for size in self.eval_at.split(",") if size}
        if any(not 1 <= step <= self.steps for step in early):
            message = f"--eval-at {self.eval_at} is outside of {self.steps} steps of {self.step_tokens:,} tokens"
            raise UsageError(message, hint="give other sizes; --eval-untrained logs D = 0")
        return frozenset(early | {self.steps})

    @property
    def every(self) -> int | typing.Literal["auto"]:
        """m of IRDS, or auto."""
        if self.irds_every == "auto":
            return "auto"
        if not self.irds_every.isdecimal() or int(self.irds_every) < 1:
            raise UsageError(f"--irds-every {self.irds_every} is neither auto nor a number of steps from 1 on")
        return int(self.irds_every)

    @property
    def validated(self) -> bool:
        """Whether the run needs validation text."""
        return self.irds and not self.irds_fresh

    def shape(self, vocabulary: int) -> ModelConfig:
        """Sizes of the model, with this vocabulary if the settings give none."""
        sizes = {name: getattr(self, name) for name in ("layers", "hidden", "ffn", "heads")}
        return model_config(self.model, **sizes, vocab=self.vocab or vocabulary)

    @property
    def peak_lr(self) -> float:
        """The peak learning rate, by the size of the model if it is not given."""
        return self.lr if self.lr is not None else peak_rate(self.shape(BYTE_VOCABULARY).non_embedding)

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine from the peak to `min_lr` of it; `step` counts from 0."""
        warm = math.ceil(self.warmup * self.steps)
        if step < warm:
            return self.peak_lr * (step + 1) / warm
        done = (step - warm) / max(self.steps - warm, 1)
        return self.peak_lr * (self.min_lr + (1 - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done)))

    @property
    def results(self) -> dict[str, Any]:
        """The settings that decide what the run gives."""
        return {field.name: getattr(self, field.name) for field in fields() if field.metadata["result"]}

    def resolved(self, languages: tuple[str, ...], mixture: str, corpus: str) -> TrainingSettings:
        """These settings with what they stand for: languages, ratios, the learning rate, the name of the run.

        The name is the one given, or a hash of the settings and of `corpus`, the fingerprint: the same run has the
        same name anywhere, and a run on other text has another.
        """
        found = dataclasses.replace(self, languages=",".join(languages), mixture=mixture, lr=self.peak_lr)
        text = json.dumps({**found.results, "corpus": corpus}, sort_keys=True)
        name = self.run or f"{self.model}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        return dataclasses.replace(found, run=name)


def _faults(settings: TrainingSettings) -> list[Fault]:
    """Settings outside of their own range."""
    found = []
    for field in fields():
        value, limits = getattr(settings, field.name), field.metadata
        least, most, above = limits.get("least", -math.inf), limits.get("most", math.inf), limits.get("above")
        expected = ""
        if isinstance(value, (int, float)) and not least <= value <= most:
            expected = f"at least {least}" if most == math.inf else f"{least} to {most}"
        if above is not None and value is not None and not above < value < math.inf:
            expected = f"a number above {above}"
        if value not in limits.get("choices", (value,)):
            expected = f"one of {', '.join(limits['choices'])}"
        if expected:
            found.append(Fault(f"{flag(field.name)} is {value}, expected {expected}"))
    return found


def _together(settings: TrainingSettings) -> list[Fault]:
    """Settings that do not go together."""
    found = []
    val, test = settings.val_share, settings.test_share
    if not test > 0 or not val + test < 1 or (settings.validated and not val > 0):
        message = f"--val-share {val} and --test-share {test} must be above 0 and leave something to train on"
        found.append(Fault(message, hint="only runs with --irds-fresh or --no-irds go with --val-share 0"))
    return found


def fields() -> tuple[dataclasses.Field[Any], ...]:
    """The settings in the order of the help."""
    return dataclasses.fields(TrainingSettings)


@cache
def types() -> dict[str, type]:
    """The type of each setting: bool, int, float or str."""
    hints = typing.get_type_hints(TrainingSettings)
    return {name: (typing.get_args(hint) or (hint,))[0] for name, hint in hints.items()}


def flag(name: str) -> str:
    """`--val-share` for val_share."""
    return "--" + name.replace("_", "-")


def read_toml(path: str) -> dict[str, Any]:
    """Settings of a TOML file: keys are the flags' names, with hyphens or underscores; tables are only headings.

    Raises
    ------
    UsageError
        If the file is not TOML, or a key is unknown, repeated or of a wrong type.
    """
    place = Location(file=path)
    document, _ = files.read_toml(path, UsageError)
    found: dict[str, Any] = {}
    for name, value in document.items():
        heading = isinstance(value, dict) and name != "mixture"
        for key, each in value.items() if heading else ((name, value),):
            key = key.replace("-", "_")
            if key not in types():
                raise UsageError(f"unknown setting {key!r}", location=place, hint=did_you_mean(key, types()))
            if key in found:
                raise UsageError(f"gives {key!r} twice", location=place, hint="keep one of them")
            found[key] = _plain(key, each, place)
    return found


def _plain(key: str, value: Any, place: Location) -> Any:
    """A TOML value as the setting has it; a list is joined by commas, a table becomes name=ratio pairs."""
    wanted = types()[key]
    if wanted is str and isinstance(value, dict):
        return ",".join(f"{name}={ratio}" for name, ratio in value.items())
    if wanted is str and isinstance(value, list):
        return ",".join(map(str, value))
    plain = isinstance(value, (str, int, float)) and isinstance(value, bool) == (wanted is bool)
    if plain and (wanted is str or isinstance(value, wanted) or (wanted is float and isinstance(value, int))):
        return wanted(value)
    raise UsageError(f"{key} = {value!r} is not of type {wanted.__name__}", location=place)
