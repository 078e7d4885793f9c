"""Optimisers that are followed on two ranks: `matrix_ranks.py` runs it.

Each case trains with and without the tracker and compares weights bit for bit, and phi with the naive reference.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from irds_models import LANGUAGES, batch, dot, gradient, loss_of, mean_losses, relative, sketched, validation
from matrix_models import Case as Wrapping
from matrix_models import Small, make, state, syncing, wrap
from shapleymix_irds import IRDS, Options, sketches
from shapleymix_irds.step import combine_halves
from torch import Tensor, nn

LRS = (0.02, 0.005)
CLIP = 0.3


@dataclass(frozen=True)
class Case:
    """One cell."""

    wrapper: str
    what: str

    @property
    def name(self) -> str:
        return f"{self.wrapper} {self.what}"


def cases() -> list[Case]:
    free = "no validation set"
    whats = ("plain", "accumulation", "means", free, "edited", "sketch", f"{free}, sketch")
    every = [Case(wrapper, what) for wrapper in ("ddp", "fsdp") for what in whats]
    every = [case for case in every if case.name not in ("ddp edited", "ddp sketch")]
    return [*every, Case("hsdp 1x2", "accumulation"), Case("hsdp 2x1", "plain"), Case("alone", "by hand")]


def groups_of(model: Any, lrs: tuple[float, ...] = LRS) -> list[dict[str, Any]]:
    """Matrices and the rest, at different rates."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    parts = ([p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2])
    return [{"params": part, "lr": lr} for part, lr in zip(parts, lrs, strict=True)]


def calls_of(case: Case, step: int) -> list[list[tuple[Tensor, Tensor, Tensor]]]:
    """Calls of each rank, which are uneven."""
    x, y, lang = batch((3, 4, 0, 5), seed=20 + step, masked=not case.what.startswith("means"))
    calls = 2 if case.what == "accumulation" or case.what.startswith("means") else 1
    return [[(x[part], y[part], lang[part]) for part in share.chunk(calls)] for share in torch.arange(12).split([5, 7])]


def weights_of(case: Case, calls: list[list[Any]]) -> list[list[float]]:
    """By what each call's summed loss is multiplied, for the whole step's loss."""
    if case.what.startswith("means"):
        return [[1 / (2 * len(each) * y.numel()) for _, y, _ in each] for each in calls]
    tokens = sum(int((y != -100).sum()) for each in calls for _, y, _ in each)
    return [[1 / tokens for _ in each] for each in calls]


def expected(case: Case, model: Small, calls: list[list[Any]], sides: dict[str, Any]) -> Tensor:
    """Sum over groups of lr * clip * <h_j, g_i>, by separate backward passes, brought to the tracker's sides."""
    loss_fn, pieces = loss_of(model), []
    for rank, (each, weights) in enumerate(zip(calls, weights_of(case, calls), strict=True)):
        for number, ((x, y, lang), weight) in enumerate(zip(each, weights, strict=True)):
            seen = [0] * 4
            for row, k in enumerate(lang.tolist()):
                half = (seen[k] + rank + number) % 2  # ranks and calls begin with another half
                seen[k] += 1
                value = (loss_fn(x[row : row + 1], y[row : row + 1]) * weight).sum()
                pieces.append((2 * k + half, gradient(model, value), float((y[row] != -100).sum())))
    empty = [torch.zeros_like(p) for p in model.parameters()]
    g = [[u + sum(p[1][n] for p in pieces if p[0] == h) for n, u in enumerate(empty)] for h in range(8)]
    whole = [torch.stack([part[n] for part in g]).sum(0) for n in range(len(empty))]
    norm = float(torch.stack([each.square().sum() for each in whole]).sum()) ** 0.5
    rates = [lr * min(1.0, CLIP / (norm + 1e-6)) for p in model.parameters() for lr in (LRS[p.ndim < 2],)]
    scaled = [[r * u for r, u in zip(rates, part, strict=True)] for part in g]
    h = [gradient(model, loss) for loss in mean_losses(model, loss_fn, validation())]
    g, h, scaled = ([sketched(each, model, sides) for each in some] for some in (g, h, scaled))
    if case.what.startswith("no validation set"):
        gram = torch.tensor([[dot(a, b) for b in g] for a in scaled], dtype=torch.float64)
        tokens = torch.tensor([sum(p[2] for p in pieces if p[0] == h) for h in range(8)]).double()
        return torch.nan_to_num(combine_halves(gram, tokens, float(tokens.sum())))
    whole = [[u + v for u, v in zip(scaled[2 * i], scaled[2 * i + 1], strict=True)] for i in range(4)]
    return torch.tensor([[dot(a, b) for b in h] for a in whole], dtype=torch.float64)


def train(case: Case, tracked: bool) -> tuple[dict[str, Tensor], float]:
    """Weights at the end, and the largest error of phi."""
    wrapping = Wrapping(case.wrapper, "", case.what)
    model = wrap(make(""), wrapping)
    loss_fn, rank = loss_of(model), dist.get_rank()
    optimizer = torch.optim.SGD(groups_of(model))
    tracker = None
    if tracked:
        settings: dict[str, Any] = {"engine": "sketch" if case.what.endswith("sketch") else "exact"}
        val = None if case.what.startswith("no validation set") else validation()
        options = Options(val_sequences=3, measure_sequences=1, side=2)
        tracker = IRDS(model, LANGUAGES, val=val, every=1, options=options, loss_fn=loss_fn, **settings)
        tracker.follow(optimizer)
    reference, error = make(""), 0.0
    for step in range(2):
        calls = calls_of(case, step)
        tokens = sum(int((y != -100).sum()) for each in calls for _, y, _ in each)
        truth, weights = None, state(model)
        for number, (x, y, lang) in enumerate(calls[rank]):
            weight = 2 * weights_of(case, calls)[rank][number]
            with syncing(model, wrapping, last=number == len(calls[rank]) - 1):
                if tracker is None:
                    (loss_fn(x, y).sum() * weight).backward()
                elif tracker.validation is None:
                    tracker.backward(loss_fn, x, y, lang, step=step, tokens=tokens)
                else:
                    given = None if case.what.startswith("means") else tokens
                    with tracker.watch(lang, step=step, tokens=given):
                        (loss_fn(x, y).sum() * weight).backward()
        if case.what == "by hand":
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        if tracker is not None and tracker.evaluates(step):
            reference.load_state_dict(weights)
            truth = expected(case, reference, calls, tracker.engine.projections)
            truth = truth + torch.as_tensor(tracker.ledger.phi)
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if case.what == "edited":
            nn.utils.clip_grad_value_(model.parameters(), 1e-3)
        optimizer.step()
        optimizer.zero_grad()
        if truth is not None and tracker is not None:
            error = max(error, relative(tracker.ledger.phi, truth))
    return state(model), error


def outcome(case: Case) -> dict[str, Any]:
    """What became of a case on this rank."""
    sketches.NUMBERS = 600
    try:
        weights, phi = train(case, tracked=True)
    except ValueError as error:
        return {"refused": str(error)}
    plain, _ = train(case, tracked=False)
    return {"phi": phi, "worst": [name for name in plain if not torch.equal(weights[name], plain[name])]}


FOLLOWED = {f"followed {case.name}": partial(outcome, case) for case in cases()}
