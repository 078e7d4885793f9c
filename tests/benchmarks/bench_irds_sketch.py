"""How accurate sketches are over a run, what many languages cost, and what 512 GPUs would hold and send, reckoned.

    python tests/benchmarks/bench_irds_sketch.py [--steps 100] [--skip accuracy languages reckoning]

Accuracy: a decoder of three layers of width 128 learns six languages that share bigrams; at every step the exact Gram
and sketches of it by several d and r are summed up. Off the diagonal, sums are small, so that errors show there.

Languages: `tiny` at evaluated steps of the same T and V tokens, of 4, 50 and 200 languages, in processes of their own
for their memory; then whole runs of `irds_train.py` on 50 and 200 toy languages.

Reckoning: the paper's largest model (3,171,068,928 parameters without embeddings) under FSDP2 on 512 ranks, one
sequence of 4,096 tokens each, bf16. What the tracker holds beside a plain step is counted from the shapes of the
model on the meta device; a rank has 80 GiB.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]

import torch  # noqa: E402
from irds_models import VOCAB, Decoder, loss_of  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.engines.sketches import Form, multiplications, shortened  # noqa: E402
from shapleymix_irds.train.model import Decoder as LanguageModel  # noqa: E402
from shapleymix_irds.train.model import sequence_losses  # noqa: E402
from shapleymix_irds.train.shapes import ModelConfig, model_config  # noqa: E402
from torch import Tensor  # noqa: E402

K, LENGTH, EACH = 6, 16, 4
NAMES = tuple(f"l{k}" for k in range(K))
FORMS = ((16_384, 64), (16_384, 128), (4096, 256), (16_384, 256), (65_536, 256))
RANKS, TOKENS, ROOM = 512, 4096, 80 * 2**30


class Languages:
    """Six languages of bigrams; neighbours share most of them."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)
        common = torch.randn(VOCAB, VOCAB, generator=self.generator)
        own = [torch.randn(VOCAB, VOCAB, generator=self.generator) for _ in NAMES]
        self.next = [torch.softmax(1.2 * (common + each), -1) for each in own]

    def draw(self, language: int, count: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(0, VOCAB, (count, 1), generator=self.generator)
        for _ in range(LENGTH):
            following = torch.multinomial(self.next[language][tokens[:, -1]], 1, generator=self.generator)
            tokens = torch.cat([tokens, following], 1)
        return tokens[:, :-1], tokens[:, 1:]


def accuracy(steps: int) -> None:
    """Cosine and relative error off the diagonal, for each d and r."""
    torch.manual_seed(0)
    languages, model = Languages(), Decoder(width=128, layers=3)
    optimizer, loss_fn = torch.optim.AdamW(model.parameters(), lr=3e-3), loss_of(model)
    val = {name: languages.draw(k, 64) for k, name in enumerate(NAMES)}
    settings = {"val_sequences": EACH, "measure_sequences": 1}
    trackers = [IRDS(model, NAMES, val=val, every=1, engine="exact", options=Options(**settings))]
    for numbers, side in FORMS:
        options = Options(numbers=numbers, side=side, **settings)
        trackers.append(IRDS(model, NAMES, val=val, every=1, engine="sketch", options=options))
    lang = torch.arange(K).repeat_interleave(EACH)
    for step in range(steps):
        x, y = (torch.cat(parts) for parts in zip(*(languages.draw(k, EACH) for k in range(K)), strict=True))
        for tracker in trackers:
            model.zero_grad()
            tracker.backward(loss_fn, x, y, lang, step=step)
            tracker.commit(lr=3e-3)
        optimizer.step()
    exact, *found = (torch.as_tensor(tracker.ledger.phi) for tracker in trackers)
    off = ~torch.eye(K, dtype=torch.bool)
    print(f"{steps} evaluations, K = {K}: against exact products of the same run")
    print("| d | r | cosine | error off the diagonal |\n| --- | --- | --- | --- |")
    for (numbers, side), phi in zip(FORMS, found, strict=True):
        cosine = torch.nn.functional.cosine_similarity(phi.flatten(), exact.flatten(), dim=0)
        print(f"| {numbers:,} | {side} | {cosine:.5f} | {(phi - exact)[off].norm() / exact[off].norm():.2%} |")


MANY = (4, 50, 200)
SEQUENCES, SEQ = 200, 128  # of a step, and of its validation; tokens of each
MOST = {"time": 1.5, "memory": 2.0}  # of 200 languages, in those of 4
RUNS = {50: "--batch 50 --seq 64 --tokens 160k", 200: "--batch 200 --seq 64 --tokens 320k --irds-val 1"}


def step_of(languages: int) -> None:
    """Print seconds of an evaluated step, of a plain one, and the peak memory in MiB of this process."""
    torch.manual_seed(0)
    model = LanguageModel(model_config("tiny", vocab=256))
    model.initialise(0)
    names = [f"l{k}" for k in range(languages)]
    each = SEQUENCES // languages

    def draw(count: int) -> tuple[Tensor, Tensor]:
        x, y = (torch.randint(0, 256, (count, SEQ)) for _ in range(2))
        return x, y

    def losses(x: Tensor, y: Tensor) -> Tensor:
        return sequence_losses(model(x), y)[1]

    val = {name: draw(each) for name in names}
    options = Options(val_sequences=each, measure_sequences=1)
    tracker = IRDS(model, names, val=val, every=1, engine="sketch", options=options)
    (x, y), lang = draw(SEQUENCES), torch.arange(SEQUENCES) % languages
    evaluated, plain = [], []
    for step in range(5):
        begun = time.process_time()
        tracker.backward(losses, x, y, lang, step=step)
        tracker.commit(lr=1e-3)
        evaluated.append(time.process_time() - begun)
        begun = time.process_time()
        (losses(x, y).sum() / y.numel()).backward()
        plain.append(time.process_time() - begun)
        model.zero_grad()
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    print(min(evaluated), statistics.median(plain), float(line.split()[1]) / 1024)


def languages_table() -> bool:
    """Time and memory by the number of languages; whether they stay within bounds."""
    found = {}
    for count in MANY:
        command = [sys.executable, __file__, "--step-of", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[count] = [float(number) for number in done.stdout.split()]
    base = found[MANY[0]]
    print(f"evaluated steps of `tiny`, T = V = {SEQUENCES * SEQ:,} tokens, sketches of {Options().numbers:,} numbers")
    print("| languages | time / plain | in that of 4 | peak memory, MiB | in that of 4 |")
    print("| --- | --- | --- | --- | --- |")
    for count, (evaluated, plain, memory) in found.items():
        ratios = (evaluated / plain, evaluated / base[0], memory, memory / base[2])
        print(f"| {count} | {ratios[0]:.2f} | {ratios[1]:.2f} | {ratios[2]:.0f} | {ratios[3]:.2f} |")
    last = found[MANY[-1]]
    return last[0] <= MOST["time"] * base[0] and last[2] <= MOST["memory"] * base[2]


def runs() -> bool:
    """Whole runs on many toy languages: what their last lines say; whether all ended well."""
    fine = True
    for count, more in RUNS.items():
        with tempfile.TemporaryDirectory() as out:
            script = str(ROOT / "adapters" / "irds_train.py")
            size = ["--toy-languages", str(count), "--toy-size", "40k", "--val-share", ".1", "--test-share", ".1"]
            quick = ["--test-windows", "8", "--irds-pool", "16", "--irds-measure", "4", "--checkpoint-every", "10000"]
            begun = time.perf_counter()
            command = [sys.executable, script, *size, *quick, *more.split(), "--out", out]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - begun
            print(f"{count} toy languages, {more}: {seconds:.0f} s; {done.stderr.strip().splitlines()[-1]}")
            fine = fine and done.returncode == 0 and (Path(out) / "sv.csv").exists()
    return fine


def reckoning() -> None:
    """What a rank holds and sends beside a plain step, for 20 and 200 languages."""
    with torch.device("meta"):
        model = LanguageModel(ModelConfig(28, 3072, 8192, 24, 99_487))
    options = Options()
    matrices = [weight for weight in model.parameters() if weight.dim() == 2]
    longest = max(max(weight.shape) for weight in matrices)
    form = Form(options.numbers, options.side)
    cores = {tuple(weight.shape): shortened(tuple(weight.shape), form) for weight in matrices}
    flops = sum(2 * multiplications(tuple(weight.shape), cores[tuple(weight.shape)]) for weight in matrices)
    step = sum(6 * weight.numel() for weight in matrices)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {RANKS} ranks, {TOKENS} tokens each")
    print(f"sketches: {flops / step:.2%} of the multiplications of a plain step; validation: V/T = 1")
    head = ("languages", "sketches, MiB", "at work on a layer, MiB", "at the end, MiB", "of 80 GiB", "message, MiB")
    print(f"| {' | '.join(head)} | extra time at m = 50 |\n|{' --- |' * 7}")
    for languages in (20, 200):
        held = 3 * languages * options.numbers * 4  # training, validation, and the sum that autograd makes
        signs = longest * options.side * 2
        groups = min(languages, 8)  # of the sequences that a rank passes at a time
        rows = 2 * TOKENS * options.side * 4 + groups * max(map(math.prod, cores.values())) * 4
        at_work = signs + rows + groups * options.numbers * 4
        message = 2 * languages * options.numbers * 8
        share, extra = (held + max(at_work, 3 * message)) / ROOM, (1 + 2 * flops / step) / 50
        mib = [size / 2**20 for size in (held, at_work, 3 * message, message)]
        cells = f"{mib[0]:.1f} | {mib[1]:.1f} | {mib[2]:.1f} | {share:.3%} | {mib[3]:.1f} | {extra:.1%}"
        print(f"| {languages} | {cells} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--skip", nargs="*", default=[], choices=["accuracy", "languages", "reckoning"])
    parser.add_argument("--step-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.step_of:
        step_of(arguments.step_of)
        return 0
    within = True
    if "accuracy" not in arguments.skip:
        accuracy(arguments.steps)
    if "languages" not in arguments.skip:
        within = languages_table() & runs()
        print(f"200 languages in the time and memory of 4, at most {MOST}: {'yes' if within else 'NO'}")
    if "reckoning" not in arguments.skip:
        reckoning()
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
