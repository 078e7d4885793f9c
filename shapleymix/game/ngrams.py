"""N-gram models of any mixture of languages, from one pass over the text of each.

Counts are additive: a model that reads D tokens of a mixture p expects `sum_i p_i C_i` of each gram, where C_i counts
it in D tokens of language i. So the counts of all mixtures are one matrix product. The model interpolates its orders
(Witten and Bell 1991, method C): after a context c, seen n(c) times and before t(c) different tokens,

    P_k(x | c) = (n(c x) + t(c) P_{k-1}(x | c less its first token)) / (n(c) + t(c)),    P_{-1} = 1 / V,

and a context that was never seen takes the shorter one's. A gram that D tokens are expected to hold m times is among
them with probability 1 - exp(-m), which makes t(c) smooth in the mixture.

Grams of one context that every text holds equally often, most of them once in one language, count as one that stands
for several.

M languages, each with two texts (T = 2 M: the first half of each, then the second), S mixtures; at a level C contexts,
U grams in held-out text, and G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from shapleymix.errors import UsageError
from shapleymix.records import FloatArray, IntArray

_AT_ONCE = 1 << 22  # numbers of a level that are in memory together
_LEAST = 1e-9  # different tokens after a context; and ratio of a mixture
_STEP = 1e-4  # of a mixture towards a language, by which its slope is found
Floats = NDArray[np.floating]
_Counts = tuple[IntArray, Floats]  # different grams, ascending, and how often each is expected


@dataclass(frozen=True)
class Level:
    """The grams of one length, and how often they are expected in half of D tokens of each text.

    Attributes
    ----------
    asked, seen, groups : float32 array (U, T), (C, T), (G, T)
        Of the grams in held-out text, of the contexts, and of one gram of each group.
    members : sparse array (C, G)
        Grams of each group, in the row of their context.
    context, shorter : int array (U,)
        Of each gram in held-out text its context, and its end, the gram that is one token shorter, among the held-out
        ones of the level below.
    """

    asked: Floats
    seen: Floats
    groups: Floats
    members: csr_array
    context: IntArray
    shorter: IntArray


@dataclass(frozen=True)
class Ngrams:
    """Models of all mixtures of M languages.

    Attributes
    ----------
    levels : tuple of Level
        The shortest grams first.
    held_out : float32 array (U, T)
        Share of each longest gram in each held-out text.
    vocabulary : int
        Number of tokens V.
    """

    levels: tuple[Level, ...]
    held_out: Floats
    vocabulary: int

    def losses(self, p: Floats, half: int | None = None) -> FloatArray:
        """Losses (S, M), nats a token, of models of mixtures (S, M) on each language's held-out text.

        With `half`, of models of that half of the texts alone on that half of what is held out. The model of no text,
        p = 0, has log V. It computes in the precision of `p`: 32 bits are enough for values, not for slopes.
        """
        halves, rows = [0, 1] if half is None else [half, half], _AT_ONCE // max(len(one.groups) for one in self.levels)

        def both(each: Floats) -> Floats:
            return each.reshape(len(each), 2, -1)[:, halves].sum(axis=1, dtype=p.dtype)

        rates = [[both(each) for each in (one.asked, one.seen, one.groups)] for one in self.levels]
        parts = [p[at : at + max(rows, 1)] for at in range(0, len(p), max(rows, 1))]
        return np.concatenate([self._losses(rates, both(self.held_out) / 2, part) for part in parts]).astype(np.float64)

    def _losses(self, rates: Sequence[Sequence[Floats]], held_out: Floats, p: Floats) -> Floats:
        likely = np.full((1, len(p)), 1 / self.vocabulary, p.dtype)
        for level, (asked, seen, groups) in zip(self.levels, rates, strict=True):
            absent = groups @ -p.T  # (G, S), in place: this is where the time goes
            np.exp(absent, out=absent)
            kinds = np.maximum(level.members.sum(axis=1)[:, None] - level.members @ absent, _LEAST).astype(p.dtype)
            total = seen @ p.T
            share = np.where(total > 0, 1 / (total + kinds), 0)
            rest = np.where(total > 0, kinds * share, 1)
            likely = (asked @ p.T) * share[level.context] + rest[level.context] * likely[level.shorter]
        return -(np.log(likely).T @ held_out)

    def best(self, weights: FloatArray) -> FloatArray:
        """The mixture (M,) of least weighted loss, by sequential quadratic programming from the uniform one."""
        towards = np.eye(len(weights))

        def loss(p: FloatArray) -> tuple[float, FloatArray]:
            values = self.losses(np.vstack([p, p + _STEP * (towards - p)])) @ (weights / weights.sum())
            return values[0], (values[1:] - values[0]) / _STEP

        whole = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like}
        given = {"method": "SLSQP", "bounds": [(0, 1)] * len(weights), "constraints": whole, "tol": 1e-7}
        found = minimize(loss, towards.mean(axis=0), jac=True, **given).x
        found[found < _LEAST] = 0.0
        return found / found.sum()


def count_ngrams(
    train: Sequence[np.ndarray], held_out: Sequence[np.ndarray], order: int, D: float, vocabulary: int
) -> Ngrams:
    """Count grams of up to `order + 1` tokens, as far as held-out text can ask for them.

    Parameters
    ----------
    train, held_out : sequence (T,) of int arrays
        Text to count and text to judge by, of both halves of each language.
    order : int
        Tokens of the longest context.
    D : float
        Tokens that a model reads: counts of texts of any length are scaled to half of it each.
    vocabulary : int
        Number of tokens V; those of the texts are 0 to V - 1.

    Raises
    ------
    UsageError
        If grams of this length do not fit a 64-bit number, or are longer than a text.
    """
    if min(map(len, (*train, *held_out))) <= order:
        raise UsageError(f"order {order} is too high for so little text", hint="take a lower order, or give more text")
    if (order + 1) * np.log2(vocabulary) >= 63:
        most = int(63 / np.log2(vocabulary)) - 1
        raise UsageError(f"order {order} is too high for {vocabulary:,} tokens", hint=f"take order {most} or less")
    asked = [_counted(one, order, vocabulary, 1 / (len(one) - order)) for one in held_out]
    known = [_counted(one, order, vocabulary, D / 2 / len(one)) for one in train]
    tops, below, levels = np.unique(np.concatenate([codes for codes, _ in asked])), np.zeros(1, np.int64), []
    for length in range(1, order + 2):
        codes = np.unique(tops % vocabulary**length)
        levels.append(_level(codes, below, known, vocabulary, vocabulary**length))
        below = codes
    shares = np.zeros((len(tops), len(held_out)), np.float32)
    for text, (codes, share) in enumerate(asked):
        shares[np.searchsorted(tops, codes), text] = share
    return Ngrams(tuple(levels), shares, vocabulary)


def _counted(tokens: np.ndarray, order: int, vocabulary: int, scale: float) -> _Counts:
    """The different grams of `order + 1` tokens, each as one number whose last digit is the last token."""
    codes = np.zeros(len(tokens) - order, np.int64)
    for place in range(order + 1):
        codes = codes * vocabulary + tokens[place : place + len(codes)]
    found, times = np.unique(codes, return_counts=True)
    return found, times * scale


def _level(asked: IntArray, below: IntArray, known: Sequence[_Counts], vocabulary: int, size: int) -> Level:
    """The level of the held-out grams `asked` (U,), and of all grams of the texts that begin as one of these does.

    `size` is the number of grams that there may be, `below` (U',) has the held-out grams of the level below.
    """
    contexts, found = np.unique(asked // vocabulary), []
    for tops, times in known:
        codes = tops % size
        kept = np.isin(codes // vocabulary, contexts)
        own, index = np.unique(codes[kept], return_inverse=True)
        found.append((own, np.bincount(index, times[kept], len(own))))
    grams = np.unique(np.concatenate([asked, *(own for own, _ in found)]))
    context, key = np.searchsorted(contexts, grams // vocabulary), np.zeros(len(grams), np.uint64)
    words = np.random.default_rng(0).integers(1 << 63, size=(len(known) + 1, 1), dtype=np.uint64) * 2 + 1
    key += context.astype(np.uint64) * words[-1]  # a hash: two groups have one in 2^64 cases
    for word, (own, expected) in zip(words, found, strict=False):
        mixed = expected.view(np.uint64) * word
        key[np.searchsorted(grams, own)] += mixed ^ (mixed >> np.uint64(29))
    _, first, sizes = np.unique(key, return_index=True, return_counts=True)
    sizes_of = (len(asked), len(contexts), len(first))
    counts, seen, groups = (np.zeros((count, len(known)), np.float32) for count in sizes_of)
    for text, (own, expected) in enumerate(found):
        every = np.zeros(len(grams))
        every[np.searchsorted(grams, own)] = expected
        counts[:, text] = every[np.searchsorted(grams, asked)]
        seen[:, text] = np.bincount(context, every)
        groups[:, text] = every[first]
    members = csr_array((sizes.astype(np.float32), (context[first], np.arange(len(first)))))
    ends = np.searchsorted(below, asked % (size // vocabulary))
    return Level(counts, seen, groups, members, np.searchsorted(contexts, asked // vocabulary), ends)
