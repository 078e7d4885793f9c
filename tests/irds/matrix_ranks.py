"""Every wrapper crossed with every engine and feature on two ranks: `matrix_ranks.py FOLDER` on each of them.

Each case trains the same model twice, with and without the tracker, and compares the weights; phi is compared with the
naive reference on the batch of all ranks. A case is right, or refused by name.
"""

import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "adapters"), str(Path(__file__).parent)]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from follow_ranks import FOLLOWED  # noqa: E402
from irds_models import LANGUAGES, batch, dot, gradient, loss_of, relative, sketched, validation  # noqa: E402
from irds_ranks import OUTCOMES  # noqa: E402
from matrix_models import Case, Small, make, on_this_rank, state, syncing, wrap  # noqa: E402
from shapleymix_irds import IRDS, Options, sketches  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

STEPS, LR, TOLERANCE = 4, 0.01, 1e-8
FEW = 250  # numbers of a sketch: matrices are multiplied with M, and most of all is folded
Part = tuple[Tensor, Tensor, Tensor]


class Steps:
    """How gradients become weights."""

    def __init__(self, model: Any, case: Case) -> None:
        self.model, self.case, self.nodes = model, case, []
        self.parameters = list(model.parameters())
        self.optimisers: list[torch.optim.Optimizer] = []
        if case.feature == "optimiser in backward":
            self._step_in_backward()
        else:
            self.optimisers = [torch.optim.AdamW(self.parameters, lr=LR)]
        if case.feature.startswith("main_grad"):
            self._move()
        if case.feature == "tensor hook":
            self.parameters[0].register_hook(lambda grad: grad * 0.5)

    def _step_in_backward(self) -> None:
        for parameter in self.parameters:
            optimiser = torch.optim.AdamW([parameter], lr=LR)

            def step(_: Tensor, optimiser: torch.optim.Optimizer = optimiser) -> None:
                optimiser.step()
                optimiser.zero_grad()

            parameter.register_post_accumulate_grad_hook(step)

    def _move(self) -> None:
        for parameter in self.parameters:
            parameter.main_grad = torch.zeros_like(parameter)

            def move(*_: Any, parameter: Any = parameter) -> None:
                if parameter.grad is not None:
                    parameter.main_grad.add_(parameter.grad)
                parameter.grad = None

            if self.case.feature == "main_grad":
                parameter.register_post_accumulate_grad_hook(move)
            else:
                node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
                node.register_hook(move)
                self.nodes.append(node)

    def reduce(self) -> None:
        """What a loop without a wrapper does by hand."""
        if self.case.wrapper != "alone" or self.case.feature in ("wrapped later", "sharded later"):
            return
        for parameter in self.parameters:
            grad = getattr(parameter, "main_grad", parameter.grad)
            dist.all_reduce(grad)
            grad /= dist.get_world_size()

    def step(self) -> None:
        for parameter in self.parameters:
            if hasattr(parameter, "main_grad"):
                parameter.grad = parameter.main_grad.clone()
                parameter.main_grad.zero_()
        for optimiser in self.optimisers:
            optimiser.step()
            optimiser.zero_grad()


def parts_of(case: Case, step: int) -> list[list[Part]]:
    """Calls of each rank: `parts_of(...)[rank][call]`. Ranks are uneven, and some have no sequence of a language."""
    x, y, lang = batch((3, 4, 0, 3) if step % 2 else (2, 3, 2, 3), seed=10 + step)
    order = torch.argsort(lang, stable=True)
    shares = [order[:4], order[4:]]
    if case.feature == "some experts":  # every rank reaches the first three of them, not every language does
        x[:, 0] = torch.arange(len(x))[torch.argsort(order)] % 3
    result = []
    for rank, share in enumerate(shares):
        calls = (
            share.split(2 if rank == 0 else 3) if "accumulation" in case.feature or "late" in case.feature else [share]
        )
        odd = len(calls) - 1 if case.feature.startswith("ragged") and step == 1 and rank == 1 else None
        lengths = [5 if number == odd else x.shape[1] for number in range(len(calls))]
        result.append([(x[r, :n], y[r, :n], lang[r]) for r, n in zip(calls, lengths, strict=True)])
    return result


def truth_of(model: Small, parts: list[list[Part]], sides: dict[str, Any]) -> Tensor:
    """<h_j, g_i> on the whole batch by separate backward passes, both brought to the tracker's sides."""
    val, every = validation(), [part for calls in parts for part in calls]
    tokens = sum(int((y != -100).sum()) for _, y, _ in every)
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def losses(x: Tensor, y: Tensor) -> Tensor:
        model.load_state_dict(kept, strict=False)
        return loss_of(model)(x, y).sum()

    h = [sketched(gradient(model, losses(x, y) / (y != -100).sum()), model, sides) for x, y in val.values()]
    rows = []
    for i in range(len(LANGUAGES)):
        each = [losses(x[lang == i], y[lang == i]) / tokens for x, y, lang in every if (lang == i).any()]
        g = gradient(model, torch.stack(each).sum()) if each else [torch.zeros_like(p) for p in model.parameters()]
        rows.append([dot(sketched(g, model, sides), h_j) for h_j in h])
    return torch.tensor(rows, dtype=torch.float64)


def train(case: Case, tracked: bool) -> tuple[dict[str, Tensor], float, list[str]]:
    """Weights and buffers at the end; the largest error of phi; the engines of the evaluated steps."""
    inner = make(case.feature)
    model = wrap(inner, case)
    options = Options(val_sequences=3, measure_sequences=2, side=2)
    engine: Any = case.engine

    def tracker_of(of: Any) -> IRDS:
        return IRDS(of, LANGUAGES, val=validation(), every=2, engine=engine, options=options)

    tracker = tracker_of(model) if tracked else None
    if case.feature == "wrapped later":
        model = nn.parallel.DistributedDataParallel(model)
    if case.feature == "sharded later":
        model = fully_shard(model)
    steps, loss_fn, reference = Steps(model, case), loss_of(model), make(case.feature)
    error, engines = 0.0, []
    for step in range(STEPS):
        parts = parts_of(case, step)
        calls = parts[dist.get_rank()]
        tokens = sum(int((y != -100).sum()) for each in parts for _, y, _ in each)
        if case.feature == "own tokens":
            tokens = sum(int((y != -100).sum()) for _, y, _ in calls)
        before = torch.as_tensor(tracker.ledger.phi).clone() if tracker else None
        evaluated = tracker is not None and tracker.evaluates(step)
        for buffer in () if case.wrapper == "ddp" else model.buffers():
            dist.broadcast(buffer, 0)  # DDP does so at its next pass
        if evaluated:
            reference.load_state_dict(state(model))
            for buffer in reference.buffers():
                dist.broadcast(buffer, 0)
        for number, (x, y, lang) in enumerate(calls):
            with syncing(model, case, last=number == len(calls) - 1):
                if tracker is None:
                    (loss_fn(x, y).sum() * dist.get_world_size() / tokens).backward()
                else:
                    tracker.backward(loss_fn, x, y, lang, step=step, tokens=tokens)
        steps.reduce()
        if tracker is not None:
            tracker.commit(lr=LR)
            if evaluated:
                sides = tracker.engine.projections
                for taken in (side.columns for side in sides.values()), (side.rows for side in sides.values()):
                    assert any(taken) == (engine == "sketch")
                expected = 2 * LR * truth_of(reference, parts, sides)
                error = max(error, relative(torch.as_tensor(tracker.ledger.phi) - before, expected))
                engines.append(tracker.engine.fallback)
        steps.step()
    return state(model), error, engines


@cache
def untracked(wrapper: str, feature: str) -> dict[str, Tensor]:
    """Weights and buffers at the end without a tracker: one truth for all engines."""
    return train(Case(wrapper, "", feature), tracked=False)[0]


def outcome(case: Case) -> dict[str, Any]:
    """What became of a case on this rank."""
    sketches.NUMBERS = FEW
    try:
        weights, phi, engines = train(case, tracked=True)
    except ValueError as error:  # ours
        return {"refused": str(error), "error": type(error).__name__}
    expected = untracked(case.wrapper, case.feature)
    worst = [name for name in expected if not torch.equal(weights[name], expected[name])]
    return {"worst": worst, "phi": phi, "engines": engines}


def cases() -> list[Case]:
    """The matrix."""
    common = ["plain", "accumulation", "tied", "tied accumulation", "experts", "ragged", "ragged accumulation"]
    later = ["wrapped later", "sharded later"]
    parallel = ["tensor parallel", "tensor parallel sharded", "half a mesh"]
    moved = ["main_grad", "main_grad node", "main_grad accumulation"]
    features = {
        "ddp": [*common, "experts accumulation", "tensor hook", "buffers", "static graph", "own tokens"],
        "fsdp": [*common, "some experts", "tensor hook", "buffers", "optimiser in backward", "divide factor"],
        "hsdp 2x1": [*common, "tensor hook", "buffers", "optimiser in backward", "late all-reduce"],
        "hsdp 1x2": ["plain", "accumulation", "tied accumulation"],
        "alone": ["plain", "accumulation", "tied", *moved, *later, *parallel],
    }
    every = [Case(w, "exact", f) for w, names in features.items() for f in names]
    apart = ("static graph", "divide factor", "own tokens", "tensor hook")  # no engine meets them
    met = {
        f: [w for w in features if f in features[w] and (w != "alone" or "main_grad" in f)]
        for c in every
        for f in [c.feature]
    }
    sketched = [Case(ws[n % len(ws)], "sketch", f) for n, (f, ws) in enumerate(met.items()) if ws and f not in apart]
    return [*every, *sketched]  # sketches meet every feature, and every wrapper, but not each in each


if __name__ == "__main__":
    on_this_rank(OUTCOMES | {case.name: partial(outcome, case) for case in cases()} | FOLLOWED)
