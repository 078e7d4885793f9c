"""Wrappers x engines x features on two ranks: each case trains as without the tracker, or is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from matrix_ranks import TOLERANCE, Case, cases  # noqa: E402

SCRIPT = Path(__file__).with_name("matrix_ranks.py")
REFUSED = {  # what the message says, for the grouped engine and for micro-batches (None: it is right)
    "tied": ("tied or used more than once: embed.weight", None),
    "tied accumulation": ("tied or used more than once: embed.weight", None),
    "experts": ("not covered: experts", None),
    "experts accumulation": ("not covered: experts", None),
    "some experts": ("not covered: experts", None),
    "buffers": ("buffers written in the forward pass, validation and all: load, mean", None),
    "ragged": ("of another length|training sequences (5,)", None),
    "tensor hook": ("parameter 'embed.weight' has a hook that changes its gradient",) * 2,
    "static graph": ("DDP with static_graph=True",) * 2,
    "own tokens": ("ranks give different tokens=",) * 2,
    "half of the tokens": ("labelled tokens on all ranks",) * 2,
    "divide factor": ("FSDP2 has a gradient divide factor of its own",) * 2,
    "tensor parallel": ("'head.weight' is not data parallel only (mesh axes: tp)",) * 2,
    "tensor parallel sharded": ("is not data parallel only (mesh axes: dp, tp)",) * 2,
    "sharded later": ("the model was sharded after the tracker was made",) * 2,
    "half a mesh": ("is sharded over 1 ranks, the tracker counts 2",) * 2,
    "unreduced": ("nothing has averaged gradients over ranks",) * 2,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of each case on either rank."""
    folder = tmp_path_factory.mktemp("matrix")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*command, str(SCRIPT), str(folder)], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_case_is_right_or_refused_by_name(case: Case, found: list[dict[str, Any]]) -> None:
    messages = REFUSED.get(case.feature, (None, None))[case.engine == "micro"] if case.engine != "auto" else None
    for rank in found:
        result = rank[case.name]
        assert "crashed" not in result, result["crashed"]
        if messages is not None:
            assert any(message in result.get("refused", "") for message in messages.split("|")), result
            continue
        assert "refused" not in result, result["refused"]
        assert result["weights"] < TOLERANCE, result["worst"]
        assert result["phi"] < TOLERANCE
        assert result["engines"] == (["micro", "grouped"] if case.engine == "auto" else [case.engine] * 2)
