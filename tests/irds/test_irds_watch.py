"""`watch`: any forward and backward pass, looked at and not changed; packed sequences, dictionaries, scaled losses."""

from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from irds_models import (  # noqa: E402
    LANGUAGES,
    VOCAB,
    WIDTH,
    Decoder,
    batch,
    compared,
    dot,
    gradient,
    loss_of,
    make_model,
    mean_losses,
    naive_gram,
    relative,
    sequence_losses,
)
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError, TrackerError  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

OPTIONS = Options(val_sequences=3, measure_sequences=1)


def tracker_of(model: Any, loss_fn: Any, val: Any, **options: Any) -> IRDS:
    settings = {"every": 1, "engine": "exact", "options": OPTIONS, "loss_fn": loss_fn}
    return IRDS(model, LANGUAGES, val=val, **(settings | options))


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("form", ["backward", "autograd", "retained", "in two", "two calls"])
def test_any_backward_pass_is_seen(form: str, scale: float, val: Any) -> None:
    """With `tokens=` the second call of a step was refused, and the run had the tokens of whole sequences."""
    model = make_model().double()
    loss_fn = loss_of(model)
    x, y, lang = batch((1, 4, 0, 3))
    total = int((y != -100).sum())
    truth = naive_gram(model, loss_fn, x, y, lang, val)
    expected = gradient(model, loss_fn(x, y).sum() / total)
    tracker = tracker_of(model, loss_fn, val)
    for part in (slice(None, 3), slice(3, None)) if form == "two calls" else (slice(None),):
        with tracker.watch(lang[part], step=0, tokens=total):
            losses = loss_fn(x[part], y[part]) * scale
            if form == "autograd":
                torch.autograd.backward(losses.sum() / total)
            elif form == "in two":
                (losses[:3].sum() / total).backward(retain_graph=True)
                (losses[3:].sum() / total).backward()
            else:
                (losses.sum() / total).backward(retain_graph=form == "retained")
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        assert relative(parameter.grad, scale * grad) < 1e-12
    tracker.commit(lr=0.3, grad_scale=scale)
    assert relative(tracker.ledger.phi, 0.3 * truth) < 1e-10
    assert tracker.tokens == total


def naive_by_token(model: Any, x: Tensor, y: Tensor, lang: Tensor, val: Any) -> Tensor:
    """<h_j, g_i> where each token of x (B, S) has a language."""
    flat = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none", ignore_index=-100).view(y.shape)
    total = float((y != -100).sum())
    parts = [(flat * (lang == i)).sum() / total for i in range(4)]
    params = [p for p in model.parameters() if p.requires_grad]
    g = [torch.autograd.grad(part, params, retain_graph=True, allow_unused=True) for part in parts]
    g = [[torch.zeros_like(p) if v is None else v for v, p in zip(each, params, strict=True)] for each in g]
    h = [gradient(model, loss) for loss in mean_losses(model, loss_of(model), val)]
    return torch.tensor([[dot(gi, hj) for hj in h] for gi in g], dtype=torch.float64)


class Flat(nn.Module):
    """A model without attention, so that tokens of packed documents are apart; `flat` has tokens in one row."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm = nn.Embedding(VOCAB, WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.head = nn.Linear(WIDTH, 16), nn.Linear(16, VOCAB)
        self.scale, self.heads, self.flat = nn.Parameter(torch.rand(16)), nn.RMSNorm(4), flat

    def forward(self, ids: Tensor) -> Tensor:
        h = self.up(self.norm(self.embed(ids.flatten() if self.flat else ids)))
        h = self.heads(h.unflatten(-1, (4, 4))).flatten(-2) * self.scale
        return self.head(torch.tanh(h)).view(*ids.shape, VOCAB)


@pytest.mark.parametrize("shape", [(1, 56), (4, 14), (8, 7)])
@pytest.mark.parametrize("flat", [False, True])
def test_a_language_for_each_token_of_packed_sequences(flat: bool, shape: tuple[int, int], val: Any) -> None:
    model = Flat(flat).double()
    x, y, _ = batch((8, 0, 0, 0))
    lang = torch.randint(0, 4, (7,), generator=torch.Generator().manual_seed(3)).repeat_interleave(8)
    x, y, lang = x.reshape(shape), y.reshape(shape), lang.view(shape)
    truth = naive_by_token(model, x, y, lang, val)
    tracker = tracker_of(model, loss_of(model), val)
    tracker.backward(loss_of(model), x, y, lang, step=0)
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < 1e-10
    assert tracker.ledger.count == 1


def test_inputs_may_be_dictionaries_of_ragged_lengths(val: Any) -> None:
    model = make_model().double()
    plain = loss_of(model)

    def loss_fn(inputs: Any, y: Tensor) -> Tensor:
        return sequence_losses(model(inputs["ids"]), y)

    named = {name: ({"ids": x[:, : 3 + k], "mask": x[:, : 3 + k] >= 0}, y[:, : 3 + k]) for k, (name, (x, y)) in
             enumerate(val.items())}  # fmt: skip
    short = {name: (pair["ids"], y) for name, (pair, y) in named.items()}
    x, y, lang = batch((1, 4, 0, 3))
    tracker = tracker_of(model, loss_fn, named)
    tracker.backward(loss_fn, {"ids": x, "mask": x >= 0}, y, lang, step=0)
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, naive_gram(model, plain, x, y, lang, short)) < 1e-10


def test_without_a_backward_pass_or_validation_watch_says_so(val: Any) -> None:
    model = make_model()
    x, y, lang = batch((1, 1, 1, 1))
    tracker = tracker_of(model, loss_of(model), val)
    with pytest.raises(TrackerError, match="step 0: no backward pass was seen"), tracker.watch(lang, step=0):
        loss_of(model)(x, y)
    tracker = tracker_of(model, None, val)
    with pytest.raises(TrackerError, match="`watch` has no loss for validation"), tracker.watch(lang, step=0):
        loss_of(model)(x, y).sum().backward()
    tracker = tracker_of(model, loss_of(model), None)
    with pytest.raises(TrackerError, match="`watch` needs validation"), tracker.watch(lang, step=0):
        loss_of(model)(x, y).sum().backward()


class Inner(Flat):
    """A layer below the last one is not covered, and is computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__(False)
        self.odd = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        def mixed(h: Tensor) -> Tensor:
            return self.up(self.norm(h + torch.einsum("bsd,ed->bse", h, self.odd)))

        return self.head(torch.tanh(checkpoint(mixed, self.embed(ids), use_reentrant=False)))


@pytest.mark.filterwarnings("ignore:a pass a language for odd")
@pytest.mark.parametrize("frozen", ["", "head"])
@pytest.mark.parametrize("form", ["once", "by token", "weighed", "in two"])
def test_what_is_not_covered_takes_passes_from_the_last_layer(form: str, frozen: str, val: Any) -> None:
    """Whatever the loss is made of, and whether the last layer is trained."""
    model = Inner().double()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (frozen and name.startswith(frozen)) and not name.startswith(("scale", "heads")))
    x, y, lang = batch((1, 4, 0, 3))
    by_token = lang[:, None].expand(y.shape)
    truth, total = naive_by_token(model, x, y, by_token, val), int((y != -100).sum())
    expected = gradient(model, loss_of(model)(x, y).sum() / total)
    tracker = tracker_of(model, loss_of(model), val)
    with tracker.watch(by_token if form == "by token" else lang, step=0, tokens=total):
        losses = loss_of(model)(x, y) / total
        if form == "in two":
            losses[:3].sum().backward(retain_graph=True)
            losses[3:].sum().backward()
        elif form == "weighed":
            (losses / 2).backward(2 * torch.ones_like(losses))
        else:
            losses.sum().backward()
    tracker.commit(lr=1.0)
    assert relative(tracker.ledger.phi, truth) < 1e-10
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(relative(parameter.grad, grad) < 1e-12 for parameter, grad in zip(trained, expected, strict=True))
    model.zero_grad()
    with pytest.raises(CoverageError, match="not covered: odd"), tracker.watch(lang, step=1):
        (loss_of(model)(x, y).sum() + model.odd.square().sum()).backward()
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("change", ["", "returned", "in place"])
@pytest.mark.parametrize("name", ["odd", "head.weight"])
def test_hooks_may_read_gradients_not_change_them(name: str, change: str, val: Any) -> None:
    """As monitors do, which see each gradient once; also where the parameter takes passes of its own."""
    model, (x, y, lang), seen = Inner().double(), batch((1, 4, 0, 3)), []
    parameter = model.get_parameter(name)

    def hook(grad: Tensor) -> Tensor | None:
        seen.append(grad.detach().clone())
        grad.data.mul_(0.5 if change == "in place" else 1.0)
        return grad * 0.5 if change == "returned" else None

    parameter.register_hook(hook)
    refused = pytest.raises(CoverageError, match=f"'{name}' has a hook that changes") if change else nullcontext()
    with refused, tracker_of(model, loss_of(model), val).watch(lang, step=0):
        loss_of(model)(x, y).mean().backward()
    assert change or (len(seen) == 1 and torch.equal(seen[0], parameter.grad))
    assert [*parameter._backward_hooks.values()] == [hook]


class Waits(TorchFunctionMode):
    """Notes what would wait for a device, on which everything is computed later than it is asked for."""

    NAMES = ("cpu", "item", "tolist", "numpy", "nonzero", "unique", "__bool__", "__int__", "__float__", "__index__")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, values = getattr(func, "__name__", ""), (*args[1:], *(kwargs or {}).values())
        masked = name == "__getitem__" and isinstance(args[1], Tensor) and args[1].dtype == torch.bool
        moved = name == "to" and any(isinstance(each, str) and each == "cpu" for each in values)
        self.found += [name] * (masked or moved or name in self.NAMES)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("form", ["backward", "tokens", "watch", "followed"])
def test_a_call_that_is_not_evaluated_waits_for_nothing(form: str, val: Any) -> None:
    model, (x, y, lang) = make_model(), batch((1, 4, 0, 3))
    loss_fn, total = loss_of(model), (y != -100).sum()
    tracker, optimizer = tracker_of(model, loss_fn, val, every=9), torch.optim.SGD(model.parameters(), lr=0.1)
    if form == "followed":
        tracker.follow(optimizer)
    found: dict[bool, list[str]] = {}
    for step in range(18):
        with Waits() as waits:
            for _ in range(2 if form == "tokens" else 1):
                if form in ("backward", "followed"):
                    tracker.backward(loss_fn, x, y, lang, step=step)
                else:
                    with tracker.watch(lang, step=step, tokens=total if form == "tokens" else None):
                        loss_fn(x, y).sum().backward()
            if form == "followed":
                optimizer.step()
            else:
                tracker.commit(lr=0.1, grad_norm=torch.ones(()), max_norm=1.0)
            optimizer.zero_grad()
        found.setdefault(step == 0 or tracker.evaluates(step), []).extend(waits.found)
    assert found[True] != []
    assert (found[False], tracker.tokens) == ([], 18 * (total if form != "watch" else 8 * 7))


def test_outputs_may_be_changed_in_place(val: Any) -> None:
    class InPlace(Decoder):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.embed(ids)
            x += 1
            h = self.blocks[0].out(x)
            h.mul_(2)
            return self.head(self.norm(x + F.relu(h, inplace=True)))

    torch.manual_seed(0)
    assert max(compared(tracker_of(InPlace().double(), None, val), *batch((1, 4, 0, 3)))) < 1e-10


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_evaluated_steps_train_as_plain_ones_bit_for_bit(dropout: float, val: Any) -> None:
    """Random numbers and buffers are those of an untracked run, too."""

    class Noisy(Decoder):
        load: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("load", torch.zeros(VOCAB))

        def forward(self, ids: Tensor) -> Tensor:
            self.load += torch.arange(VOCAB)
            return self.head(F.dropout(self.norm(self.embed(ids) + self.load[ids][..., None] / 100), dropout))

    weights = []
    for every in (1, 2, None):
        torch.manual_seed(0)
        model = Noisy()
        optimizer, loss_fn = torch.optim.AdamW(model.parameters(), lr=1e-2), loss_of(model)
        tracker = tracker_of(model, loss_fn, val, every=every, engine="sketch") if every else None
        torch.manual_seed(1)
        for step in range(6):
            x, y, lang = batch((2, 1, 1, 2), seed=step)
            if tracker:
                tracker.backward(loss_fn, x, y, lang, step=step)
                tracker.commit(lr=1e-2)
            else:
                (loss_fn(x, y).sum() * (1 / float((y != -100).sum()))).backward()
            optimizer.step()
            optimizer.zero_grad()
        weights.append(model.state_dict())
    for tracked in weights[:2]:
        assert all(torch.equal(tracked[name], weights[2][name]) for name in weights[2])


class Dropping(Decoder):
    """Half of what goes into the last layer is dropped while it trains."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(F.dropout(self.norm(self.embed(ids)), 0.5, self.training))


def test_validation_gradients_have_no_dropout(val: Any) -> None:
    torch.manual_seed(0)
    model, (x, y, lang) = Dropping().double(), batch((3, 2, 4, 1))
    loss_fn = loss_of(model)
    tracker = tracker_of(model, loss_fn, val)
    tracker.backward(loss_fn, x, y, lang, step=0)
    whole = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    tracker.commit(lr=1.0)
    model.eval()
    losses = mean_losses(model, loss_fn, val)
    columns = torch.tensor([dot(whole, gradient(model, loss)) for loss in losses], dtype=torch.float64)
    assert relative(tracker.ledger.phi.sum(0), columns) < 1e-10
