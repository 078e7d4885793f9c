"""A configuration at full size, with and without IRDS: tokens a second, model-FLOP utilisation, overhead, memory.

    python tests/benchmarks/bench_irds_model.py --model 243M --seq 4096 --batch 32  (what a GPU does by default)
    python tests/benchmarks/bench_irds_model.py --device cpu  (a small size, to see that it runs)

One device, bf16 and compiled on CUDA. Blocks of m steps without and with IRDS (one of the m is evaluated) take
turns; the table has medians of blocks. The limit that utilisation refers to is measured in the same run: the rate of
a large matrix product in the precision of the training. FLOPs of a token are 6 for each weight of a matrix product
(the output embedding included) and 6 x layers x hidden x sequence for causal attention; what IRDS adds counts none.
The row of m = auto is reckoned from the evaluated steps that were timed, at the m that holds 2% by the cost model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

import torch  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.schedule import choose_every, extra_cost  # noqa: E402
from shapleymix_irds.train.model import Decoder, sequence_losses  # noqa: E402
from shapleymix_irds.train.outputs import flops_of_a_token  # noqa: E402
from shapleymix_irds.train.settings import ModelConfig, model_config  # noqa: E402
from torch import Tensor  # noqa: E402

LANGUAGES = ("en", "de", "fr", "zh", "ja", "es", "ru")


class Training:
    """A model on random tokens, and its steps."""

    def __init__(self, config: ModelConfig, arguments: argparse.Namespace) -> None:
        self.device, self.cuda = torch.device(arguments.device), arguments.device == "cuda"
        torch.manual_seed(0)
        self.config, self.every = config, arguments.every
        with self.device:
            self.model = Decoder(config, recompute=arguments.recompute)
        self.model.initialise(0)
        if arguments.compile:
            self.model.compile()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=self.cuda)
        self.x, self.y = self.draw(arguments.batch, arguments.seq)
        self.lang = torch.arange(arguments.batch, device=self.device) % len(LANGUAGES)
        self.val = {name: self.draw(arguments.val, arguments.seq) for name in LANGUAGES}
        options = Options(val_sequences=arguments.val, measure_sequences=1)
        self.tracker = IRDS(self.model, LANGUAGES, val=self.val, every=self.every, engine="sketch", options=options)
        self.step = 0

    def draw(self, count: int, length: int) -> tuple[Tensor, Tensor]:
        x, y = (torch.randint(0, self.config.vocab, (count, length), device=self.device) for _ in range(2))
        return x, y

    def losses(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.cuda):
            logits = self.model(x)
        return sequence_losses(logits, y, 1e-4)

    def plain_step(self) -> None:
        (self.losses(self.x, self.y)[0].sum() / self.y.numel()).backward()
        self.update()

    def tracked_step(self) -> None:
        tokens = self.y.numel()
        self.tracker.backward(self.losses, self.x, self.y, self.lang, step=self.step, tokens=tokens)
        self.update(commit=True)
        self.step += 1

    def update(self, commit: bool = False) -> None:
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if commit:
            self.tracker.commit(lr=1e-4, grad_norm=norm, max_norm=1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def block(self, step: Callable[[], None]) -> tuple[float, float]:
        """Seconds and peak GiB of m steps; on a CPU the memory is not known."""
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        self.wait()
        start = time.perf_counter()
        for _ in range(self.every):
            step()
        self.wait()
        peak = torch.cuda.max_memory_allocated() / 2**30 if self.cuda else float("nan")
        return time.perf_counter() - start, peak

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


def product_rate(training: Training) -> float:
    """FLOP/s of a large matrix product on this device."""
    size = 8192 if training.cuda else 1024
    a = torch.randn(size, size, device=training.device, dtype=torch.bfloat16 if training.cuda else torch.float32)
    times = []
    for _ in range(20):
        training.wait()
        start = time.perf_counter()
        a @ a
        training.wait()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times[5:])


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    cuda = parser.parse_known_args()[0].device == "cuda"
    parser.add_argument("--model", default="243M" if cuda else "tiny")
    parser.add_argument("--seq", type=int, default=4096 if cuda else 128)
    parser.add_argument("--batch", type=int, default=32, help="sequences of a step")
    parser.add_argument("--val", type=int, default=1, help="validation sequences a language")
    parser.add_argument("--every", type=int, default=10, help="m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=cuda)
    parser.add_argument("--recompute", action="store_true", help="activation checkpointing")
    parser.add_argument("--small", action="store_true", help="see that it runs, in some seconds")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.seq, arguments.batch, arguments.every, arguments.rounds = 16, 8, 2, 1
    return arguments


def main() -> None:
    arguments = read_arguments()
    config = model_config(arguments.model)
    training = Training(config, arguments)
    limit = product_rate(training)
    steps = {"plain": training.plain_step, measured_name(arguments): training.tracked_step}
    for step in steps.values():
        training.block(step)  # compilers and allocators settle
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            found[name].append(training.block(step))
    report(arguments, training, limit, found)


def report(
    arguments: argparse.Namespace, training: Training, limit: float, found: dict[str, list[tuple[float, float]]]
) -> None:
    """The table, and whether the aims are met."""
    config = training.config
    tokens = arguments.every * training.y.numel()
    work = flops_of_a_token(config, arguments.seq)
    plain = statistics.median(seconds for seconds, _ in found["plain"])
    share = len(LANGUAGES) * arguments.val / arguments.batch
    embeddings = 2 * config.vocab * config.hidden
    print(f"{arguments.model}, {config.non_embedding:,} + {embeddings:,} parameters, sequence {arguments.seq}, ")
    print(f"batch {arguments.batch}, K = {len(LANGUAGES)}, V/T = {share:.2f}, torch {torch.__version__}, ")
    print(f"{torch.cuda.get_device_name() if training.cuda else 'CPU'}; a matrix product: {limit / 1e12:.3g} TFLOP/s\n")
    print("| steps | tokens/s | utilisation | time / plain | peak memory, GiB |\n| --- | --- | --- | --- | --- |")
    times = {name: statistics.median(seconds for seconds, _ in blocks) for name, blocks in found.items()}
    peaks = {name: blocks[-1][1] for name, blocks in found.items()}
    every = automatic_every(training)
    extra = (times[measured_name(arguments)] - plain) / plain * arguments.every
    automatic_name = f"IRDS, m = auto, {every}"
    times[automatic_name] = plain * (1 + extra / every)
    for name, seconds in times.items():
        rate, memory = tokens / seconds, f"{peaks[name]:.2f}" if training.cuda and name in peaks else ""
        print(f"| {name} | {rate:,.0f} | {rate * work / limit:.1%} | {seconds / plain:.3f} | {memory} |")
    if training.cuda:
        overheads = [times[name] / plain - 1 for name in (measured_name(arguments), automatic_name)]
        print(f"\nAims: m = 10 under 5% ({overheads[0]:.1%}), auto under 2% ({overheads[1]:.1%}), ")
        print(f"utilisation of plain training at least 40% ({tokens / plain * work / limit:.1%})")


def measured_name(arguments: argparse.Namespace) -> str:
    return f"IRDS, m = {arguments.every}"


def automatic_every(training: Training) -> int:
    """The m by which IRDS is reckoned to add 2%."""
    tracker, tokens = training.tracker, float(training.y.numel())
    validation = sum(y.numel() for _, y in training.val.values())
    return choose_every(extra_cost(tokens, float(validation), tracker.share), 0.02, None)


if __name__ == "__main__":
    main()
