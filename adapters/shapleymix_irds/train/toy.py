"""Artificial languages whose vocabularies overlap by known amounts: a corpus for a machine with no text.

Language i uses the words `i * shift` to `i * shift + WORDS` of one endless seeded list, each as often as the
others. So languages i and j share exactly `max(0, 1 - |i - j| (1 - overlap))` of their words and of their
text, up to rounding to whole words. No other structure is shared but the letters; more overlap must give more
transfer.
"""

from __future__ import annotations

import itertools

import numpy as np

WORDS = 64
WORD_LENGTHS = (3, 8)
DOCUMENT_WORDS = (60, 180)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def toy_names(count: int) -> tuple[str, ...]:
    """Names of so many languages: a, b, c, ..., or aa, ab, ac, ... where letters do not suffice."""
    letters = 1
    while len(ALPHABET) ** letters < count:
        letters += 1
    return tuple(map("".join, itertools.islice(itertools.product(ALPHABET, repeat=letters), count)))


def toy_documents(index: int, overlap: float, size: int, seed: int = 0) -> list[str]:
    """Documents of language `index`, about `size` characters in all; neighbours share `overlap` of their words."""
    shift = round((1 - overlap) * WORDS)
    words = [word(index * shift + rank, seed) for rank in range(WORDS)]
    draw = np.random.default_rng([seed, 7, index])
    documents, written = [], 0
    while written < size:
        picks = draw.integers(WORDS, size=draw.integers(*DOCUMENT_WORDS))
        documents.append(" ".join(words[pick] for pick in picks) + ".")
        written += len(documents[-1]) + 1
    return documents


def word(number: int, seed: int) -> str:
    """The word with this number in the endless list of `seed`."""
    draw = np.random.default_rng([seed, 3, number])
    return "".join(draw.choice(list(ALPHABET), size=draw.integers(*WORD_LENGTHS)))
