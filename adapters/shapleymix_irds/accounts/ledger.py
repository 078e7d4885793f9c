"""Accounts of a run: phi, its standard errors, losses and tokens; everything that a checkpoint must hold.

Every number is float64 and every update depends on the evaluations' order only, so that a resumed run has the
same matrix bit for bit, and the log of evaluations gives it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from shapleymix_irds.accounts.blocks import Blocks, BlocksDocument

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """One evaluated step; K languages.

    Attributes
    ----------
    step, weight, lr, clip : int or float
        The step's number, the number of steps that it stands for, the learning rate, and the coefficient of clipping.
    gram : Array (K, K)
        Products <h_j, g_i>, row i the source; 0 where not known.
    cover : Array (K, K)
        Tokens of source i for which column j is known.
    tokens : Array (K,)
        Training tokens by language.
    val_losses : Array (K,)
        Mean validation losses; NaN in validation-free mode.
    """

    step: int
    weight: float
    lr: float
    clip: float
    gram: Array
    cover: Array
    tokens: Array
    val_losses: Array

    @property
    def contribution(self) -> Array:
        """What is added to phi: weight * lr * clip * Gram, where a part of the tokens is covered scaled up."""
        share = np.divide(self.tokens[:, None], self.cover, out=np.zeros_like(self.gram), where=self.cover > 0)
        return self.weight * self.lr * self.clip * self.gram * share

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Entries (K, K) that this step cannot estimate although the source is in it."""
        return (self.cover == 0) & (self.tokens[:, None] > 0)


class LedgerDocument(TypedDict):
    """`Ledger` as JSON."""

    languages: int
    count: int
    unseen: list[int]
    blocks: BlocksDocument
    total: list[list[float]]
    last: list[list[float]]
    squares: list[list[float]]
    exposure: list[list[float]]
    known: list[list[float]]


@dataclass
class Ledger:
    """Running sums over evaluations."""

    languages: int
    count: int = 0
    total: Array = field(default_factory=lambda: np.zeros(0))
    last: Array = field(default_factory=lambda: np.zeros(0))
    squares: Array = field(default_factory=lambda: np.zeros(0))
    exposure: Array = field(default_factory=lambda: np.zeros(0))
    known: Array = field(default_factory=lambda: np.zeros(0))
    blocks: Blocks = field(default_factory=Blocks)
    unseen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = (self.languages, self.languages)
        for name in ("total", "last", "squares", "exposure", "known"):
            if getattr(self, name).size == 0:
                setattr(self, name, np.zeros(shape))
        self.unseen = self.unseen or [0] * self.languages

    def add(self, evaluation: Evaluation) -> None:
        """Book an evaluation."""
        contribution = evaluation.contribution
        if self.count:
            self.squares += (contribution - self.last) ** 2
        self.last = contribution
        self.blocks.add(contribution)
        self.total = self.total + contribution
        exposure = evaluation.weight * evaluation.lr * evaluation.tokens[:, None] * np.ones_like(contribution)
        self.exposure = self.exposure + exposure
        self.known = self.known + np.where(evaluation.missing, 0.0, exposure)
        self.unseen = [0 if n > 0 else old + 1 for n, old in zip(evaluation.tokens, self.unseen, strict=True)]
        self.count += 1

    @property
    def correction(self) -> Array:
        """(K, K) factor for steps without an estimate: exposure over exposure with one; 1 where all have one."""
        return np.divide(self.exposure, self.known, out=np.ones_like(self.known), where=self.known > 0)

    @property
    def phi(self) -> Array:
        """Raw values (K, K)."""
        return self.total * self.correction

    @property
    def stderr(self) -> Array:
        """Standard errors (K, K) of phi by successive differences; NaN before two evaluations.

        They are those of sampling steps and sequences in this run, as it drifts: another seed's phi differs by more.
        """
        if self.count < 2:
            return np.full_like(self.total, np.nan)
        return np.sqrt(self.count * self.squares / (2 * (self.count - 1))) * self.correction

    def to_document(self) -> LedgerDocument:
        """JSON-ready; floats read back exactly."""
        return {
            "languages": self.languages,
            "count": self.count,
            "unseen": list(self.unseen),
            "blocks": self.blocks.to_document(),
            "total": self.total.tolist(),
            "last": self.last.tolist(),
            "squares": self.squares.tolist(),
            "exposure": self.exposure.tolist(),
            "known": self.known.tolist(),
        }

    @classmethod
    def from_document(cls, document: LedgerDocument) -> Ledger:
        """What `to_document` gave.

        Raises
        ------
        ValueError, TypeError, KeyError
            If it is anything else.
        """
        unseen, count = list(document["unseen"]), document["count"]
        K = len(unseen)
        if document["languages"] != K or not all(type(each) is int and each >= 0 for each in (count, *unseen)):
            raise ValueError("languages, count and unseen do not fit")
        sums = (_square(document[name], K) for name in ("total", "last", "squares", "exposure", "known"))
        blocks = Blocks([_square(each, K) for each in document["blocks"]["sums"]])
        return cls(K, count, *sums, blocks, unseen)


def _square(table: list[list[float]], K: int) -> Array:
    found = np.array(table, dtype=np.float64)
    if found.shape != (K, K):
        raise ValueError(f"a table of shape {found.shape}, expected {(K, K)}")
    return found


@dataclass
class Losses:
    """Measured validation losses: at the start of the run, and the latest."""

    start: dict[str, float] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)

    def record(self, losses: dict[str, float]) -> None:
        """The first record is the start."""
        if not self.start:
            self.start = dict(losses)
        else:
            self.latest = dict(losses)

    def drop(self, languages: tuple[str, ...]) -> Array:
        """Start less latest (K,), NaN where unknown."""
        nan = float("nan")
        return np.array([self.start.get(name, nan) - self.latest.get(name, nan) for name in languages])
