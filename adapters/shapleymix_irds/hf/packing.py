"""Examples with a language for each token, which packing joins as it joins tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shapleymix_irds.errors import LanguageError


def label_tokens(example: Mapping[str, Any], column: str = "lang") -> dict[str, list[Any]]:
    """The columns of a tokenised example that packing needs, with its language once for each token.

    Parameters
    ----------
    example : mapping
        With `input_ids`, a language in `column`, and perhaps `labels`; every token is a label where there are none.

    Returns
    -------
    dict
        `input_ids`, `labels` and `column`, of one length; for `dataset.map`, before `trl.pack_dataset`.

    Raises
    ------
    LanguageError
        If the example has no language.
    """
    language = example.get(column)
    if language is None:
        raise LanguageError(f"an example has no language in {column!r}")
    tokens: Sequence[int] = example["input_ids"]
    labels = example.get("labels")
    return {
        "input_ids": list(tokens),
        "labels": list(tokens if labels is None else labels),
        column: [language] * len(tokens),
    }
