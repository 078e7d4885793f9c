"""What an evaluated step costs, against a plain step and the naive estimator.

    python tests/benchmarks/bench_irds.py [--rounds 9] [--seconds 60] [--tokens 2048] [--skip naive]

It ends within five minutes on two cores that do nothing else: rounds begin until `--seconds` are over (two at least).

The setting: a decoder of `--layers` layers of width `--hidden`, K = `--languages`, T = `--tokens` a step, V/T = .25,
the tracker at its default settings; where a language's part of V is less than a sequence, validation sequences are as
much shorter. The aim is for d = 256, 512 and 768, T = 2,048 and 8,192, K = 4 and 20. Variants
are interleaved (A B C ... A B C ...) and each time is divided by the mean of the plain steps around it; the table shows
medians of these ratios, since a machine may be shared. A step is all between two batches: forward, backward,
clipping, commit, AdamW. Next to the medians stand ratios of the least times, which other processes disturb least.
Extra memory is what PyTorch's allocator holds at most during a step, over that of a plain step on the T training
tokens, and on T + V tokens, in P (all parameters, float32).

The C library is told to keep freed memory, as a GPU's allocator does: else large tensors are mapped anew in each
step, and the time of page faults, which grows by leaps with their size, hides what is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(Path(__file__).parent)]

import torch  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.schedule import Schedule  # noqa: E402
from shapleymix_irds.train.model import Decoder, sequence_losses  # noqa: E402
from shapleymix_irds.train.settings import ModelConfig  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402

LENGTH, SHARE = 64, 0.25
BASES = ("plain", "plain step on T + V")
MEMORY = 1.5  # P over plain
LIMITS = {"default": 1.35, "validation-free": 1.15, "run at m = 10": 1.04}  # of the ratio of least times
SHAPE = {"tokens": 2048, "vocab": 256, "hidden": 256, "layers": 4, "languages": 8}


class Bench:
    """A model, its optimiser, batches, and the steps to compare."""

    def __init__(self, tokens: int, vocab: int, hidden: int = 256, layers: int = 4, languages: int = 8) -> None:
        torch.manual_seed(0)
        self.K = K = languages
        self.model = Decoder(ModelConfig(layers, hidden, 3 * hidden, 8, vocab))
        self.model.initialise(0)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), foreach=True)
        self.count = tokens // LENGTH
        self.x, self.y = (torch.randint(0, vocab, (self.count, LENGTH)) for _ in range(2))
        self.lang = torch.arange(self.count) % K
        self.names = [f"l{k}" for k in range(K)]
        each = max(1, int(SHARE * self.count) // K)
        length = min(LENGTH, int(SHARE * tokens) // (each * K))
        self.val = {name: tuple(torch.randint(0, vocab, (each, length)) for _ in range(2)) for name in self.names}
        self.options = {"val_sequences": each, "measure_sequences": 1}

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        return sequence_losses(self.model(x), y)[1]

    def finish(self) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def plain(self) -> None:
        (self.losses(self.x, self.y).sum() / self.y.numel()).backward()
        self.finish()
        self.update()

    def wide(self) -> None:
        """A plain step on T + V tokens: the floor of one concatenated pass."""
        x, y = (torch.cat([own, own[: int(SHARE * self.count)]]) for own in (self.x, self.y))
        (self.losses(x, y).sum() / y.numel()).backward()
        self.finish()
        self.update()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def tracked(self, engine: Any = "auto", free: bool = False, every: int = 1) -> Callable[[], None]:
        options = Options(**self.options)  # type: ignore[arg-type]
        val: Any = None if free else self.val
        tracker = IRDS(self.model, self.names, val=val, every=every, engine=engine, options=options)
        clock = iter(range(10**9))

        def step() -> None:
            tracker.backward(self.losses, self.x, self.y, self.lang, step=next(clock), tokens=self.y.numel())
            norm = self.finish()
            tracker.commit(lr=1e-4, grad_norm=norm, max_norm=1.0)
            self.update()

        return step

    def naive(self) -> None:
        """One backward pass a language and a validation language; gradients are reused as training gradients."""
        parameters = list(self.model.parameters())
        val = [torch.autograd.grad(self.losses(x, y).sum() / y.numel(), parameters) for x, y in self.val.values()]
        total = [torch.zeros_like(p) for p in parameters]
        for k in range(self.K):
            mine = self.lang == k
            loss = self.losses(self.x[mine], self.y[mine]).sum() / self.y.numel()
            grads = torch.autograd.grad(loss, parameters)
            for h in val:
                sum(float((a * b).sum()) for a, b in zip(grads, h, strict=True))
            for whole, part in zip(total, grads, strict=True):
                whole += part
        (self.losses(self.x, self.y).sum() / self.y.numel()).backward()
        self.finish()
        self.update()


def variants(bench: Bench) -> dict[str, Callable[[], None]]:
    """The steps to compare, by name."""
    return {
        "plain step on T + V": bench.wide,
        "default": bench.tracked(),
        "exact": bench.tracked("exact"),
        "validation-free": bench.tracked(free=True),
        "naive": bench.naive,
    }


def timed(step: Callable[[], None]) -> float:
    cuda = torch.get_default_device().type == "cuda"
    clock = time.perf_counter if cuda else time.process_time
    start = clock()
    step()
    if cuda:
        torch.cuda.synchronize()
    return clock() - start


def ratios(
    bench: Bench, steps: dict[str, Callable[[], None]], rounds: int, seconds: float
) -> dict[str, tuple[float, float]]:
    """(median of ratios to the mean of the two plain steps around it, ratio of least times) by variant."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    least: dict[str, tuple[float, float]] = dict.fromkeys(steps, (float("inf"), float("inf")))
    for step in (bench.plain, *steps.values()):
        step()
    begun = time.perf_counter()
    for turn in range(rounds):
        if turn >= 2 and time.perf_counter() - begun > seconds:
            break
        before = timed(bench.plain)
        for name, step in steps.items():
            took = timed(step)
            after = timed(bench.plain)
            found[name].append(2 * took / (before + after))
            least[name] = min(least[name][0], took), min(least[name][1], before)  # the least of as many of both
            before = after
    return {name: (statistics.median(times), least[name][0] / least[name][1]) for name, times in found.items()}


def whole_run(bench: Bench, rounds: int) -> tuple[float, float]:
    """Time of runs of 10 steps with IRDS at m = 10 over runs without, interleaved: median, and ratio of least times."""
    step, found = bench.tracked(every=10), []
    schedule = Schedule(10)
    at = schedule.chosen(0)
    for _ in range(10):
        step()  # with the first evaluation, which checks coverage once
    for _ in range(rounds):
        plain = [timed(bench.plain) for _ in range(10)]
        mine = [timed(step) for _ in range(10)]
        found.append((sum(mine), sum(plain), mine.pop(at), min(mine), min(plain)))
    whole, base, evaluated, other, plain_least = (list(column) for column in zip(*found, strict=True))
    least = (9 * min(other) + min(evaluated)) / (10 * min(plain_least))
    return statistics.median(a / b for a, b in zip(whole, base, strict=True)), least


def peak(step: Callable[[], None]) -> float:
    """Most bytes that PyTorch's allocator holds during a step, beyond what it held before."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    events = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    sizes = (event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    return float(max(accumulate(sizes)))


KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}


def keep_memory() -> None:
    """Start this process again with a C library that keeps freed memory."""
    if not KEEP.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEP)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=60.0, help="after which no further round begins")
    for name, value in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu", help="cuda, with --skip memory")
    parser.add_argument("--skip", nargs="*", default=[])
    parser.add_argument("--small", action="store_true", help="see that it runs, in some seconds")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.rounds, arguments.seconds, arguments.tokens = 1, 0.0, 512
        arguments.skip = ["memory", "run", "exact", "naive"]
    keep_memory()
    torch.set_num_threads(1)
    torch.set_default_device(arguments.device)
    bench = Bench(**{name: getattr(arguments, name) for name in SHAPE})
    steps = {n: s for n, s in variants(bench).items() if n not in arguments.skip}
    table = ratios(bench, steps, arguments.rounds, arguments.seconds)
    if "run" not in arguments.skip:
        table["run at m = 10"] = whole_run(bench, 2)
    wanted = {} if "memory" in arguments.skip else {"plain": bench.plain, **steps}
    peaks = {name: peak(step) for name, step in wanted.items()}
    shape = ", ".join(f"{name} {getattr(arguments, name)}" for name in SHAPE)
    print(f"P = {bench.parameters:,}, {shape}, V/T = {SHARE}, torch {torch.__version__}, 1 thread")
    print("| step | time / plain step: median | least | limit | memory over plain, P | over plain on T + V, P |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (median, least) in table.items():
        room = [(peaks[name] - peaks[base]) / (4 * bench.parameters) for base in BASES] if name in peaks else []
        cells = " | ".join(f"{value:.1f}" for value in room) or " | "
        print(f"| {name} | {median:.3f} | {least:.3f} | {LIMITS.get(name, '')} | {cells} |", flush=True)
    within = all(table[name][1] <= limit for name, limit in LIMITS.items() if name in table)
    within &= all(peaks[n] - peaks["plain"] <= MEMORY * 4 * bench.parameters for n in LIMITS if n in peaks)
    print(f"within the limits: {'yes' if within else 'NO'}")
    return 0 if within or arguments.small else 1


if __name__ == "__main__":
    sys.exit(main())
