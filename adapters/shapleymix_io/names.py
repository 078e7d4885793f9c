"""What the names of columns say, which is evidence beside what the columns hold, and breaks ties."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from shapleymix.tables.words import EXPONENTS
from shapleymix_io.table import LANG

_CUTS = re.compile(r"([/_.,\-:| \[\]()%]+|(?<=[A-Za-z])(?=\d))")
_SAID = """
nats: loss losses nll ce xent crossentropy
bits: bits bpt
bpb: bpb bitsperbyte bpc bitspercharacter bitsperchar
perplexity: ppl perplexity
score: acc accuracy exactmatch f1
summary: mean average avg median all overall macro micro combined total sum aggregate std stddev stderr sem variance
summary: min max count worst best 25% 50% 75%
no label: train training eval evaluation val valid validation test lr learningrate step steps epoch epochs iteration
no label: decay weightdecay aux auxloss name index seen per
no loss: train training trn aux scale scaler router z kd ntp mtp best
twin: ema smooth smoothed running rolling moving min max
held out: val valid validation validate eval heldout dev
step: step steps globalstep trainstep trainingstep iteration iterations iter batch updates
run: run runname name runid path experiment exp expid recipe group displayname trial id uid key model index idx k
ratio: p w weight weights ratio ratios mix mixture share shares prop proportion proportions frac fraction pct percent
ratio: percentage prob blend
parameters: n size modelsize nonembedding nonembeddings nonemb model
no parameters: per vocab group groups norm
without: non no excl without wo
tokens: d budget
no tokens: per s tps batch unique available eval val valid warmup vocab sec second evaluated max_len unseen phase
learning_rate: learningrate peaklearningrate maxlearningrate lr peaklr maxlr
batch: globalbatchsize batchtokens batchsize
length: seq sequence context block seqlen
million: k m b g t gt million millions billion billions
"""
WORDS: defaultdict[str, list[str]] = defaultdict(list)
"""Words by what they speak of, the likeliest first."""
for _line in _SAID.strip().splitlines():
    WORDS[_line.partition(":")[0]] += _line.partition(":")[2].split()
UNITS = ("nats", "bits", "bpb", "perplexity")
"""Units of losses, the plainest first."""


def words_of(text: str) -> list[str]:
    """The words of a name in small letters; `CrossEntropyLoss` has three."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text.replace(LANG, "/"))
    return [word for word in _CUTS.split(split.lower())[::2] if word]


def speaks(name: str, *kinds: str) -> bool:
    """Whether a name has a word of a kind; two or three words may be one, as in bits_per_byte."""
    words = words_of(name)
    terms = {"".join(words[i : i + n]) for n in (1, 2, 3) for i in range(len(words) - n + 1)}
    return any(not terms.isdisjoint(WORDS[kind]) for kind in kinds)


def rank_of(name: str, kind: str) -> int | None:
    """The place among the words of a kind of a name, or of what stands after its last slash or point; else None."""
    ends = ["".join(words_of(part)) for part in (name, re.split(r"[./:]", name)[-1])]
    return min((WORDS[kind].index(end) for end in ends if end in WORDS[kind]), default=None)


def plainness(name: str) -> tuple[int, int]:
    """How many words and signs a name has: of two columns alike the plainer is meant."""
    return len(words_of(name)), len(name)


def plainest(names: Iterable[str], first: Callable[[str], object] = lambda _: 0) -> str:
    """The plainest of names among those that come `first`; empty where there are none."""
    return min(names, key=lambda name: (first(name), plainness(name)), default="")


def unit_rank(name: str) -> int | None:
    """The place of the plainest unit of losses that a name speaks of; None where it speaks of no loss."""
    return next((place for place, unit in enumerate(UNITS) if speaks(name, unit)), None)


def unit_said(names: Iterable[str], usual: str) -> str:
    """The one unit that names of losses speak of, `usual` where a name speaks of none; empty where they differ."""
    order = ("bpb", "perplexity", "bits", "nats")
    said = {next((unit for unit in order if speaks(name, unit)), usual) for name in names}
    return said.pop() if len(said) == 1 else ""


def scores_said(names: Iterable[str]) -> list[str]:
    """The names that speak of a score, as accuracy is, and of no loss."""
    return [name for name in names if speaks(name, "score") and unit_rank(name) is None]


def names_a_loss(name: str) -> bool:
    """Whether a name speaks of a loss that was measured, not of one that is trained on or a smoothed one."""
    return unit_rank(name) is not None and not speaks(name, "no loss", "twin") and not scores_said([name])


def counts_steps(column: str) -> bool:
    """Whether a column counts steps of training, by its name or by what stands after its last slash or point."""
    return rank_of(column, "step") is not None


def is_summary(label: str) -> bool:
    """Whether a label is what averages, totals and what is no language are called."""
    words = words_of(label)
    whole = {"".join(words), *words[:1], *words[-1:], label.strip().lower()}
    return not whole.isdisjoint(WORDS["summary"] + WORDS["no label"])


def may_be_label(label: str) -> bool:
    """Whether a label may be of a language: it is no summary and no kind of loss."""
    return not is_summary(label) and unit_rank(label) is None


def scale_said(name: str) -> float:
    """What the numbers of a column are multiplied by, as its name says: `Params (M)`, `tokens_b`; else 1."""
    last = words_of(name)[1:][-1:]
    return 10.0 ** EXPONENTS[last[0][0]] if last and last[0] in WORDS["million"] else 1.0


def families(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """The names of every pattern that two or more of them have, by their labels of up to eight words."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        parts = _CUTS.split(name)
        for first in range(0, len(parts), 2):
            for last in range(first + 1, min(first + 16, len(parts)) + 1, 2):
                before, label, after = ("".join(some) for some in (parts[:first], parts[first:last], parts[last:]))
                if label and (before or after):
                    found[f"{before}{LANG}{after}"][label] = name
    return {pattern: some for pattern, some in found.items() if len(some) > 1}
