"""Which rank writes which part of a checkpoint: every element once, and as much on each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.distributed import World  # noqa: E402
from shapleymix_irds.train.saving.shards import Block, own_blocks  # noqa: E402


def test_copies_are_written_once_and_in_equal_shares() -> None:
    rng = np.random.default_rng(3)
    tensors = {f"t{number}": torch.zeros(int(size)) for number, size in enumerate(rng.integers(1, 1000, size=50))}
    shares = [own_blocks(tensors, World(None, 4, rank, torch.device("cpu"))) for rank in range(4)]
    assert sorted(itertools.chain(*shares)) == sorted(tensors)
    loads = [sum(tensor.nbytes for tensor in share.values()) for share in shares]
    assert max(loads) < 1.02 * min(loads)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_blocks_overlap_where_they_have_elements_in_common(axes: int) -> None:
    rng = np.random.default_rng(axes)
    for _ in range(200):
        start, sizes = rng.integers(0, 4, (2, axes)), rng.integers(1, 4, (2, axes))
        one, two = (Block((9,) * axes, tuple(a), tuple(b), "F32") for a, b in zip(start, sizes, strict=True))
        cells = [
            set(itertools.product(*(range(a, a + n) for a, n in zip(b.start, b.sizes, strict=True))))
            for b in (one, two)
        ]
        part = one.overlap(two)
        ranges = [range(side.start + at, side.stop + at) for side, at in zip(part or (), one.start, strict=False)]
        assert (set(itertools.product(*ranges)) if part else set()) == cells[0] & cells[1]
