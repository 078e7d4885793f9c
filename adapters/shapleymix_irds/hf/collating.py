"""Batches that keep the language of each example, or of each token where examples are packed.

Legend: B examples become R rows of S tokens; R = B where examples are padded, R = 1 where they are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shapleymix.errors import did_you_mean
from shapleymix_irds.errors import LanguageError

KEY = "lang"  # of a batch: languages by number
Collator = Callable[[list[Any]], MutableMapping[str, Any]]


@dataclass(frozen=True)
class LanguageCollator:
    """A collator that takes the language out of each example and adds the languages of the batch as `lang`.

    Attributes
    ----------
    inner : callable
        The collator of everything else.
    languages : sequence of str
        Names of the languages, by number.
    column : str
        Where an example has its language. A batch of which no example has one is left as it is (evaluation sets).
    """

    inner: Collator
    languages: Sequence[str]
    column: str = "lang"

    def __call__(self, examples: list[Mapping[str, Any]]) -> MutableMapping[str, Any]:
        found = [example.get(self.column) for example in examples]
        batch = self.inner([{k: v for k, v in example.items() if k != self.column} for example in examples])
        if all(value is None for value in found):
            return batch
        if any(value is None for value in found):
            raise LanguageError(f"example {found.index(None)} of a batch has no language in {self.column!r}")
        batch[KEY] = self._of_batch(found, examples, batch)
        return batch

    def _of_batch(self, found: list[Any], examples: list[Mapping[str, Any]], batch: Mapping[str, Any]) -> Tensor:
        labels = [self._numbers(value) for value in found]
        rows, width = batch["input_ids"].shape
        if rows == len(examples):
            if all(isinstance(label, int) for label in labels):
                return torch.tensor(labels)
            left = _padded_left(batch)
            return torch.tensor([_filled(_each(label, width), width, left) for label in labels])
        if rows != 1:
            raise LanguageError(f"the collator made {rows} rows of {len(examples)} examples: whose each is, is lost")
        each = [
            number
            for label, example in zip(labels, examples, strict=True)
            for number in _each(label, len(example["input_ids"]))
        ]
        return torch.tensor([_filled(each, width, left=False)])

    def _numbers(self, value: Any) -> int | list[int]:
        if isinstance(value, str):
            return self._number(value)
        if isinstance(value, Tensor) or hasattr(value, "tolist"):
            value = value.tolist()
        return [self._number(one) for one in value] if isinstance(value, Sequence) else self._number(value)

    def _number(self, value: Any) -> int:
        if isinstance(value, str) and value in self.languages:
            return list(self.languages).index(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self.languages):
            return value
        hint = did_you_mean(str(value), self.languages)
        raise LanguageError(f"an example has the unknown language {value!r} in {self.column!r}", hint=hint)


def _each(label: int | list[int], tokens: int) -> list[int]:
    return [label] * tokens if isinstance(label, int) else label


def _padded_left(batch: Mapping[str, Any]) -> bool:
    mask = batch.get("attention_mask")
    return mask is not None and mask.dim() == 2 and bool((mask[:, 0] == 0).any())


def _filled(labels: list[int], width: int, left: bool) -> list[int]:
    """A label for each of `width` tokens; those of the padding count for nothing."""
    missing = width - len(labels)
    if missing < 0 or not labels:
        hint = "give a label for each token of `input_ids`, after truncation"
        raise LanguageError(f"an example has {len(labels)} labels of languages for {width} tokens", hint=hint)
    return [labels[0]] * missing + labels if left else labels + [labels[-1]] * missing
