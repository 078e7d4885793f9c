"""TRL's `SFTTrainer` with the tracker: its head takes losses itself, and packed rows have a language for each token."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from datasets import Dataset
from irds_models import relative
from runs import Naive, same
from shapleymix_irds.errors import LanguageError
from shapleymix_irds.hf import label_tokens
from trainers import examples
from trl_runs import PACKED, packed, sft, sft_arguments


def test_values_are_those_of_the_naive_reference_and_weights_those_of_sft_trainer(tmp_path: Path) -> None:
    """The fused head and checkpointing are TRL's defaults; it drops every column that it does not know."""
    found = sft(sft_arguments(tmp_path / "a"), True, callbacks=lambda trainer: Naive(trainer.of_step, 0.5))
    assert same(found, sft(sft_arguments(tmp_path / "b"), False))
    assert found.tracker.ledger.count == 6  # type: ignore[attr-defined]
    assert relative(found.tracker.ledger.phi, found.naive.phi) < 1e-4  # type: ignore[attr-defined]
    assert found.tracker.fallback == "a pass a language for lm_head.weight"  # type: ignore[attr-defined]
    assert (tmp_path / "a" / "sv.csv").exists()


def test_packed_rows_have_a_language_for_each_token(tmp_path: Path) -> None:
    data = packed()
    assert any(len(set(row["lang"])) > 1 for row in data)
    found = sft(sft_arguments(tmp_path / "a", **PACKED), True, data, lambda trainer: Naive(trainer.of_step, 0.5))
    assert same(found, sft(sft_arguments(tmp_path / "b", **PACKED), False, data))
    assert relative(found.tracker.ledger.phi, found.naive.phi) < 1e-4  # type: ignore[attr-defined]


def test_packing_that_drops_the_language_says_what_to_do(tmp_path: Path) -> None:
    data = Dataset.from_list(examples(22))
    with pytest.raises(LanguageError, match=r"packing drops it: see `shapleymix_irds\.hf\.label_tokens`"):
        sft(sft_arguments(tmp_path, packing=True, max_length=24), True, data)
    with pytest.raises(LanguageError, match="an example has no language in 'lang'"):
        label_tokens({"input_ids": [1, 2]})
