"""Trainers on two ranks: `torchrun ... hf_ranks.py FOLDER`; each case with and without the tracker."""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "irds")]

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402
from accelerate.utils import DistributedType  # noqa: E402
from irds_models import relative  # noqa: E402
from runs import Naive, Recording, arguments, prompted, told  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from trainers import collate, examples, llama  # noqa: E402
from transformers import Trainer  # noqa: E402
from trl_runs import PACKED, packed, sft, sft_arguments  # noqa: E402

from shapleymix.errors import ShapleyMixError  # noqa: E402

COUNT = 22
SHARDED = {"fsdp": True, "fsdp_config": {"transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}}


def prepared(make: Callable[..., Any], folder: Path, **options: Any) -> Any:
    """Arguments of a trainer, made where nothing is left of the last one's wrappers.

    accelerate shards on GPUs only, so that it is told of some.
    """
    gc.collect()
    AcceleratorState._reset_state()
    GradientState._reset_state()
    args = make(folder, gradient_accumulation_steps=2, **options)
    assert args.device.type == "cpu"
    if "fsdp" in options:
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return args


def train(folder: Path, tracked: bool, kind: Any = None, resume: str | None = None, **options: Any) -> Any:
    """One run, recorded where it is tracked."""
    rows, model = prompted(examples(COUNT)), llama()
    args = prepared(arguments, folder, **options)
    if not tracked:
        trainer: Any = Trainer(model, args, train_dataset=rows, data_collator=collate)
    else:
        trainer = Recording(model, args, train_dataset=rows, data_collator=collate, irds=told(every=1))
        if kind is not None:
            trainer.naive = kind(trainer)
            trainer.add_callback(trainer.naive)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def full(trainer: Any) -> list[torch.Tensor]:
    """Whole weights."""
    values = [parameter.detach() for parameter in trainer.model.parameters()]
    return [value.full_tensor() if isinstance(value, DTensor) else value.clone() for value in values]


def equal(a: Any, b: Any) -> float:
    """1 where the weights of two runs are the same, bit for bit."""
    return float(all(torch.equal(mine, other) for mine, other in zip(full(a), full(b), strict=True)))


def naive(folder: Path, own_means: bool = False, **options: Any) -> dict[str, float]:
    """Against the plain trainer, and the naive reference on the batches of all ranks."""
    found = train(folder / "a", True, lambda t: Naive(t.of_step, 0.5, own_means), **options)
    plain = train(folder / "b", False, **options)
    phi = found.tracker.ledger.phi
    return {"weights": equal(found, plain), "phi": relative(phi, found.naive.phi), "steps": found.tracker.ledger.count}


def sharded(folder: Path, **options: Any) -> dict[str, float]:
    """Against the plain trainer, and against DDP on the same batches."""
    found, plain = (train(folder / str(k), k == 0, **SHARDED, **options) for k in range(2))
    other = train(folder / "ddp", True)
    phi = found.tracker.ledger.phi
    shards = sum(isinstance(parameter, DTensor) for parameter in found.model.parameters())
    result = {"weights": equal(found, plain), "phi": relative(phi, other.tracker.ledger.phi), "shards": float(shards)}
    return result | {"steps": found.tracker.ledger.count}


def resumed(folder: Path, **options: Any) -> dict[str, float]:
    """A run that goes on from its first checkpoint."""
    options = {"save_strategy": "steps", "save_steps": 1} | options
    whole = train(folder, True, **options)
    again = train(folder, True, resume=str(folder / "checkpoint-1"), **options)
    phi = relative(again.tracker.ledger.phi, whole.tracker.ledger.phi)
    return {"weights": equal(whole, again), "phi": phi, "steps": again.tracker.ledger.count}


def trl(folder: Path, data: Any = None, **options: Any) -> dict[str, float]:
    """SFTTrainer, packed or not."""
    found = sft(prepared(sft_arguments, folder / "a", **options), True, data, lambda t: Naive(t.of_step, 0.5))
    plain = sft(prepared(sft_arguments, folder / "b", **options), False, data)
    phi = relative(found.tracker.ledger.phi, found.naive.phi)  # type: ignore[attr-defined]
    return {"weights": equal(found, plain), "phi": phi, "steps": found.tracker.ledger.count}  # type: ignore[attr-defined]


def trl_sharded(folder: Path) -> dict[str, float]:
    """SFTTrainer under FSDP2."""
    sft(prepared(sft_arguments, folder, **SHARDED), True)
    return {}


CASES: dict[str, Callable[[Path], dict[str, float]]] = {
    "ddp": naive,
    "ddp with means of ranks": lambda folder: naive(folder, own_means=True, average_tokens_across_devices=False),
    "ddp with checkpointing": lambda folder: naive(folder, gradient_checkpointing=True),
    "ddp resumed": resumed,
    "fsdp": sharded,
    "fsdp resumed": lambda folder: resumed(folder, **SHARDED),
    "trl": trl,
    "trl packed": lambda folder: trl(folder, packed(), **PACKED),
    "trl fsdp": trl_sharded,
}


def attempt(case: Callable[[Path], dict[str, float]], folder: Path) -> dict[str, Any]:
    """What a case finds, what refuses it, or how it crashes."""
    try:
        return case(folder)
    except ShapleyMixError as error:
        return {"refused": str(error)}
    except Exception:
        return {"crashed": traceback.format_exc()[-3000:]}


def main() -> None:
    """Every case, or those that are named."""
    torch.set_num_threads(1)
    out, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    names = sys.argv[2:] or list(CASES)
    found = {name: attempt(CASES[name], out / name.replace(" ", "-")) for name in names}
    (out / f"rank{rank}.json").write_text(json.dumps(found, default=float))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
