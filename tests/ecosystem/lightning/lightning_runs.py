"""Lightning's trainer with the tracker and without, and the naive reference: `torchrun ... THIS FOLDER`."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from irds_models import LANGUAGES, Decoder, batch, dot, gradient, mean_losses, sequence_losses, validation  # noqa: E402
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy  # noqa: E402
from shapleymix_irds import Options  # noqa: E402
from shapleymix_irds.lightning import IRDSCallback  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
LR, BATCHES, CLIP = 0.02, 5, 0.1
QUIET: dict[str, Any] = {
    "max_epochs": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
}
Batch = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One way to train: alone, wrapped on two ranks, with several calls a step."""

    name: str
    wrapper: str = "alone"
    calls: int = 1
    clip: float | None = None


PLAIN = Case("plain")
CLIPPED = Case("accumulated and clipped", calls=2, clip=CLIP)
ALONE = (PLAIN, CLIPPED)
TOGETHER = (Case("ddp", "ddp", 2, CLIP), Case("fsdp", "fsdp", 2, CLIP))


class Net(LightningModule):
    """A decoder that knows nothing of languages."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.case = Decoder(width=8, layers=1).to(torch.float64), case

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def configure_model(self) -> None:
        if self.case.wrapper == "fsdp" and not isinstance(next(self.parameters()), DTensor):
            mesh = self.device_mesh["data_parallel"]  # type: ignore[index]
            for module in (*self.inner.blocks, self):
                fully_shard(module, mesh=mesh)

    def training_step(self, batch: Batch, number: int) -> Tensor:
        x, y = batch["x"], batch["y"]
        return sequence_losses(self(x), y).sum() / (y != -100).sum()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), LR)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def loader(batches: list[Batch]) -> DataLoader[Any]:
    """Lightning takes a bare list for several loaders."""
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def batches_of(rank: int) -> list[Batch]:
    """A rank's batches; ranks and batches differ in their languages and in how many labels they have."""
    made = []
    for number in range(BATCHES):
        x, y, lang = batch(((2, 1, 1, 1), (0, 3, 1, 1), (1, 1, 0, 3))[number % 3], seed=20 + 2 * number + rank)
        made.append({"x": x, "y": y, "lang": lang})
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


def callback_of(**settings: Any) -> IRDSCallback:
    options: dict[str, Any] = {"val": validation(), "every": 1, "engine": "exact"}
    options |= {"options": Options(val_sequences=3, measure_sequences=2)}
    options |= {"loss_fn": lambda module, x, y: sequence_losses(module(x), y)}
    return IRDSCallback(list(LANGUAGES), **(options | settings))


def trainer_of(case: Case, callbacks: list[Callback], **settings: Any) -> Trainer:
    strategies = {
        "alone": lambda: "auto",
        "ddp": DDPStrategy,
        "fsdp": lambda: ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
    }
    return Trainer(
        accelerator="cpu",
        devices=1 if case.wrapper == "alone" else 2,
        strategy=strategies[case.wrapper](),
        callbacks=callbacks,
        accumulate_grad_batches=case.calls,
        gradient_clip_val=case.clip,
        **(QUIET | settings),
    )


def fit(case: Case, callbacks: list[Callback], rank: int = 0, ckpt_path: str | None = None, **settings: Any) -> Net:
    """Train; the module as it is then."""
    net = Net(case)
    trainer_of(case, callbacks, **settings).fit(net, loader(batches_of(rank)), ckpt_path=ckpt_path)
    return net


def naive(case: Case, states: list[dict[str, Tensor]], ranks: int) -> Tensor:
    """phi of the whole run by a backward pass for each language."""
    net, val, phi = Net(case), validation(), torch.zeros(4, 4, dtype=torch.float64)
    data = [batches_of(rank) for rank in range(ranks)]
    for step, first in enumerate(range(0, BATCHES, case.calls)):
        net.load_state_dict(states[first])
        parts: list[list[Tensor]] = [[torch.zeros_like(p) for p in net.parameters()] for _ in LANGUAGES]
        for each in [one for own in data for one in own[first : first + case.calls]]:
            x, y, index = each["x"], each["y"], each["lang"]
            for k in torch.unique(index).tolist():
                loss = sequence_losses(net(x[index == k]), y[index == k]).sum() / (y != -100).sum()
                for sums, grad in zip(parts[k], gradient(net, loss / (case.calls * ranks)), strict=True):
                    sums += grad
        norm = torch.cat([sum(g).flatten() for g in zip(*parts, strict=True)]).norm()
        clip = 1.0 if case.clip is None else min(1.0, case.clip / (float(norm) + 1e-6))
        h = [gradient(net, loss) for loss in mean_losses(net, lambda x, y: sequence_losses(net(x), y), val)]
        phi += LR * clip / (1 + step) * torch.tensor([[dot(g, one) for one in h] for g in parts], dtype=torch.float64)
    return phi


def outcome(case: Case, rank: int, ranks: int) -> dict[str, Any]:
    """Weights that differ from those of an untracked run, phi, and what it should be."""
    before, irds = Before(), callback_of()
    expected = weights(fit(case, [before], rank))
    found = weights(fit(case, [irds], rank))
    worst = [name for name in expected if not torch.equal(found[name], expected[name])]
    truth = naive(case, before.states, ranks).tolist()
    return {"worst": worst, "phi": irds.tracker.ledger.phi.tolist(), "truth": truth}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    cases = ALONE if ranks == 1 else TOGETHER
    found = {case.name: outcome(case, rank, ranks) for case in cases}
    Path(sys.argv[1], f"rank{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
