"""Mixture ratios are exact, orders are permutations, and ranks do not matter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapleymix_irds.train.data.sampler import Sampler, deal, passes, share_of_rank, shuffled

RATIOS = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(sum).map(lambda a: np.array(a) / sum(a))


@settings(max_examples=60, deadline=None)
@given(ratios=RATIOS, n=st.integers(1, 300))
def test_counts_stay_within_a_sequence_of_their_due(ratios: np.ndarray, n: int) -> None:
    chosen = deal(ratios, np.zeros(len(ratios), np.int64), n)
    counts = np.cumsum(chosen[:, None] == np.arange(len(ratios)), axis=0)
    due = ratios * np.arange(1, n + 1)[:, None]
    assert (counts < due + 1).all()
    assert (counts > due - len(ratios)).all()
    assert not np.isin(chosen, np.flatnonzero(ratios == 0)).any()


@settings(max_examples=60, deadline=None)
@given(ratios=RATIOS, cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_dealing_in_parts_is_dealing_at_once(ratios: np.ndarray, cuts: list[int]) -> None:
    windows = np.full(len(ratios), 7)
    whole, parts = Sampler(ratios, windows, 3), Sampler(ratios, windows, 3)
    languages, places = whole.take(sum(cuts))
    pieces = [parts.take(cut) for cut in cuts]
    assert np.array_equal(languages, np.concatenate([piece[0] for piece in pieces]))
    assert np.array_equal(places, np.concatenate([piece[1] for piece in pieces]))
    assert np.array_equal(whole.counts, parts.counts)


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 700), key=st.text(max_size=5))
def test_an_order_is_a_permutation(size: int, key: str) -> None:
    assert sorted(shuffled(place, size, key) for place in range(size)) == list(range(size))


def test_orders_differ_by_seed_language_and_epoch_and_mix_well() -> None:
    orders = {tuple(shuffled(place, 500, key) for place in range(500)) for key in ("0/0/0", "1/0/0", "0/1/0", "0/0/1")}
    assert len(orders) == 4
    for order in orders:
        assert abs(np.corrcoef(order, np.arange(500))[0, 1]) < 0.15


def test_each_epoch_sees_every_window_once() -> None:
    sampler = Sampler(np.array([1.0]), np.array([23]), 5)
    _, places = sampler.take(3 * 23)
    for epoch in places.reshape(3, 23):
        assert sorted(epoch) == list(range(23))
    assert sampler.epochs == pytest.approx([3.0])


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_ranks_share_a_batch_without_gap_or_overlap(ranks: int) -> None:
    batch = list(range(16))
    parts = [batch[share_of_rank(16, rank, ranks)] for rank in range(ranks)]
    assert [each for part in parts for each in part] == batch
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_every_rank_makes_the_same_passes_and_has_a_sequence_in_each() -> None:
    for n, ranks, micro in itertools.product(range(4, 20), (1, 2, 3, 4), (0, 1, 2, 3, 5)):
        count = passes(n, micro, ranks)
        shares = [len(range(n)[share_of_rank(n, rank, ranks)]) for rank in range(ranks)]
        assert max(-(-share // count) for share in shares) <= (micro or max(shares))
        assert min(shares) >= count or (micro == 1 and n % ranks)
