"""Batches come in the order of the sampler, however far ahead they are made; faults reach the loop; no thread stays."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train.data import feed as feeding  # noqa: E402
from shapleymix_irds.train.data.corpus import Corpus, CorpusOptions, Stream, open_corpus  # noqa: E402
from shapleymix_irds.train.data.feed import AHEAD, Feed, Share  # noqa: E402
from shapleymix_irds.train.data.sampler import Sampler  # noqa: E402
from shapleymix_irds.train.data.tokens import ByteTokenizer  # noqa: E402
from shapleymix_irds.train.step import Stepper  # noqa: E402

from shapleymix.errors import DataError  # noqa: E402
from tests.irds.training import STEPS, results, train  # noqa: E402

RATIOS = np.array([0.5, 0.3, 0.2])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return open_corpus("toy", ("a", "b", "c"), CorpusOptions(ByteTokenizer(), 16, 0.2, 0.2, toy_size=20_000))


def sampler(corpus: Corpus) -> Sampler:
    return Sampler(RATIOS, np.array([stream.windows for stream in corpus.train]), 3)


def feed(corpus: Corpus, share: Share, steps: int, dealt: Sampler | None = None) -> Feed:
    return Feed(corpus.train, dealt or sampler(corpus), share, steps, pin=False)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(("micro_batch", "mixed"), [(0, False), (2, False), (2, True)])
def test_ranks_and_passes_divide_the_sampler_s_batches(
    corpus: Corpus, ranks: int, micro_batch: int, mixed: bool
) -> None:
    plain, feeds = sampler(corpus), []
    for rank in range(ranks):
        feeds.append(feed(corpus, Share(11, rank, ranks, micro_batch, mixed), 6))
        feeds[-1].__enter__()
    for _ in range(6):
        wanted = [
            (int(language), corpus.train[language].window(int(place)).tolist())
            for language, place in zip(*plain.take(11), strict=True)
        ]
        found = []
        for each in feeds:
            step = each.next()
            assert np.array_equal(step.counts, plain.counts)
            for x, y, languages in step.pieces:
                assert len(x) <= (micro_batch or 11)
                assert torch.equal(x[:, 1:], y[:, :-1])
                assert x.is_contiguous()
                rows = torch.cat([x, y[:, -1:]], 1).tolist()
                found += list(zip(languages.tolist(), rows, strict=True))
        assert sorted(found) == sorted(wanted)
    for each in feeds:
        each.__exit__(None, None, None)


def test_a_feed_from_the_middle_goes_on_where_the_counts_stand(corpus: Corpus) -> None:
    share, dealt = Share(5, 0, 1), sampler(corpus)
    with feed(corpus, share, 6) as whole:
        steps = [whole.next() for _ in range(6)]
    dealt.counts[:] = steps[2].counts
    with feed(corpus, share, 3, dealt) as rest:
        for step in steps[3:]:
            again = rest.next()
            assert all(torch.equal(*pair) for pair in zip(step.pieces[0], again.pieces[0], strict=True))
    assert np.array_equal(dealt.counts, steps[2].counts)  # what is dealt ahead is not booked


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_no_thread_is_left_and_it_is_never_far_ahead(
    corpus: Corpus, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    plain = Sampler.take

    def counted(*arguments: int) -> object:
        made.append(1)
        return plain(*arguments)

    monkeypatch.setattr(Sampler, "take", counted)
    before = threading.active_count()
    steps = feed(corpus, Share(3, 0, 1), 1000)
    with contextlib.suppress(KeyboardInterrupt), steps:
        for _ in range(taken):
            steps.next()
        raise KeyboardInterrupt
    assert threading.active_count() == before
    assert len(made) <= taken + AHEAD + 2


def test_a_fault_of_the_thread_is_the_loop_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: object) -> None:
    plain, calls = Stream.window, []

    def broken(self: Stream, number: int) -> np.ndarray:
        if threading.current_thread().name == "feed":
            calls.append(1)
            if len(calls) > 7 * 5:
                raise DataError("the disk has lost a token")
        return plain(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Stream, "window", broken)
        assert train(tmp_path / "run", "--no-irds") == 1
    assert "feed" not in {thread.name for thread in threading.enumerate()}
    assert "error: the disk has lost a token" in capfd.readouterr().err  # type: ignore[attr-defined]
    assert train(tmp_path / "run", "--no-irds") == 0
    assert train(tmp_path / "whole", "--no-irds") == 0
    assert results(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.parametrize("stop", [2, 5, 11])
def test_a_run_that_is_stopped_anywhere_gets_the_same_batches(
    tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[int]] = {}
    plain, stopped = Stepper._backward, []

    def watched(self: Stepper, step: int, pieces: list[feeding.Sequences]) -> torch.Tensor:
        seen.setdefault(step, []).append(hash(tuple(pieces[0].x.flatten().tolist())))
        if step == stop and not stopped:
            stopped.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(self, step, pieces)

    monkeypatch.setattr(Stepper, "_backward", watched)
    assert train(tmp_path / "run", "--no-irds") == (128 + signal.SIGTERM if stop < STEPS - 1 else 0)
    assert train(tmp_path / "run", "--no-irds") == 0
    first, seen = seen, {}
    assert train(tmp_path / "whole", "--no-irds") == 0
    assert {step: hashes[-1:] for step, hashes in first.items()} == seen


def test_batches_are_pinned_where_a_gpu_reads_them(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pinned.append(self.shape) or self)
    with Feed(corpus.train, sampler(corpus), Share(4, 0, 1), 1, pin=True) as steps:
        steps.next()
    assert pinned == [(4, 16), (4, 16), (4,)]
