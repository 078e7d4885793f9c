"""Wrappers x engines x features on two ranks: each case trains as without the tracker, or is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from matrix_models import Case  # noqa: E402
from matrix_ranks import TOLERANCE, cases  # noqa: E402

from tests.irds.training import on_two_ranks  # noqa: E402

REFUSED = {  # what the message says
    "tensor hook": "parameter 'embed.weight' has a hook that changes its gradient",
    "static graph": "DDP with static_graph=True",
    "own tokens": "ranks give different tokens=",
    "divide factor": "FSDP2 has a gradient divide factor of its own",
    "tensor parallel": "'head.weight' is not data parallel only (mesh axes: tp)",
    "tensor parallel sharded": "is not data parallel only (mesh axes: dp, tp)",
    "half a mesh": "is sharded over 1 ranks, the tracker counts 2",
    "unreduced": "nothing has averaged gradients over ranks",
}
SHARDED = {  # where parameters are sharded, no passes of single parameters are to be had
    "experts": "not covered: experts",
    "some experts": "not covered: experts",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case on either rank."""
    return on_two_ranks("matrix_ranks.py", tmp_path_factory.mktemp("matrix"))


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_is_right_or_refused_by_name(case: Case, found: list[dict[str, Any]]) -> None:
    sharded = SHARDED.get(case.feature) if "sdp" in case.wrapper else None
    message = REFUSED.get(case.feature, sharded)
    for rank in found:
        result = rank[case.name]
        assert "crashed" not in result, result["crashed"]
        if message is not None:
            assert message in result.get("refused", ""), result
            continue
        assert "refused" not in result, result["refused"]
        assert result["worst"] == [], "weights are those of an untracked run, bit for bit"
        assert result["phi"] < TOLERANCE
        assert ["experts" in str(told) for told in result["engines"]] == ["experts" in case.feature] * 2
