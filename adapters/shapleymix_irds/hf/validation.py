"""Validation sequences from datasets, and the loss of a causal language model.

Legend: n examples, padded to S tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shapleymix_irds.batch import Inputs
from shapleymix_irds.engines.base import LossFn
from shapleymix_irds.errors import LanguageError, TrackerError
from shapleymix_irds.hf.arguments import Examples

IGNORED = -100  # the label that transformers leaves out of a loss


def validation_of(
    val: Mapping[str, Examples] | Examples | None, languages: Sequence[str], column: str
) -> dict[str, tuple[Inputs, Tensor]] | None:
    """Padded sequences and labels of each language.

    Raises
    ------
    LanguageError
        If an example is of no language.
    TrackerError
        If an example has no tokens.
    """
    if val is None:
        return None
    if not isinstance(val, Mapping):
        val = by_language(val, languages, column)
    return {str(name): _sequences(list(examples), str(name)) for name, examples in val.items()}


def by_language(examples: Examples, languages: Sequence[str], column: str) -> dict[str, list[Mapping[str, object]]]:
    """Examples by the language in their column, a name or number.

    Raises
    ------
    LanguageError
        If an example has none, or several.
    """
    parts: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for number, example in enumerate(examples):
        value = example.get(column)
        if isinstance(value, int) and 0 <= value < len(languages):
            value = languages[value]
        if not isinstance(value, str):
            hint = f"give one language in {column!r}, or a dictionary of examples by language"
            raise LanguageError(f"validation example {number} has the language {value!r} in {column!r}", hint=hint)
        parts[value].append(example)
    return dict(parts)


def causal_loss(model: nn.Module) -> LossFn:
    """The loss that `model(**x)` predicts the next tokens with, summed over each sequence."""

    def loss_fn(x: Any, y: Tensor) -> Tensor:
        logits = model(**x).logits
        logits = logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32))
        each = F.cross_entropy(logits.flatten(0, 1), y[:, 1:].flatten(), ignore_index=IGNORED, reduction="none")
        return each.view(len(y), -1).sum(1)

    return loss_fn


def _sequences(examples: list[Mapping[str, Any]], language: str) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs (n, S) by name, and labels (n, S), padded on the right; the first token of a sequence is no target."""
    if not all(len(example.get("input_ids", ())) > 1 for example in examples):
        hint = "give tokenised examples of two tokens or more"
        raise TrackerError(f"a validation example of {language!r} has no two tokens in 'input_ids'", hint=hint)
    width = max((len(example["input_ids"]) for example in examples), default=0)
    tokens, mask = torch.zeros((2, len(examples), width), dtype=torch.long)
    labels = torch.full((len(examples), width), IGNORED)
    for row, example in enumerate(examples):
        ids = torch.as_tensor(example["input_ids"])
        seen = torch.as_tensor(example.get("attention_mask", torch.ones_like(ids)))
        given = example.get("labels")
        tokens[row, : len(ids)], mask[row, : len(ids)] = ids, seen
        labels[row, : len(ids)] = ids.masked_fill(seen == 0, IGNORED) if given is None else torch.as_tensor(given)
    labels[:, 0] = IGNORED
    return {"input_ids": tokens, "attention_mask": mask}, labels
