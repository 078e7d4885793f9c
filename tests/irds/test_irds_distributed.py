"""Two gloo processes: wrappers x engines x features on uneven ranks, of which each case trains as without the tracker
and has the products of the naive reference, or is refused by name; and ranks of which one is at fault."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from follow_ranks import FOLLOWED  # noqa: E402
from matrix_models import Case  # noqa: E402
from matrix_ranks import TOLERANCE, cases  # noqa: E402

from tests.irds.training import on_two_ranks  # noqa: E402


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case on either rank."""
    return on_two_ranks("matrix_ranks.py", tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_fault_of_one_rank_is_told_on_all(mode: str, matrix: list[dict[str, Any]]) -> None:
    for rank in matrix:
        assert rank[mode]["faults"]["nan"].startswith("step 0: the validation loss of 'fr'")


def test_sharding_with_checkpointing_and_low_precision(matrix: list[dict[str, Any]]) -> None:
    assert max(rank["mixed"] for rank in matrix) < 3e-2


def test_what_one_rank_cannot_cover_takes_passes_on_all(matrix: list[dict[str, Any]]) -> None:
    passes = "a pass a language for head.weight"
    for rank in matrix:
        errors = rank["ddp"]["one_sided"]
        assert [told for _, told in errors.values()] == [passes, passes, None, passes]
        assert max(error for error, _ in errors.values()) < 1e-10


def test_what_one_rank_cannot_cover_is_refused_on_all_where_sharded(matrix: list[dict[str, Any]]) -> None:
    for rank in matrix:
        errors = rank["fsdp"]["one_sided"]
        assert errors["early 0"].endswith("not covered: head.weight")
        assert errors["late 0"][0] < 1e-10
        assert errors["late 1"].endswith("not covered: head.weight")


REFUSED = {  # what the message says
    "tensor hook": "parameter 'embed.weight' has a hook", "static graph": "DDP with static_graph=True",
    "own tokens": "ranks give different tokens=", "divide factor": "FSDP2 has a gradient divide factor of its own",
    "tensor parallel": "'head.weight' is not data parallel only (mesh axes: tp)",
    "tensor parallel sharded": "is not data parallel only (mesh axes: dp, tp)",
    "half a mesh": "is sharded over 1 ranks, the tracker counts 2",
}  # fmt: skip
SHARDED = {  # where parameters are sharded, no passes of single parameters are to be had
    "experts": "not covered: experts",
    "some experts": "not covered: experts",
}


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


@pytest.mark.parametrize("name", FOLLOWED)
def test_an_optimiser_that_is_followed_has_its_products(name: str, matrix: list[dict[str, Any]]) -> None:
    """Groups at two rates, clipped; with accumulation, and losses that ranks average."""
    for found in (rank[name] for rank in matrix):
        assert "crashed" not in found, found["crashed"]
        if name.endswith(("edited", "by hand")):
            assert "not by one factor" in found["refused"]
            continue
        assert "refused" not in found, found["refused"]
        assert found["worst"] == []
        assert found["phi"] < 1e-6
