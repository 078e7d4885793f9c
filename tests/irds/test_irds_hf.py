"""What the trainers of others give to the tracker: batches with their languages, validation sequences, the loss.

The trainers themselves are in tests/ecosystem.
"""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import numpy as np  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from shapleymix_irds.errors import LanguageError, TrackerError  # noqa: E402
from shapleymix_irds.hf import LanguageCollator, causal_loss, label_tokens, validation_of  # noqa: E402

LANGUAGES = ("en", "de", "fr")


def collate(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Padded on the right."""
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def left(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Padded on the left."""
    return {name: value.flip(1) for name, value in collate(rows).items()}


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All in one row and a token of padding, as collators without padding do."""
    return {"input_ids": torch.tensor([[token for row in rows for token in row["input_ids"]] + [0]])}


def some(lang: Any = "fr", other: Any = "de") -> list[dict[str, Any]]:
    return [{"input_ids": [5, 6, 7], "lang": lang}, {"input_ids": [8], "lang": other}]


@pytest.mark.parametrize(
    ("inner", "rows", "expected"),
    [
        (collate, some(), [2, 1]), (collate, some(2, 1), [2, 1]), (joined, some(), [[2, 2, 2, 1, 1]]),
        (collate, some(["fr", "fr", 0], np.array([1])), [[2, 2, 0], [1, 1, 1]]),
        (left, some(torch.tensor([2, 2, 0]), [1]), [[2, 2, 0], [1, 1, 1]]),
        (left, some(["fr", "fr", "en"]), [[2, 2, 0], [1, 1, 1]]),
        (joined, some(["fr", "fr", 0], ["de"]), [[2, 2, 0, 1, 1]]),
    ],
)  # fmt: skip
def test_a_language_goes_where_its_tokens_go(inner: Any, rows: list[dict[str, Any]], expected: Any) -> None:
    batch = LanguageCollator(inner, LANGUAGES)(rows)
    assert batch["lang"].tolist() == expected
    without = LanguageCollator(inner, LANGUAGES)([{"input_ids": row["input_ids"]} for row in rows])
    assert "lang" not in without
    assert torch.equal(batch["input_ids"], without["input_ids"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (some(other=None), "example 1 of a batch has no language in 'lang'"),
        (some("fra"), "'lang': unknown language 'fra'"),
        (some(3), "'lang': unknown language 3"),
        (some(["fr"] * 4), "has 4 labels of languages for 3 tokens"),
        (some([]), "has 0 labels of languages for 3 tokens"),
    ],
)
def test_a_language_that_cannot_be_told_is_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        LanguageCollator(collate, LANGUAGES)(rows)


def test_rows_of_unknown_examples_are_refused() -> None:
    def halves(rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"input_ids": torch.zeros((3, 2), dtype=torch.long)}

    with pytest.raises(LanguageError, match="3 rows of 2 examples: whose each is, is lost"):
        LanguageCollator(halves, LANGUAGES)(some())


def llama() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=11, **sizes)).double()


def test_validation_examples_have_the_loss_that_the_model_gives_them_alone() -> None:
    """Of ragged lengths, with and without labels, padding changes nothing."""
    model = llama()
    by_name = {
        "en": [{"input_ids": [3, 4, 5, 6, 7]}, {"input_ids": [3, 9]}],
        "de": [{"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]}],
        "fr": [{"input_ids": [0, 8, 9], "attention_mask": [0, 1, 1]}],
    }
    val = validation_of(by_name)
    for name, (x, y) in val.items():
        found = causal_loss(model)(x, y)
        for loss, example, labels in zip(found, by_name[name], y, strict=True):
            ids = torch.tensor([example["input_ids"]])
            mask = torch.tensor([example.get("attention_mask", [1] * ids.numel())])
            target = torch.tensor(example.get("labels", example["input_ids"])).masked_fill(mask[0] == 0, -100)
            logits = model(input_ids=ids, attention_mask=mask).logits[0, :-1]
            alone = F.cross_entropy(logits, target[1:], ignore_index=-100, reduction="sum")
            assert loss.item() == pytest.approx(alone.item(), rel=1e-6)
            assert int((labels != -100).sum()) == int((target[1:] != -100).sum())


@pytest.mark.parametrize(
    ("val", "message"),
    [
        ({"en": [{"input_ids": [1]}]}, "a validation example of 'en' has no two tokens"),
        ({"en": [{"text": "a"}]}, "a validation example of 'en' has no two tokens"),
    ],
)
def test_validation_examples_that_cannot_be_used_are_refused(val: Any, message: str) -> None:
    with pytest.raises(TrackerError, match=message):
        validation_of(val)


def test_labelled_tokens_are_ready_to_be_packed() -> None:
    assert label_tokens({"input_ids": [4, 5], "lang": "en", "id": 7}) == {
        "input_ids": [4, 5], "labels": [4, 5], "lang": ["en", "en"],
    }  # fmt: skip
    assert label_tokens({"input_ids": [4], "labels": [-100], "source": 1}, "source")["labels"] == [-100]
