"""What two ranks do in the distributed tests: `torchrun ... irds_ranks.py FOLDER`.

Each rank compares gradients and products with the naive reference on the whole batch, and writes what it found.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "adapters"), str(Path(__file__).parent)]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from irds_models import (  # noqa: E402
    LANGUAGES,
    Decoder,
    batch,
    gradient,
    loss_of,
    make_model,
    naive_gram,
    relative,
    validation,
)
from matrix_models import full, on_this_rank  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

COUNTS = (3, 4, 0, 5)
SHARES = ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11])  # uneven ranks


def rows_of(lang: torch.Tensor) -> list[list[int]]:
    """Rank 0 gets all of language 0 and no language 3; so groups are uneven, and empty on one rank only."""
    order = torch.argsort(lang, stable=True).tolist()
    return [[order[k] for k in share] for share in SHARES]


def wrap(model: Any, mode: str) -> Any:
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    policy = (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if mode == "fsdp-bf16"
        else MixedPrecisionPolicy()
    )
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


def exact(mode: str) -> dict[str, float]:
    """Two accumulated micro-batches, clipped, against the naive reference on everything."""
    dtype = torch.float32 if mode == "fsdp-bf16" else torch.float64
    reference = make_model().to(dtype)
    x, y, lang = batch(COUNTS)
    val = validation()
    truth = naive_gram(reference, loss_of(reference), x, y, lang, val)
    total = int((y != -100).sum())
    expected = gradient(reference, loss_of(reference)(x, y).sum() / total)
    model = wrap(make_model(checkpointed=mode == "fsdp-ac").to(dtype), mode)
    loss_fn = loss_of(model)
    options = Options(val_sequences=3, measure_sequences=2)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="exact", options=options)
    mine = rows_of(lang)[dist.get_rank()]
    found = {"gradient": 0.0, "phi": 0.0}
    if mode == "ddp":
        with model.no_sync():
            tracker.backward(loss_fn, x[mine[:2]], y[mine[:2]], lang[mine[:2]], step=0, tokens=total)
        loss = tracker.backward(loss_fn, x[mine[2:]], y[mine[2:]], lang[mine[2:]], step=0, tokens=total)
        loss = None
    else:
        loss = tracker.backward(loss_fn, x[mine], y[mine], lang[mine], step=0)
    grads = [full(p.grad) for p in model.parameters()]
    found["gradient"] = max(relative(a, b) for a, b in zip(grads, expected, strict=True))
    limit = 0.5
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    tracker.commit(lr=0.3, grad_norm=norm, max_norm=limit)
    coefficient = min(1.0, limit / (float(full(norm)) + 1e-6))
    found["phi"] = relative(tracker.ledger.phi, 0.3 * coefficient * truth)
    if loss is not None:
        dist.all_reduce(loss)
        with torch.no_grad():
            found["loss"] = relative(loss, loss_of(reference)(x, y).sum() / total)
    return found


def faults(mode: str) -> dict[str, str]:
    """Every rank gets the error that names the rank at fault."""
    model = wrap(make_model(), mode)
    loss_fn = loss_of(model)
    rank = dist.get_rank()

    def broken(x: Any, y: Any) -> Any:
        losses = loss_fn(x, y)
        return losses * torch.tensor(float("nan")) if rank == 1 else losses

    x, y, lang = batch(COUNTS)
    mine = rows_of(lang)[rank]
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine="exact", options=Options(measure_sequences=1))
    tracker.measure(loss_fn)
    tracker.backward(broken, x[mine], y[mine], lang[mine], step=0)
    try:
        tracker.commit(lr=1.0)
    except ValueError as error:
        return {"nan": str(error)}
    return {"nan": ""}


class OneSided(Decoder):
    """The output layer is a call that is not covered where `odd`."""

    odd = False

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return torch.einsum("bsd,vd->bsv", x, self.head.weight) if self.odd else self.head(x)


def one_sided(mode: str) -> dict[str, Any]:
    """Calls of rank 1 alone are not covered, from the start or later: passes a language on both ranks, or refused."""
    found: dict[str, Any] = {}
    for late in (False, True):
        torch.manual_seed(0)
        reference = OneSided().double()
        x, y, lang = batch(COUNTS)
        truth = naive_gram(reference, loss_of(reference), x, y, lang, validation())
        expected = gradient(reference, loss_of(reference)(x, y).sum() / int((y != -100).sum()))
        torch.manual_seed(0)
        plain = OneSided().double()
        model = wrap(plain, mode)
        options = Options(val_sequences=3, measure_sequences=2)
        tracker = IRDS(model, LANGUAGES, val=validation(), every=1, options=options)
        mine = rows_of(lang)[dist.get_rank()]
        for step in range(2):
            plain.odd = dist.get_rank() == 1 and (step == 1 or not late)
            before = torch.as_tensor(tracker.ledger.phi).clone()
            model.zero_grad()
            name = f"{'late' if late else 'early'} {step}"
            try:
                tracker.backward(loss_of(model), x[mine], y[mine], lang[mine], step=step)
            except CoverageError as error:
                assert all(p.grad is None for p in model.parameters()), "nothing is differentiated"
                found[name] = error.message
                break
            grads = [full(p.grad) for p in model.parameters()]
            tracker.commit(lr=1.0)
            error = max(relative(a, b) for a, b in zip(grads, expected, strict=True))
            phi = relative(torch.as_tensor(tracker.ledger.phi) - before, truth)
            found[name] = [max(error, phi), tracker.engine.fallback]
    return found


EVERY = (exact, faults, one_sided)
TASKS = {"ddp": EVERY, "fsdp": EVERY, "fsdp-ac": (exact,), "fsdp-bf16": (exact,)}


if __name__ == "__main__":
    on_this_rank({mode: lambda mode=mode: {task.__name__: task(mode) for task in TASKS[mode]} for mode in TASKS})
