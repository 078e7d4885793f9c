"""DDP and FSDP2 with two gloo processes under torchrun: uneven ranks, empty groups, against the naive reference."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.irds.training import on_two_ranks  # noqa: E402


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What either rank found."""
    return on_two_ranks("irds_ranks.py", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_ranks_agree_with_the_naive_reference(mode: str, found: list[dict[str, Any]]) -> None:
    for rank in found:
        assert max(rank[mode]["exact"].values()) < 1e-10
        assert rank[mode]["faults"]["nan"].startswith("step 0: the validation loss of 'fr'")


@pytest.mark.parametrize("mode", ["fsdp-ac", "fsdp-bf16"])
def test_sharding_with_checkpointing_and_low_precision(mode: str, found: list[dict[str, Any]]) -> None:
    for rank in found:
        limit = 1e-10 if mode == "fsdp-ac" else 3e-2
        assert max(rank[mode]["exact"].values()) < limit


def test_what_one_rank_cannot_cover_takes_passes_on_all(found: list[dict[str, Any]]) -> None:
    passes = "a pass a language for head.weight"
    for rank in found:
        errors = rank["ddp"]["one_sided"]
        assert [told for _, told in errors.values()] == [passes, passes, None, passes]
        assert max(error for error, _ in errors.values()) < 1e-10


def test_what_one_rank_cannot_cover_is_refused_on_all_where_sharded(found: list[dict[str, Any]]) -> None:
    for rank in found:
        errors = rank["fsdp"]["one_sided"]
        assert errors["early 0"].endswith("not covered: head.weight")
        assert errors["late 0"][0] < 1e-10
        assert errors["late 1"].endswith("not covered: head.weight")
