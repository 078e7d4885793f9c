"""datasets 5.2: `interleave_datasets`, told by an export, makes the mixture of tokens out of documents."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("datasets")

from blends import LANGUAGES, LENGTHS, check_shares, loaded, written
from datasets import Dataset

pytestmark = pytest.mark.ecosystem
DRAWS = 20_000


def corpora(documents: int, *, streamed: bool) -> dict[str, Dataset]:
    """Documents of each language, which are longer or shorter than its mean in turn."""
    found = {}
    for name in LANGUAGES:
        sizes = [LENGTHS[name] - 5, LENGTHS[name] + 5] * (documents // 2)
        made = Dataset.from_dict({"language": [name] * documents, "tokens": sizes})
        found[name] = made.to_iterable_dataset() if streamed else made
    return found


def tokens_of(stream, draws: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for place, row in enumerate(stream):
        if place == draws:
            return seen
        seen[row["language"]] += row["tokens"]
    raise AssertionError(f"the stream ended after {place + 1} draws")


@pytest.mark.parametrize("streamed", [True, False])
def test_the_module_makes_the_mixture(streamed: bool, tmp_path: Path) -> None:
    """Every language but one is repeated: shares hold all the same."""
    documents = 2_000 if streamed else 600
    written("hf", tmp_path, "mixing.py", mean_tokens=LENGTHS, seed=1)
    stream = loaded(tmp_path / "mixing.py").mixed(corpora(documents, streamed=streamed))
    check_shares(tokens_of(stream, DRAWS), DRAWS, LENGTHS)
