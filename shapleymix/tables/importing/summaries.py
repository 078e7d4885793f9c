"""Names that stand for no language where languages are looked for: averages, totals, auxiliary losses, phases.

Some of them are codes of languages too (`min` is Minangkabau). A pattern that meets one is refused, until the map
ignores the column or says that it is a language, `languages.min=min`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from shapleymix.errors import DataError

_WORDS = """
    train training eval evaluation val valid validation test
    total totals sum mean avg average averaged median all overall macro micro macroavg microavg combined joint
    aggregate aggregated global weighted unweighted weightedmean weightedavg weightedaverage
    min max best final last std stdev stddev stderr var variance count
    lr learningrate step steps epoch epochs iteration iterations decay weightdecay scale grad gradnorm norm
    aux auxloss auxiliary auxiliaryloss zloss routerzloss lbloss loadbalance loadbalanceloss loadbalancing
    loadbalancingloss
    name index
"""
_NO_LANGUAGE = frozenset(_WORDS.split())
_SEEMS = "seems to be an average, a total or the like"
_CUT = re.compile(r"[/_.\-:| ]+")

_STEPS = {"step", "steps", "globalstep", "trainstep", "trainingstep", "iteration", "iterations", "iter"}


class NoLanguageError(DataError):
    """Averages, totals and the like among the languages: to be ignored, or named as languages."""


def plain(name: str) -> str:
    """The letters and digits of a name."""
    return re.sub(r"[\W_]", "", name.lower())


def is_summary(label: str) -> bool:
    """Whether a label is what averages, totals and the like are called."""
    return plain(label) in _NO_LANGUAGE


def summaries(labels: Iterable[str], languages: Mapping[str, str]) -> list[str]:
    """The labels that stand for no language, nor are named as one in `languages`.

    They are such words, or another of the labels with such a word before or after it, as `en_std` beside `en`.
    """
    known = dict.fromkeys(labels)
    named = {*languages, *languages.values()}
    return [label for label in known if label not in named and (is_summary(label) or _is_of_another(label, known))]


def _is_of_another(label: str, known: Collection[str]) -> bool:
    words = _CUT.split(label)
    if len(words) < 2:
        return False
    first, last = words[0], words[-1]
    rest = [label[len(first) + 1 :]] if is_summary(first) else []
    rest += [label[: -len(last) - 1]] if is_summary(last) else []
    return any(one in known for one in rest)


def counts_steps(column: str) -> bool:
    """Whether a column counts steps of training, by its name or by what stands after its last slash or point."""
    return plain(re.split(r"[./:]", column)[-1]) in _STEPS


def no_language(label: str) -> str:
    """What is wrong with a summary among languages."""
    return f"{label!r} {_SEEMS}, and no language"


def how_to_ignore(names: Iterable[str], label: str) -> str:
    """The hint for summaries among languages, of which one is `label`."""
    ignored = as_map(f"ignore={','.join(dict.fromkeys(names))}")
    return f"leave them out: {ignored}; or say that one is a language: {as_map(f'languages.{label}={label}')}"


def taken_for_language(label: str, column: str) -> str:
    """What to say of a summary that a log's own column names as a language."""
    return f"{label!r} is taken for a language, and {_SEEMS}: where it is none, ignore {column} (map)"


def as_map(pair: str) -> str:
    """`map="ignore=..."` for a hint, which a shell may read: dots for what it would read otherwise."""
    key, _, value = pair.partition("=")
    unsafe = len(value) > 400 or not pair.isprintable() or any(sign in pair for sign in '"$`\\!')
    return f'map="{key.partition(".")[0]}=..."' if unsafe else f'map="{pair}"'
