"""A trained model as a folder that `transformers` loads: LlamaForCausalLM, in safetensors of at most 5 GB each.

It is read from a checkpoint, whatever number of ranks wrote that, one tensor at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shapleymix.errors import DataError, Location, StoreError, UsageError
from shapleymix.files import read_json
from shapleymix_irds.distributed import World
from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.data.tokens import tokenizer_for
from shapleymix_irds.train.disk import disk_errors
from shapleymix_irds.train.model import NORM_EPS, ROTARY_BASE, Decoder
from shapleymix_irds.train.saving.checkpoint import RECORD, Checkpoints
from shapleymix_irds.train.saving.checksums import write_sums, write_synced
from shapleymix_irds.train.saving.exported import HINT, SUMS, check_goal, remove_export
from shapleymix_irds.train.saving.recorded import config_of
from shapleymix_irds.train.saving.shards import CODES, Reader
from shapleymix_irds.train.shapes import ModelConfig

MAKER = "shapleymix_run"  # a key of config.json, for who reads it: the run that the model is of
LARGEST_FILE = 5 * 10**9
PREFIX = "model/"  # of the weights' names in a checkpoint
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
OUTER = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
OUTER |= {"output.weight": "lm_head.weight"}
INNER = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.weight")


@dataclass(frozen=True)
class Weights:
    """The weights in a checkpoint.

    Attributes
    ----------
    shapes : dict of str to tuple
        Their sizes, by their names in `transformers`.
    sources : dict of str to str
        Their names in the checkpoint.
    """

    reader: Reader
    shapes: dict[str, tuple[int, ...]]
    sources: dict[str, str]
    dtype: torch.dtype

    @classmethod
    def of(cls, reader: Reader, dtype: torch.dtype) -> Weights:
        names = {name: name.removeprefix(PREFIX) for name in reader.sources if name.startswith(PREFIX)}
        sources = {llama_name(own): name for name, own in names.items() if _known(own)}
        shapes = {name: next(iter(reader.sources[source].values())).whole for name, source in sources.items()}
        return cls(reader, shapes, sources, dtype)

    def check(self, shape: ModelConfig) -> None:
        """See that they are those of a decoder.

        Raises
        ------
        StoreError
            If they are not.
        """
        if len(self.shapes) == len(OUTER) + len(INNER) * shape.layers:
            with torch.device("meta"):
                decoder = Decoder(shape)
            if self.shapes == {llama_name(name): tuple(each.shape) for name, each in decoder.named_parameters()}:
                return
        raise StoreError("holds weights of another model", location=Location(file=str(self.reader.folder)))

    def read(self, name: str) -> Tensor:
        """One of them, whole."""
        whole = torch.empty(self.shapes[name])
        self.reader.check(self.sources[name], whole)
        self.reader.fill({self.sources[name]: whole})
        return whole.to(self.dtype)

    def bytes_of(self, name: str) -> int:
        return torch.Size(self.shapes[name]).numel() * self.dtype.itemsize


def export(run: Path, out: Path, *, step: int | None = None, dtype: str = "fp32", most: int = LARGEST_FILE) -> Path:
    """Write the model of a run's checkpoint into a folder, whole or not at all; an earlier export there is replaced.

    Parameters
    ----------
    run : Path
        The run's `--out`.
    step : int, optional
        Of the checkpoint; the last one if not given.
    dtype : {"fp32", "bf16"}
        Kind of the numbers that are written.
    most : int
        Bytes of a file, unless one tensor has more.

    Raises
    ------
    UsageError
        If the run has no such checkpoint, or `out` holds something else, is the run's folder, in it or around it, or
        cannot be written.
    StoreError
        If the checkpoint is broken.
    """
    checkpoints = Checkpoints(run, World(None, 1, 0, torch.device("cpu")), keep=1)
    step = _step(checkpoints, step)
    check_goal(out, run)
    config = config_of(checkpoints.meta(step)["settings"], str(checkpoints.place(step) / RECORD))
    weights = Weights.of(checkpoints.reader(step), TYPES[dtype])
    vocabulary = weights.shapes.get("model.embed_tokens.weight", (1,))[0]
    weights.check(config.shape(vocabulary))
    goal = Path(os.path.realpath(out))  # where a link leads, which stays
    partial = goal.with_name(f".{goal.name}.partial")
    with disk_errors(partial, HINT):
        remove_export(partial)
        partial.mkdir(parents=True)
        sums = _write_weights(partial, weights, most)
        document = {MAKER: run.name, **llama_config(config, vocabulary, weights.dtype)}
        sums["config.json"] = _write_json(partial / "config.json", document)
        write_sums(partial, sums | _copy_tokenizer(partial, config.tokenizer), SUMS)
    with disk_errors(out, HINT):
        remove_export(goal)
        os.replace(partial, goal)
    return out


def _step(checkpoints: Checkpoints, wanted: int | None) -> int:
    steps, place = checkpoints.steps(), Location(file=str(checkpoints.folder))
    if not steps:
        raise UsageError("has no checkpoint", location=place, hint="give the --out of a run")
    if wanted is not None and wanted not in steps:
        hint = f"there are those of {', '.join(map(str, steps))}"
        raise UsageError(f"has no checkpoint of step {wanted}", location=place, hint=hint)
    return steps[-1] if wanted is None else wanted


def _known(name: str) -> bool:
    found = BLOCK.fullmatch(name)
    return name in OUTER if found is None else found[2] in INNER


def llama_name(name: str) -> str:
    """What `transformers` calls a weight of the decoder."""
    found = BLOCK.fullmatch(name)
    if found is None:
        return OUTER[name]
    return f"model.layers.{found[1]}.{INNER[found[2]]}.weight"


def llama_config(config: TrainConfig, vocabulary: int, dtype: torch.dtype) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM."""
    shape = config.shape(vocabulary)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.hidden // shape.heads,
        "hidden_act": "silu",
        "max_position_embeddings": config.seq,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROTARY_BASE,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROTARY_BASE},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": _end_token(config),
        "dtype": str(dtype).removeprefix("torch."),
    }


def _end_token(config: TrainConfig) -> int | None:
    name = config.tokenizer
    if config.end_token is not None or not (name == "bytes" or Path(name).is_file()):
        return config.end_token
    return tokenizer_for(name).end


def _write_weights(folder: Path, weights: Weights, most: int) -> dict[str, str]:
    """Write the files of the weights; their checksums by name."""
    sums: dict[str, str] = {}
    parts = list(_parts(weights, most))
    names = ["model.safetensors"]
    if len(parts) > 1:
        names = [f"model-{number:05d}-of-{len(parts):05d}.safetensors" for number in range(1, len(parts) + 1)]
        places = {name: file for file, part in zip(names, parts, strict=True) for name in part}
        total = sum(map(weights.bytes_of, weights.shapes))
        document = {"metadata": {"total_size": total}, "weight_map": places}
        index = "model.safetensors.index.json"
        sums[index] = _write_json(folder / index, document)
    for file, part in zip(names, parts, strict=True):
        sums[file] = _write_part(folder / file, weights, part)
    return sums


def _parts(weights: Weights, most: int) -> Iterator[list[str]]:
    """Names of each file's weights, which together have `most` bytes or less."""
    part, size = [], 0
    for name in sorted(weights.shapes):
        if part and size + weights.bytes_of(name) > most:
            yield part
            part, size = [], 0
        part.append(name)
        size += weights.bytes_of(name)
    yield part


def _write_part(path: Path, weights: Weights, names: list[str]) -> str:
    """A safetensors file, written here since its package would hold all tensors of the file at once; its checksum."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        begin, end = end, end + weights.bytes_of(name)
        shape = list(weights.shapes[name])
        header[name] = {"dtype": CODES[weights.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    found = hashlib.sha256()
    with path.open("wb") as stream:

        def write(data: bytes | memoryview) -> None:
            found.update(data)
            stream.write(data)

        write(len(text).to_bytes(8, "little") + text)
        for name in names:
            write(weights.read(name).reshape(-1).view(torch.uint8).numpy().data)
        stream.flush()
        os.fsync(stream.fileno())
    return found.hexdigest()


def _write_json(path: Path, document: dict[str, Any]) -> str:
    return write_synced(path, json.dumps(document, indent=1) + "\n")


def _copy_tokenizer(folder: Path, tokenizer: str) -> dict[str, str]:
    """The tokenizer beside the model, if it is a file; checksums by name."""
    if tokenizer == "bytes":
        return {}
    if not Path(tokenizer).is_file():
        raise DataError("the run's tokenizer is not there any more", location=Location(file=tokenizer))
    content = read_json(tokenizer)
    if not isinstance(content, dict) or "model" not in content:
        raise DataError("is no tokenizer", location=Location(file=tokenizer))
    files = {"tokenizer.json": Path(tokenizer).read_bytes()}
    files["tokenizer_config.json"] = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}, indent=1).encode()
    return {name: write_synced(folder / name, content) for name, content in files.items()}
