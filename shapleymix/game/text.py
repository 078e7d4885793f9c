"""The game played by text itself: Shapley values, and a first mixture, in seconds and before any training.

A coalition's model need not be trained to tell which language helps which: an n-gram model (see `ngrams`) of an equal
share of each member's text plays the same game. What it cannot know is meaning, word order, scale and what repeated
text is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from shapleymix.errors import DataError, UsageError
from shapleymix.files import Json
from shapleymix.game.kriging import estimate_shapley, sample_coalitions
from shapleymix.game.ngrams import Ngrams, count_ngrams
from shapleymix.records import FloatArray
from shapleymix.statistics import RandomStream
from shapleymix.tables.documents import LEAST, Texts, Tokenizer, deal, sample_languages
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.words import Ratios, amounts, format_size, parse_budget, parse_positive, parse_whole

MOST_EXACT = 14  # players of whom all coalitions are played
SAMPLED = 1000  # coalitions of more players
HELD_OUT, ALL_HELD_OUT = 50_000, 2_000_000  # tokens on which models are judged, of a language and of all of them
SHORT = 0.9  # of D: where a text has less, models read no more than it has


def text_shapley(
    texts: Texts,
    *,
    sources: Sequence[str] | None = None,
    D: float | str = "1M",
    order: int = 1,
    tokenizer: str = "bytes",
    vocabulary: int | None = None,
    weights: Ratios | None = None,
    text_field: str = "text",
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> TransferMatrix:
    """Shapley values of languages from their text alone: the game is played by n-gram models, before any training.

    Parameters
    ----------
    texts : folder or mapping
        A folder as the training script takes it (`en.txt.gz`, `de.jsonl`, `ja/`, ...), or by language a file, a
        folder, the text itself (1,000 characters or more), or an array of token numbers. Of more than D tokens a
        sample of about so many is read.
    sources : sequence of str, optional
        The languages that play; all by default.
    D : float or str
        Tokens that each model reads, an equal share of every member's text.
    order : int
        Tokens of the longest context: 1 for bigrams, which agreed best with trained models.
    tokenizer : str
        `bytes`, or a file of the package tokenizers.
    vocabulary : int, optional
        Number of tokens; by default the tokenizer's, or one more than the largest number in arrays and token files.
    weights : by name, optional
        What each language counts in the first mixture; equal by default, else 0 for those that are not given.
    text_field : str
        The field of JSON lines and the column of Parquet files that hold the text.
    seed : int
        Of the coalitions that are drawn where there are more than 14 languages; the text is always sampled alike.
    progress : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    TransferMatrix
        `sv` in nats a token; `stderr` from the two halves of the text, and of coalitions that were not played.
        `provenance` says that it is from text, order, D, the tokens of each language, how many coalitions were
        played, and `mixture`, the first mixture: that of the least weighted loss of these models.

    Raises
    ------
    UsageError, DataError
        If a text is not there, cannot be read, is too short, or holds tokens outside of the vocabulary.
    """
    encoder, budget = Tokenizer(tokenizer), parse_budget(D, "D")
    if budget < LEAST:
        raise UsageError(f"D = {format_size(budget)} tokens make no model", hint=f"give {LEAST:,} or more")
    arrays = sample_languages(texts, sources, encoder, int(budget) + HELD_OUT, text_field, progress)
    largest, languages, K = max(int(one.max()) for one in arrays.values()), tuple(arrays), len(arrays)
    usual = max(encoder.vocabulary, largest + 1) if tokenizer == "bytes" else encoder.vocabulary
    known = usual if vocabulary is None else parse_whole(vocabulary, "vocabulary", 1)
    if largest >= known:
        raise DataError(f"the texts hold the token {largest}, expected 0 to {known - 1}", hint="give their vocabulary")
    importance = amounts(np.full(K, float(weights is None)), weights, languages, parse_positive, "weights")
    draw = np.random.default_rng([parse_whole(seed, "seed"), RandomStream.GAME])
    models, tokens, read = _count(arrays, encoder.end, parse_whole(order, "order"), budget, known)
    members = sample_coalitions(K, 2**K if K <= MOST_EXACT else max(SAMPLED, 4 * K), draw)
    p = (members / np.maximum(members.sum(axis=1, keepdims=True), 1)).astype(np.float32)
    losses = []
    for turn, half in enumerate((None, 0, 1)):
        if progress is not None:
            progress("playing the game", turn, 3)
        losses.append(models.losses(p, half))
    found = estimate_shapley(members, -np.hstack(losses), players=languages)
    values, first, second = np.split(found.values, 3, axis=1)
    squares = (first - second) ** 2 / 4  # of a mean of two; one degree of freedom an entry is too few
    stderr = np.sqrt((squares + squares.mean(axis=0)) / 2 + found.stderr[:, :K] ** 2)
    made_from: dict[str, Json] = {"from": "text", "method": found.method, "order": order, "D": read}
    made_from |= {"tokenizer": tokenizer, "vocabulary": known, "tokens": {**tokens}, "players": K, "seed": seed}
    least = min(tokens, key=lambda name: tokens[name])
    notice = f"models read {format_size(read)} tokens, not {format_size(budget)}: {least} has no more text"
    made_from |= {"coalitions": len(members), "coalitions_of": 2**K, "notices": [notice] if read < budget else []}
    made_from["mixture"] = dict(zip(languages, models.best(importance).tolist(), strict=True))
    return TransferMatrix.from_sv(values, languages, languages, stderr, made_from)


@lru_cache(maxsize=8)
def first_mixture(folder: str, sources: tuple[str, ...], weights: tuple[float, ...]) -> FloatArray:
    """The mixture (M,) of least weighted loss of bigram models of a folder's text; errors are those of `text_shapley`.

    Read once for all: a mixture that is named is asked for again and again.
    """
    encoder = Tokenizer("bytes")
    arrays = sample_languages(folder, sources, encoder, 1_000_000 + HELD_OUT)
    return _count(arrays, encoder.end, 1, 1e6, encoder.vocabulary)[0].best(np.array(weights))


def _count(
    arrays: Mapping[str, np.ndarray], end: int | None, order: int, D: float, vocabulary: int
) -> tuple[Ngrams, dict[str, int], float]:
    """Models of the languages, how many tokens of each were counted, and how many a model reads.

    These are no more than the shortest text holds, or little more: counts that are scaled up know too little of it.
    """
    distance = min(HELD_OUT, ALL_HELD_OUT // len(arrays))
    parts = [deal(one, end, distance, D) for one in arrays.values()]
    train, held_out = ([part[side][half] for half in (0, 1) for part in parts] for side in (0, 1))
    tokens = {name: sum(map(len, part[0])) for name, part in zip(arrays, parts, strict=True)}
    least = min(tokens.values())
    read = D if least >= SHORT * D else float(least)
    return count_ngrams(train, held_out, order, read, vocabulary), tokens, read
