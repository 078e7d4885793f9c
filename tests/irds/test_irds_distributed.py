"""Two gloo processes under torchrun: uneven ranks and empty groups against the naive reference; and wrappers x
engines x features, of which each case trains as without the tracker, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from matrix_models import Case  # noqa: E402
from matrix_ranks import TOLERANCE, cases  # noqa: E402

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


REFUSED = {  # what the message says
    "tensor hook": "parameter 'embed.weight' has a hook",
    "static graph": "DDP with static_graph=True",
    "own tokens": "ranks give different tokens=",
    "divide factor": "FSDP2 has a gradient divide factor of its own",
    "tensor parallel": "'head.weight' is not data parallel only (mesh axes: tp)",
    "tensor parallel sharded": "is not data parallel only (mesh axes: dp, tp)",
    "half a mesh": "is sharded over 1 ranks, the tracker counts 2",
}
SHARDED = {  # where parameters are sharded, no passes of single parameters are to be had
    "experts": "not covered: experts",
    "some experts": "not covered: experts",
}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case on either rank."""
    return on_two_ranks("matrix_ranks.py", tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_is_right_or_refused_by_name(case: Case, matrix: list[dict[str, Any]]) -> None:
    sharded = SHARDED.get(case.feature) if "sdp" in case.wrapper else None
    message = REFUSED.get(case.feature, sharded)
    for rank in matrix:
        result = rank[case.name]
        assert "crashed" not in result, result["crashed"]
        if message is not None:
            assert message in result.get("refused", ""), result
            continue
        assert "refused" not in result, result["refused"]
        assert result["worst"] == [], "weights are those of an untracked run, bit for bit"
        assert result["phi"] < TOLERANCE
        assert ["experts" in str(told) for told in result["engines"]] == ["experts" in case.feature] * 2
