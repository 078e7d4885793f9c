"""A trained model as a folder that `transformers` loads: a LlamaForCausalLM in safetensors."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from shapleymix.errors import Location, UsageError
from shapleymix_irds.train.checkpoint import STATE, place_of, steps_in
from shapleymix_irds.train.model import NORM_EPS, ROTARY_BASE
from shapleymix_irds.train.settings import Settings
from shapleymix_irds.train.shapes import ModelConfig

MAKER = "shapleymix_run"  # a key of config.json: the run that the model is of
PREFIX = "model/"  # of the weights' names in a checkpoint
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)\.weight")
OUTER = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
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


def export(settings: Settings, shape: ModelConfig, end: int | None) -> None:
    """Write the model of the run's last checkpoint into its `export` folder, over an earlier export there.

    Parameters
    ----------
    settings : Settings
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
    return OUTER[name] if found is None else f"model.layers.{found[1]}.{INNER[found[2]]}.weight"


def llama_config(settings: Settings, shape: ModelConfig, end: int | None) -> dict[str, Any]:
    """config.json of a LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "max_position_embeddings": settings.seq,
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROTARY_BASE,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "dtype": "float32",
    }
