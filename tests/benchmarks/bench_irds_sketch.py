"""How accurate sketches are over a run, and what they take at 512 GPUs: memory and messages, reckoned.

    python tests/benchmarks/bench_irds_sketch.py [--steps 100] [--skip accuracy]

Accuracy: a decoder of three layers of width 128 learns six languages that share bigrams; at every step the exact Gram
and sketches of it by several d and r are summed up. Off the diagonal, sums are small, so that errors show there.

Reckoning: the paper's largest model (3,171,068,928 parameters without embeddings) under FSDP2 on 512 ranks, one
sequence of 4,096 tokens each, bf16. What the tracker holds beside a plain step is counted from the shapes of the
model on the meta device; a rank has 80 GiB.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]

import torch  # noqa: E402
from irds_models import VOCAB, Decoder, loss_of  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.engines.sketches import Form, multiplications, shortened  # noqa: E402
from shapleymix_irds.train.model import Decoder as LanguageModel  # noqa: E402
from shapleymix_irds.train.shapes import ModelConfig  # noqa: E402
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
    print("| languages | sketches, MiB | at work on a layer, MiB | of 80 GiB | message, MiB | extra time at m = 50 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for languages in (20, 200):
        held = 3 * languages * options.numbers * 4  # training, validation, and the sum that autograd makes
        signs = longest * options.side * 2
        rows = 2 * TOKENS * options.side * 4 + languages * max(map(math.prod, cores.values())) * 4
        at_work = signs + rows + languages * options.numbers * 4
        message = 2 * languages * options.numbers * 8
        share, extra = (held + at_work) / ROOM, (1 + 2 * flops / step) / 50
        mib = [size / 2**20 for size in (held, at_work, message)]
        print(f"| {languages} | {mib[0]:.1f} | {mib[1]:.1f} | {share:.3%} | {mib[2]:.1f} | {extra:.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--skip", nargs="*", default=[], choices=["accuracy", "reckoning"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if "accuracy" not in arguments.skip:
        accuracy(arguments.steps)
    if "reckoning" not in arguments.skip:
        reckoning()


if __name__ == "__main__":
    main()
