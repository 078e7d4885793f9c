"""Every setting of a training run: each field of one frozen dataclass is a flag and a key of CONFIG.toml."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any


def setting(default: Any, text: str, *, result: bool = True, choices: tuple[str, ...] = ()) -> Any:
    """A field with its help text; `result` says whether it can change what a run gives."""
    return dataclasses.field(default=default, metadata={"help": text, "result": result, "choices": choices})


PREPARED = "if not given, what the corpus was prepared with,"


@dataclass(frozen=True)
class Settings:
    """What can be set; the help texts are the documentation."""

    corpus: str = setting(
        "toy",
        "Folder with a file or a folder for each language; or what shapleymix-irds prepare made of it; or: toy.",
        result=False,
    )
    languages: str = setting("", "Languages, such as en,de; all of the folder's if not given.")
    mixture: str = setting("uniform", "uniform, en=.7,de=.3 (shares of tokens), or a file of them.")
    out: str = setting("run", "Folder for runs.csv, sv.csv, metrics and checkpoints.", result=False)
    resume: bool = setting(True, "Continue from the last checkpoint in --out if there is one.", result=False)
    force: bool = setting(False, "Start anew although --out holds a run or such files; overwrite them.", result=False)
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
    toy_languages: int = setting(4, "Toy languages, where --languages names none.", result=False)
    toy_size: str = setting("400k", "Characters of each toy language.")

    tokens: str = setting("1M", "D, tokens to train on.")
    eval_at: str = setting("", "Further D at which the test losses are logged, such as 250k,500k.")
    eval_untrained: bool = setting(False, "Log the untrained model as well (D = 0).")
    seq: int = setting(128, "Tokens of a sequence.")
    batch: int = setting(32, "Sequences of a step, over all ranks.")
    micro_batch: int = setting(0, "Sequences of one pass of a rank; 0 for all of its share at once.")
    optimizer: str = setting(
        "adamw",
        "adamw, or sgd; muon for the matrices of the layers with adamw for the rest; adafactor (not sharded).",
        choices=("adamw", "sgd", "muon", "adafactor"),
    )
    lr: float | None = setting(
        None,
        "Peak learning rate. If not given, by N: 6e-3 for tiny and below, 4.2e-3 mini, 1.7e-3 small, 8.6e-4 50M, "
        "5.8e-4 243M, 4.4e-4 684M, 3.7e-4 1460M, 3e-4 3171M (the paper's); sgd 50, adafactor 10 times that.",
    )
    lr_embedding: float = setting(1.0, "Learning rate of both embeddings, as a multiple of the others'.")
    momentum: float | None = setting(None, "Momentum of sgd and muon; 0 and 0.95 if not given.")
    min_lr: float = setting(0.1, "Last learning rate as a part of the peak.")
    warmup: float = setting(0.05, "Part of the steps that warms up linearly.")
    weight_decay: float = setting(0.1, "Weight decay of matrices.")
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
    irds_fresh: bool = setting(False, "Measure without validation text, by training text; it must be seen once.")

    parallel: str = setting(
        "ddp",
        "Of several ranks: ddp; fsdp shards the model; hsdp shards it within rows of ranks that are copies.",
        choices=("ddp", "fsdp", "hsdp"),
    )
    shard_size: int = setting(0, "Ranks of a row of hsdp; 0 for those of a node.", result=False)
    device: str = setting("auto", "Where to train.", choices=("auto", "cpu", "cuda"))
    precision: str = setting("auto", "auto: bf16 on CUDA, else fp32.", choices=("auto", "fp32", "bf16"))
    compile: bool = setting(False, "Compile the model with torch.compile.")
    mask_documents: bool = setting(
        False,
        "Let no document see another of its sequence, each from position 0. Off, as Megatron-LM and the paper have it.",
    )
    recompute: bool = setting(False, "Activation checkpointing: recompute each layer in the backward pass.")

    checkpoint_every: int = setting(100, "Steps between checkpoints.", result=False)
    keep: int = setting(2, "Checkpoints that are kept, to fall back on should the last be broken.", result=False)
    log_every: int = setting(10, "Steps between lines of metrics.", result=False)
    peak_tflops: float | None = setting(
        None, "Peak TFLOP/s of one device, to which MFU refers; that of known GPUs in bf16 if not given.", result=False
    )
    export: str = setting("", "Folder for the trained model as transformers loads it (LlamaForCausalLM).", result=False)
    live: bool = setting(True, "On a terminal, show the matrix as it grows; otherwise lines.", result=False)
    tensorboard: bool = setting(False, "Log to OUT/tensorboard, the matrix, too (needs tensorboard).", result=False)
    wandb: str = setting("", "Weights & Biases project to log to, the matrix, too (needs wandb).", result=False)


def fields() -> tuple[dataclasses.Field[Any], ...]:
    """The settings in the order of the help."""
    return dataclasses.fields(Settings)


def types() -> dict[str, type]:
    """The type of each setting: bool, int, float or str."""
    hints = typing.get_type_hints(Settings)
    return {
        field.name: next(
            (part for part in typing.get_args(hints[field.name]) if part is not type(None)), hints[field.name]
        )
        for field in fields()
    }


def flag(name: str) -> str:
    """`--val-share` for val_share."""
    return "--" + name.replace("_", "-")
