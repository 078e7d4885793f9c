"""What the tests of trainers share: a tiny model, artificial languages, and the naive reference."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LANGUAGES = ("en", "de", "fr")
VOCAB, LENGTH = 31, 9


def llama(seed: int = 0, **options: Any) -> LlamaForCausalLM:
    """A tiny Llama with random weights."""
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"max_position_embeddings": 256}
    config = LlamaConfig(vocab_size=VOCAB, pad_token_id=0, **(sizes | options))
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def examples(count: int, seed: int = 1, ragged: bool = True, named: bool = True) -> list[dict[str, Any]]:
    """Tokenised examples with a language each, whose tokens follow one another by a rule of the language."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        language = number % len(LANGUAGES)
        length = LENGTH - (int(torch.randint(0, 4, (), generator=generator)) if ragged else 0)
        first = int(torch.randint(1, VOCAB, (), generator=generator))
        ids = [1 + (first + (language + 2) * place) % (VOCAB - 1) for place in range(length)]
        found.append({"input_ids": ids, "lang": LANGUAGES[language] if named else language})
    order = torch.randperm(count, generator=generator).tolist()
    return [found[place] for place in order]


def validation(count: int = 4) -> dict[str, list[dict[str, Any]]]:
    """Examples by language."""
    pool = examples(count * len(LANGUAGES), seed=99)
    return {name: [example for example in pool if example["lang"] == name] for name in LANGUAGES}


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    ids, mask = torch.zeros((2, len(rows), width), dtype=torch.long)
    labels = torch.full((len(rows), width), -100)
    for place, row in enumerate(rows):
        length = len(row["input_ids"])
        ids[place, :length], mask[place, :length] = torch.tensor(row["input_ids"]), 1
        labels[place, :length] = torch.tensor(row.get("labels", row["input_ids"]))
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
