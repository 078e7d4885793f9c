"""What the tracker of a trainer is told."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from shapleymix_irds.evaluating import Engine
from shapleymix_irds.options import Options

Example = Mapping[str, object]  # a row of a dataset: tokens in "input_ids", perhaps "labels" and a language
Examples = Iterable[Example]


@dataclass(frozen=True)
class IRDSArguments:
    """Settings of the tracker in a trainer; those that are not told of here are those of `IRDS`.

    Attributes
    ----------
    languages : sequence of str
        Names of the K languages.
    val : mapping of str to Examples, or Examples, optional
        Validation examples with `input_ids` (and `labels`, else every token is a label): of each language, or of all
        with their language in the column. None: validation-free, for data that are seen once.
    column : str
        The column of the datasets with the language: a name or number for an example, or a list with one for each
        token of packed examples.
    out : str or os.PathLike[str], optional
        Folder for `sv_raw.csv`, `sv.csv` and the log of evaluations; None: the trainer's `output_dir`.
    """

    languages: Sequence[str]
    val: Mapping[str, Examples] | Examples | None = None
    column: str = "lang"
    every: int | Literal["auto"] = "auto"
    engine: Engine = "auto"
    order: Literal[1, 2] = 1
    out: str | os.PathLike[str] | None = None
    options: Options = field(default_factory=Options)
