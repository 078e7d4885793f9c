"""Runs of Lightning's trainer, with the tracker and without, and what the naive reference makes of them.

As a script it is one of two ranks: `torchrun ... lightning_runs.py FOLDER`.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from irds_models import LANGUAGES, Decoder, batch, dot, gradient, mean_losses, sequence_losses, validation  # noqa: E402
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.plugins.precision import MixedPrecision  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy  # noqa: E402
from shapleymix_irds import Options  # noqa: E402
from shapleymix_irds.lightning import IRDSCallback  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
LR, BATCHES, TOLERANCE = 0.02, 7, 1e-8
OPTIONS = Options(val_sequences=3, measure_sequences=2)
Batch = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One way to train."""

    name: str
    wrapper: str = "alone"
    calls: int = 1
    clip: float | None = None
    precision: Any = "32-true"
    manual: bool = False
    order: Any = 1
    batches: int = BATCHES
    rate: float = LR
    plugins: list[Any] = field(default_factory=list)


class Net(LightningModule):
    """A decoder that knows nothing of languages."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = Decoder(width=8, layers=1).to(torch.float64 if case.precision == "32-true" else torch.float32)
        self.case, self.automatic_optimization = case, not case.manual

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def configure_model(self) -> None:
        if self.case.wrapper == "fsdp" and not isinstance(next(self.parameters()), DTensor):
            mesh = self.device_mesh["data_parallel"]  # type: ignore[index]
            for module in (*self.inner.blocks, self):
                fully_shard(module, mesh=mesh)

    def training_step(self, batch: Batch, number: int) -> Tensor | None:
        x, y = batch["x"], batch["y"]
        loss = sequence_losses(self(x), y).sum() / (y != -100).sum()
        if self.case.manual:
            optimizer: Any = self.optimizers()
            self.manual_backward(loss)
            if self.case.clip:
                self.clip_gradients(optimizer, self.case.clip, "norm")
            optimizer.step()
            optimizer.zero_grad()
            return None
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), LR)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def loader(batches: list[Batch]) -> DataLoader[Any]:
    """Lightning takes a bare list for several loaders."""
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def batches_of(case: Case, rank: int) -> list[Batch]:
    """A rank's batches; ranks and batches differ in their languages and in how many labels they have."""
    made = []
    for number in range(case.batches):
        x, y, lang = batch(((2, 1, 1, 1), (0, 3, 1, 1), (1, 1, 0, 3))[number % 3], seed=20 + 2 * number + rank)
        names = [LANGUAGES[k] for k in lang.tolist()]
        made.append({"x": x, "y": y, "lang": names if number % 2 else lang})
    return made


class Before(Callback):
    """The weights before each batch."""

    def __init__(self) -> None:
        self.states: list[dict[str, Tensor]] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.states.append(weights(pl_module))


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Whole weights by name."""
    state = module.state_dict()
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() for k, v in state.items()}


def validation_loss(module: LightningModule, x: Any, y: Tensor) -> Tensor:
    return sequence_losses(module(x), y)


def callback_of(case: Case, **settings: Any) -> IRDSCallback:
    options: dict[str, Any] = {
        "val": validation(),
        "every": 1,
        "engine": "exact",
        "options": OPTIONS,
        "order": case.order,
        "loss_fn": validation_loss,
    }
    return IRDSCallback(list(LANGUAGES), **(options | settings))


def trainer_of(case: Case, callbacks: list[Callback], **settings: Any) -> Trainer:
    strategies = {
        "alone": lambda: "auto",
        "ddp": DDPStrategy,
        "fsdp": lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
    }
    plugins = [plugin() for plugin in case.plugins]
    return Trainer(
        accelerator="cpu",
        devices=1 if case.wrapper == "alone" else 2,
        strategy=strategies[case.wrapper](),
        precision=None if plugins else case.precision,
        plugins=plugins or None,
        callbacks=callbacks,
        accumulate_grad_batches=case.calls,
        gradient_clip_val=None if case.manual else case.clip,
        **{
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "use_distributed_sampler": False,
            **settings,
        },
    )


def fit(case: Case, callbacks: list[Callback], rank: int = 0, **settings: Any) -> Net:
    """Train; the module as it is then."""
    net = Net(case)
    path = settings.pop("ckpt_path", None)
    trainer_of(case, callbacks, **settings).fit(net, loader(batches_of(case, rank)), ckpt_path=path)
    return net


def naive(case: Case, states: list[dict[str, Tensor]], ranks: int) -> Tensor:
    """phi of the whole run by a backward pass for each language."""
    net, val, phi = Net(case), validation(), torch.zeros(4, 4, dtype=torch.float64)
    data = [batches_of(case, rank) for rank in range(ranks)]
    for step, first in enumerate(range(0, case.batches, case.calls)):
        net.load_state_dict(states[first])
        parts: list[list[Tensor]] = [[torch.zeros_like(p) for p in net.parameters()] for _ in LANGUAGES]
        for each in [one for own in data for one in own[first : first + case.calls]]:
            x, y, lang = each["x"], each["y"], each["lang"]
            index = torch.as_tensor([LANGUAGES.index(n) for n in lang]) if isinstance(lang, list) else lang
            for k in torch.unique(index).tolist():
                loss = sequence_losses(net(x[index == k]), y[index == k]).sum() / (y != -100).sum()
                for sums, grad in zip(parts[k], gradient(net, loss / (case.calls * ranks)), strict=True):
                    sums += grad
        norm = torch.cat([sum(g).flatten() for g in zip(*parts, strict=True)]).norm()
        clip = 1.0 if case.clip is None else min(1.0, case.clip / (float(norm) + 1e-6))
        h = [gradient(net, loss) for loss in mean_losses(net, lambda x, y: sequence_losses(net(x), y), val)]
        rate = LR * clip / (1 if case.manual else 1 + step)  # which manual optimisation would have to lower itself
        phi += rate * torch.tensor([[dot(g, each) for each in h] for g in parts], dtype=torch.float64)
    return phi


def compare(case: Case, rank: int = 0, ranks: int = 1) -> dict[str, Any]:
    """Weights that differ from those of an untracked run, and the error of phi."""
    before = Before()
    expected = weights(fit(case, [before], rank))
    irds = callback_of(case)
    found = weights(fit(case, [irds], rank))
    worst = [name for name in expected if not torch.equal(found[name], expected[name])]
    assert irds.tracker is not None
    phi = torch.as_tensor(irds.tracker.ledger.phi)
    truth = naive(case, before.states, ranks)
    error = float((phi - truth).abs().max() / truth.abs().max())
    return {"worst": worst, "evaluations": irds.tracker.ledger.count, "phi": error}


def sixteen(scale: float) -> MixedPrecision:
    """fp16, which Lightning's own flag does not take on a CPU."""
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3))


PLAIN = Case("plain")
ALONE = (
    PLAIN,
    Case("clipped", clip=0.1),
    Case("accumulated", calls=3),
    Case("accumulated and clipped", calls=2, clip=0.1),
    Case("manual", manual=True),
    Case("manual and clipped", manual=True, clip=0.1),
)
TOGETHER = tuple(
    replace(case, name=f"{wrapper} {case.name}", wrapper=wrapper, batches=5)
    for wrapper, cases in (("ddp", (ALONE[0], ALONE[3], ALONE[5])), ("fsdp", (ALONE[0], ALONE[3])))
    for case in cases
)


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    dist.init_process_group("gloo")
    for case in TOGETHER:
        try:
            found[case.name] = compare(case, dist.get_rank(), 2)
        except Exception:
            found[case.name] = {"crashed": traceback.format_exc()[-3000:]}
        Path(sys.argv[1], f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
