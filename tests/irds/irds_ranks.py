"""What two ranks do where one of them is at fault, or has calls that are not covered: `matrix_ranks.py` runs it."""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from irds_models import LANGUAGES, Decoder, batch, gradient, loss_of, make_model, naive_gram, relative, validation
from matrix_models import full
from shapleymix_irds import IRDS, Options
from shapleymix_irds.errors import CoverageError
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

COUNTS = (3, 4, 0, 5)
SHARES = ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9, 10, 11])  # uneven ranks


def rows_of(lang: torch.Tensor) -> list[list[int]]:
    """Rank 0 gets all of language 0 and no language 3; so groups are uneven, and empty on one rank only."""
    order = torch.argsort(lang, stable=True).tolist()
    return [[order[k] for k in share] for share in SHARES]


def wrap(model: Any, mode: str) -> Any:
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def mixed() -> float:
    """The error of phi where blocks are sharded, recomputed and in bf16, by the naive reference on all sequences."""
    reference, model, (x, y, lang) = make_model(), make_model(checkpointed=True), batch(COUNTS)
    truth = naive_gram(reference, loss_of(reference), x, y, lang, validation())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.blocks, model):
        fully_shard(part, mp_policy=policy)
    options, mine = Options(val_sequences=3, measure_sequences=2), rows_of(lang)[dist.get_rank()]
    tracker = IRDS(model, LANGUAGES, val=validation(), every=1, engine="exact", options=options)
    tracker.backward(loss_of(model), x[mine], y[mine], lang[mine], step=0)
    tracker.commit(lr=1.0)
    return relative(tracker.ledger.phi, truth)


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


def outcome(mode: str) -> dict[str, Any]:
    return {task.__name__: task(mode) for task in (faults, one_sided)}


OUTCOMES = {mode: partial(outcome, mode) for mode in ("ddp", "fsdp")} | {"mixed": mixed}
