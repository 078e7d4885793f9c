"""What a run writes into its folder and says while it goes on, and the model as a folder that `transformers` loads."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from shapleymix.errors import Location, ShapleyMixError, UsageError
from shapleymix.files import atomic_write
from shapleymix.game.text import text_shapley
from shapleymix.records import FloatArray, IntArray
from shapleymix.tables.runs import RunLog, write_runs
from shapleymix_irds.train.checkpoint import STATE, place_of, steps_in
from shapleymix_irds.train.corpus import Corpus, spread, windows_of
from shapleymix_irds.train.model import NORM_EPS, ROTARY_BASE
from shapleymix_irds.train.settings import ModelConfig, TrainingSettings

PAUSE = 5.0  # seconds between lines
MATRICES = [name + ending for name in ("sv.csv", "sv_raw.csv", "sv_text.csv") for ending in ("", ".json")]
WRITTEN = ("runs.csv", *MATRICES, "summary.json", "metrics.jsonl")
READ = 1_000_000  # tokens of a language's training text that the matrix of text reads


@contextlib.contextmanager
def claimed(settings: TrainingSettings) -> Iterator[None]:
    """Within, the folder holds this very run or none, and no other process trains in it.

    The lock ends with the process, however it dies; where the file system knows none there is none.

    Raises
    ------
    UsageError
        If it holds something else, or another process trains in it.
    """
    out = Path(settings.out)
    out.mkdir(parents=True, exist_ok=True)
    place = Location(file=str(out))
    with (out / ".lock").open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError("another process trains in this folder", location=place, hint="wait for it") from error
        except OSError:
            pass  # no locks here
        old = [out / name for name in WRITTEN if (out / name).exists()] + sorted(out.glob("evaluations-*.parquet"))
        if settings.force:
            shutil.rmtree(out / "checkpoints", ignore_errors=True)  # first, so that nothing continues what is left
            for path in old:
                path.unlink()
        elif old and not steps_in(out):
            message = f"holds {old[0].name}, of no run to continue"
            raise UsageError(message, location=place, hint="choose another --out, or overwrite with --force")
        yield


def write_rows(
    settings: TrainingSettings, rows: Sequence[dict[str, Any]], N: int, ratios: FloatArray, unique: FloatArray | None
) -> None:
    """Write test losses as a run log that `shapleymix fit` reads.

    Parameters
    ----------
    settings : TrainingSettings
        Of the run, resolved.
    rows : sequence of dict
        `D`, and `loss` in nats a token by language.
    N : int
        Parameters without embeddings.
    ratios, unique : array (M,)
        The mixture; and the tokens that each language has, where the run sees some of them again.
    """
    names = tuple(settings.languages.split(","))
    D = np.array([row["D"] for row in rows], dtype=np.float64)
    log = RunLog(
        runs=tuple(settings.run if size else f"{settings.run}-untrained" for size in D),
        N=np.full(len(D), float(N)),
        D=D,
        p=np.where(D[:, None] > 0, ratios, 0.0),
        loss=np.array([[row["loss"][name] for name in names] for row in rows]),
        sources=names,
        targets=names,
        seed=(str(settings.seed),) * len(D),
        learning_rate=np.full(len(D), settings.peak_lr),
        batch_tokens=np.full(len(D), float(settings.step_tokens)),
        unique=None if unique is None else np.tile(unique, (len(D), 1)),
    )
    write_runs(log, Path(settings.out) / "runs.csv", force=True)


def write_summary(settings: TrainingSettings, N: int, corpus: Corpus, counts: IntArray, pools: IntArray) -> None:
    """Write settings, and of each language its tokens and epochs: `counts` (M,) sequences of `pools` (M,) ones."""
    languages = {
        stream.language: {
            "tokens_trained": int(count) * settings.seq,
            "share": float(count / max(counts.sum(), 1)),
            "epochs": float(count / pool),
            "tokens_train": stream.tokens,
        }
        for stream, count, pool in zip(corpus.train, counts, pools, strict=True)
    }
    D = int(counts.sum()) * settings.seq
    document = {"run": settings.run, "N": N, "D": D, "settings": settings.results, "languages": languages}
    atomic_write(Path(settings.out) / "summary.json", json.dumps(document, indent=1) + "\n", force=True)


def write_text_matrix(settings: TrainingSettings, corpus: Corpus) -> None:
    """Write `sv_text.csv`, what the training text alone tells, beside the run's matrix; or say why there is none."""
    try:
        parts = [(each.language, windows_of(each, spread(each, READ // each.seq))[0]) for each in corpus.train]
        texts = {language: x.numpy().ravel() for language, x in parts}
        known = {"vocabulary": corpus.train[0].vocabulary, "tokenizer": settings.tokenizer, "seed": settings.seed}
        matrix = text_shapley(texts, D=READ, **known)
        matrix.write(Path(settings.out) / "sv_text.csv", force=True)
    except ShapleyMixError as error:
        say(f"there is no sv_text.csv: {error}")


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


def peak_memory(device: torch.device) -> int:
    """Bytes that this process has held at most: of the GPU, or of the machine where it trains on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class Metrics:
    """Where the metrics of a run go; lines after the step that it resumes from are cut."""

    def __init__(self, settings: TrainingSettings, resumed: int) -> None:
        self.steps, self._last, path = settings.steps, -math.inf, Path(settings.out) / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        atomic_write(path, b"".join(line for line in lines if _step_of(line) <= resumed), force=True)
        self._stream = path.open("ab", buffering=0)

    def step(self, numbers: dict[str, Any]) -> None:
        """Log the numbers of a step: `step`, `D`, `loss` by language, and others; NaN is not known."""
        known = {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in numbers.items()}
        known["loss"] = {name: loss if math.isfinite(loss) else None for name, loss in numbers["loss"].items()}
        self._stream.write((json.dumps(known) + "\n").encode())
        if time.monotonic() - self._last >= PAUSE or known["step"] == self.steps:
            self._last = time.monotonic()
            losses = " ".join(f"{name} {loss:.3f}" for name, loss in known["loss"].items() if loss is not None)
            speed = f"{numbers['tokens_per_second']:,.0f} tokens/s"
            say(f"step {known['step']}/{self.steps} | D {known['D']:,} | {speed} | loss {losses}")

    def close(self) -> None:
        """No line comes any more."""
        self._stream.close()


def _step_of(line: bytes) -> float:
    """The step of a line; one that was cut by a kill counts as never reached."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


MAKER = "shapleymix_run"  # a key of config.json: the run that the model is of
PREFIX = "model/"  # of the weights' names in a checkpoint
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.weight")
OUTER = {"embedding": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
INNER = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}
INNER |= {f"attention.{name}": f"self_attn.{name[0]}_proj" for name in ("query", "key", "value", "out")}
INNER |= {f"feed_forward.{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")}


def check_goal(goal: Path) -> None:
    """Refuse a folder that holds anything but an earlier export.

    Raises
    ------
    UsageError
        Naming the folder.
    """
    config = goal / "config.json"
    earlier = config.is_file() and f'"{MAKER}"' in config.read_text(encoding="utf-8", errors="replace")
    if goal.exists() and not earlier and (goal.is_file() or any(goal.iterdir())):
        raise UsageError("holds something else", location=Location(str(goal)), hint="give --export an empty folder")


def export(settings: TrainingSettings, shape: ModelConfig, end: int | None) -> None:
    """Write the model of the run's last checkpoint into its `export` folder, over an earlier export there.

    Parameters
    ----------
    settings : TrainingSettings
        Of the run, resolved.
    shape : ModelConfig
        Sizes of its model.
    end : int, optional
        The token that ends a document.
    """
    out, goal = Path(settings.out), Path(settings.export)
    check_goal(goal)
    partial = goal.with_name(f".{goal.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with safe_open(place_of(out, steps_in(out)[-1]) / STATE, "pt") as file:
        names = [name for name in file.keys() if name.startswith(PREFIX)]  # noqa: SIM118
        weights = {llama_name(name.removeprefix(PREFIX)): file.get_tensor(name) for name in names}
        save_file(weights, partial / "model.safetensors", {"format": "pt"})
    document = {MAKER: settings.run, **llama_config(settings, shape, end)}
    (partial / "config.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if settings.tokenizer != "bytes":
        shutil.copyfile(settings.tokenizer, partial / "tokenizer.json")
        kind = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
        (partial / "tokenizer_config.json").write_text(kind + "\n", encoding="utf-8")
    goal.mkdir(exist_ok=True)
    for path in sorted(partial.iterdir()):
        os.replace(path, goal / path.name)
    partial.rmdir()


def llama_name(name: str) -> str:
    """What `transformers` calls a weight of the decoder."""
    found = BLOCK.fullmatch(name)
    place = OUTER[name.removesuffix(".weight")] if found is None else f"model.layers.{found[1]}.{INNER[found[2]]}"
    return f"{place}.weight"


def llama_config(settings: TrainingSettings, shape: ModelConfig, end: int | None) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": shape.vocab,
        "hidden_size": shape.hidden, "intermediate_size": shape.ffn, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.heads, "rms_norm_eps": NORM_EPS,
        "max_position_embeddings": settings.seq, "rope_theta": ROTARY_BASE, "tie_word_embeddings": False,
        "bos_token_id": None, "eos_token_id": end, "dtype": "float32",
    }  # fmt: skip
