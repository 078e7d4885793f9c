"""What a checkpoint costs: the time that training loses to one, and its size at 512 ranks.

    python tests/benchmarks/bench_irds_checkpoint.py [--folder DISK] [--model small] [--rounds 5]

Time: blocks of steps on one CPU without a checkpoint, with one that the step waits for, and with one that is written
beside training, take turns; the table has medians of what a block takes longer.

Size: the paper's largest model (3,171,068,928 parameters without embeddings) with AdamW's two moments in fp32 under
FSDP2 on 512 ranks, counted from its shapes on the meta device. The first rank's file is written, checked and read
here, on one disk that nobody else uses; so many ranks share theirs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters")]

import torch  # noqa: E402
from _report import finish, must, row, table  # noqa: E402
from shapleymix_irds.distributed import World  # noqa: E402
from shapleymix_irds.train.model import Decoder, sequence_losses  # noqa: E402
from shapleymix_irds.train.optimisers import Optimiser  # noqa: E402
from shapleymix_irds.train.saving.checkpoint import Checkpoints  # noqa: E402
from shapleymix_irds.train.saving.checksums import check_file  # noqa: E402
from shapleymix_irds.train.saving.shards import Block, Reader, Staging, read_places, write_blocks  # noqa: E402
from shapleymix_irds.train.shapes import model_config  # noqa: E402
from torch import Tensor  # noqa: E402

RANKS, LARGEST = 512, "3171M"
KEPT = ("model", "optimiser/exp_avg", "optimiser/exp_avg_sq")
META = {
    "step": 0,
    "settings": {},
    "corpus": "",
    "counts": [],
    "rows": [],
    "efficiency": {},
    "trained_with": {},
    "tracker": None,
}


class Training:
    """A model on random tokens, and its checkpoints."""

    def __init__(self, name: str, folder: Path) -> None:
        torch.manual_seed(0)
        config = model_config(name, vocab=256)
        self.model = Decoder(config)
        self.model.initialise(0)
        self.optimiser = Optimiser([torch.optim.AdamW(self.model.parameters(), lr=1e-4)])
        self.x = torch.randint(0, 256, (8, 128))
        self.checkpoints = Checkpoints(folder, World.of(None, torch.device("cpu")), keep=2)
        self.number = 0
        self.steps(1)

    def steps(self, count: int) -> None:
        for _ in range(count):
            sequence_losses(self.model(self.x), self.x, 0.0)[0].sum().backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            self.checkpoints.settle()

    def save(self) -> None:
        self.number += 1
        self.checkpoints.save(self.number, self.model, self.optimiser, META.copy)

    def waiting(self, count: int) -> None:
        self.save()
        self.checkpoints.finish()
        self.steps(count)

    def beside(self, count: int) -> None:
        self.save()
        self.steps(count)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def lost_time(name: str, folder: Path, rounds: int) -> None:
    """What training loses to a checkpoint."""
    training = Training(name, folder)
    training.waiting(1)
    once = seconds(lambda: training.waiting(0))
    count = max(2, math.ceil(3 * once / seconds(lambda: training.steps(1))))  # a block has time to write beside
    ways = {"none": training.steps, "waits": training.waiting, "beside": training.beside}
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, block in ways.items():
            found[way].append(seconds(lambda block=block: block(count)))
            training.checkpoints.finish()
    plain = statistics.median(found["none"])
    lost = {way: statistics.median(times) - plain for way, times in found.items()}
    size = sum(path.stat().st_size for path in training.checkpoints.place(training.number).iterdir())
    table(f"A checkpoint of {size / 1e6:.0f} MB, {count} steps of {plain / count:.3f} s", "written", "seconds lost")
    row("while the step waits", lost["waits"])
    row("beside training", lost["beside"])
    row("beside / waits", lost["beside"] / lost["waits"])


def blocks_of(rank: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Block]:
    """What a rank holds of tensors that are divided along their first axis, as FSDP2 does."""
    found = {}
    for name, shape in shapes.items():
        rows = math.ceil(shape[0] / RANKS)
        held = min(rows, max(0, shape[0] - rank * rows))
        if held:
            found[name] = Block(shape, (rank * rows, *(0 for _ in shape[1:])), (held, *shape[1:]), "F32")
    return found


def reckoning(folder: Path) -> None:
    """Size of a checkpoint at 512 ranks, and the times of one rank."""
    with torch.device("meta"):
        model = Decoder(model_config(LARGEST))
    shapes = {f"{kept}/{name}": tuple(weight.shape) for kept in KEPT for name, weight in model.named_parameters()}
    places = {f"rank-{rank:05d}.safetensors": blocks_of(rank, shapes) for rank in range(RANKS)}
    name, blocks = next(iter(places.items()))
    tensors = {name: torch.zeros(block.sizes) for name, block in blocks.items()}
    total = 4 * sum(math.prod(shape) for shape in shapes.values())
    table(f"{LARGEST} with AdamW on {RANKS} ranks: a checkpoint", "what", "")
    row("all files", f"{total / 1e9:.1f} GB in {RANKS + 2} files")
    row("the largest file of a rank", f"{sum(tensor.nbytes for tensor in tensors.values()) / 1e6:.1f} MB")
    row("to copy it, for which the step waits", f"{copy_time(tensors):.3f} s, from one place of memory to another")
    sums: dict[str, str] = {}
    writing = seconds(lambda: sums.update({name: write_blocks(folder / name, tensors, blocks)}))
    row("to write it through to this disk, beside training", f"{writing:.2f} s")
    row("to check it", f"{seconds(lambda: check_file(folder, name, sums)):.2f} s")
    row("to read its header", f"{seconds(lambda: read_places(folder / name)):.3f} s")
    wanted = [(name, torch.zeros(1, device="meta").expand(shape)) for name, shape in shapes.items()]
    reader: list[Reader] = []
    finding = seconds(lambda: reader.append(Reader(folder, places)))
    finding += seconds(lambda: [reader[0].check(name, tensor) for name, tensor in wanted])
    row("to find the blocks of all tensors in all files", f"{finding:.1f} s")
    must("MB that a rank writes", sum(tensor.nbytes for tensor in tensors.values()) / 1e6, 1.02 * total / RANKS / 1e6)


def copy_time(tensors: dict[str, Tensor]) -> float:
    staging = Staging()
    staging.copy(tensors)  # the memory is there from the first checkpoint on
    return seconds(lambda: staging.copy(tensors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to write; a temporary folder if not given")
    parser.add_argument("--model", default="small")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        lost_time(arguments.model, Path(folder), arguments.rounds)
        reckoning(Path(folder))


if __name__ == "__main__":
    main()
    finish()
