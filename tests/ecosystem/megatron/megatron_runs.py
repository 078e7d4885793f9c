"""Runs of megatron-core on CPUs, with the tracker and without: `torchrun ... megatron_runs.py FOLDER`.

Megatron asks for CUDA by name in a few places of pure Python; `OnCpu` answers them. Layers, schedules,
gradient buffers and optimisers are Megatron's own.
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "adapters"), str(ROOT / "tests" / "irds")]
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from irds_models import LANGUAGES, LENGTH, VOCAB, batch, dot, gradient, mean_losses, validation  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel.random import initialize_rng_tracker  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402
from shapleymix_irds import Options  # noqa: E402
from shapleymix_irds.megatron import MegatronIRDS  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

LR, STEPS, CALLS = 0.02, 4, 2
OPTIONS = Options(val_sequences=3, measure_sequences=2)
WIDE = VOCAB + 1  # which two ranks divide
Part = tuple[Tensor, Tensor, Tensor]
TYPES = {
    "torch.DoubleTensor": "torch.cuda.FloatTensor",
    "torch.FloatTensor": "torch.cuda.FloatTensor",
    "torch.BFloat16Tensor": "torch.cuda.BFloat16Tensor",
    "torch.HalfTensor": "torch.cuda.HalfTensor",
}


class OnCpu(TorchFunctionMode):
    """Stands in for CUDA; single precision stays double, so that sums can be compared closely."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if str(options.get("device", "")).startswith("cuda"):
            options["device"] = "cpu"
        if func is torch.Tensor.float and args[0].dtype == torch.float64 and args[0].numel() > 1:
            return args[0]
        found = func(*args, **options)
        return TYPES.get(found, found) if func is torch.Tensor.type and isinstance(found, str) else found


@dataclass(frozen=True)
class Case:
    """One way to train."""

    name: str
    llama: bool = False
    tied: bool = False
    scattered: bool = False
    by_token: bool = False
    clip: float = 1.0
    tensor: int = 1


# -- model, optimiser, data ----------------------------------------------------------------------------------------


def config_of(case: Case) -> TransformerConfig:
    llama = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "normalization": "RMSNorm"}
    return TransformerConfig(
        num_layers=2,
        hidden_size=8,
        num_attention_heads=2,
        use_cpu_initialization=True,
        params_dtype=torch.float64,
        pipeline_dtype=torch.float64,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        attention_softmax_in_fp32=False,
        gradient_accumulation_fusion=False,
        tensor_model_parallel_size=case.tensor,
        calculate_per_token_loss=case.by_token,
        add_bias_linear=not case.llama,
        **(llama if case.llama else {}),
    )


def bare(case: Case) -> GPTModel:
    """The model without wrappers."""
    torch.manual_seed(0)
    return GPTModel(
        config_of(case),
        get_gpt_layer_local_spec(normalization="RMSNorm" if case.llama else "LayerNorm"),
        vocab_size=WIDE,
        max_sequence_length=LENGTH,
        share_embeddings_and_output_weights=case.tied,
        position_embedding_type="rope" if case.llama else "learned_absolute",
    ).to(torch.float64)


def made(case: Case) -> tuple[DistributedDataParallel, Any]:
    """The model, wrapped, and its optimiser."""
    inner: nn.Module = bare(case)
    config: TransformerConfig = inner.config  # type: ignore[assignment]
    wrapping = DistributedDataParallelConfig(use_distributed_optimizer=case.scattered, bucket_size=400)
    model = DistributedDataParallel(config, wrapping, inner)
    settings = OptimizerConfig(
        optimizer="adam",
        lr=LR,
        clip_grad=case.clip,
        use_distributed_optimizer=case.scattered,
        params_dtype=torch.float64,
    )
    optimizer = get_megatron_optimizer(settings, [model])
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = model.no_sync
    return model, optimizer


def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The loss of each token, (B, S)."""
    length = x.shape[1]
    mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)
    places = torch.arange(length).expand(x.shape)
    return model(x, places, mask, labels=y.clamp(min=0)) * (y != -100)


def validation_loss(model: nn.Module) -> Callable[[Any, Tensor], Tensor]:
    return lambda x, y: losses(model, x, y).sum(1)


def parts_of(case: Case, step: int, rank: int) -> list[Part]:
    """A rank's micro-batches of a step."""
    found = []
    for call in range(CALLS):
        seed = 100 * step + 10 * call + rank
        x, y, lang = batch(((2, 1, 1, 1), (0, 3, 1, 1), (1, 1, 0, 3))[seed % 3], seed=seed)
        found.append((x, y, lang))
    return found


# -- training ------------------------------------------------------------------------------------------------------


def forward_step_of(case: Case, irds: MegatronIRDS | None) -> Callable[..., Any]:
    def loss_func(y: Tensor, output: Tensor) -> Any:
        total, count = output.sum(), (y != -100).sum()
        if case.by_token:
            return total, count.int(), {"loss": total.detach()}
        return total / count, {"loss": total.detach()}

    def forward_step(data_iterator: Iterator[Part], model: nn.Module) -> Any:
        x, y, lang = next(data_iterator)
        if irds is not None:
            irds.micro_batch(lang)
        return losses(model, x, y), lambda output: loss_func(y, output)

    return forward_step


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def train(case: Case, tracked: bool, every: int = 1) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], Any]:
    """Weights at the end and before each step, and the tracker."""
    model, optimizer = made(case)
    irds = None
    if tracked:
        settings: Any = {"every": every, "engine": "exact", "options": OPTIONS}
        loss_fn = validation_loss(model)
        irds = MegatronIRDS(model, optimizer, LANGUAGES, val=validation(), loss_fn=loss_fn, **settings)
    rank, before = parallel_state.get_data_parallel_rank(), []
    for step in range(STEPS):
        before.append({name.split("module.")[-1]: value for name, value in weights(model).items()})
        model.zero_grad_buffer()
        optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=forward_step_of(case, irds),
            data_iterator=iter(parts_of(case, step, rank)),
            model=model,
            num_microbatches=CALLS,
            seq_length=LENGTH,
            micro_batch_size=5,
        )
        optimizer.step()
    return weights(model), before, irds


def naive(case: Case, before: list[dict[str, Tensor]]) -> Tensor:
    """phi by a backward pass for each language and micro-batch."""
    model, phi, ranks = (
        bare(case),
        torch.zeros(4, 4, dtype=torch.float64),
        parallel_state.get_data_parallel_world_size(),
    )
    for step, state in enumerate(before):
        model.load_state_dict(state, strict=False)
        data = [part for rank in range(ranks) for part in parts_of(case, step, rank)]
        total = sum(int((y != -100).sum()) for _, y, _ in data)
        g = [[torch.zeros_like(p) for p in model.parameters()] for _ in LANGUAGES]
        for x, y, lang in data:
            divisor = total if case.by_token else int((y != -100).sum()) * CALLS * ranks
            for k in torch.unique(lang).tolist():
                mine = lang == k
                loss = losses(model, x[mine], y[mine]).sum() / divisor
                for sums, grad in zip(g[k], gradient(model, loss), strict=True):
                    sums += grad
        norm = float(torch.cat([sum(parts).flatten() for parts in zip(*g, strict=True)]).norm())
        rate = LR * min(1.0, case.clip / (norm + 1e-6))
        h = [gradient(model, loss) for loss in mean_losses(model, validation_loss(model), validation())]
        phi += rate * torch.tensor([[dot(a, b) for b in h] for a in g], dtype=torch.float64)
    return phi


def outcome(case: Case) -> dict[str, Any]:
    """Weights that differ from an untracked run's, phi, and what it should be (None of tensor ranks)."""
    expected, before, _ = train(case, tracked=False)
    found, _, irds = train(case, tracked=True)
    worst = [name for name in expected if not torch.equal(found[name], expected[name])]
    truth = None if case.tensor > 1 else naive(case, before).tolist()
    return {"worst": worst, "phi": irds.tracker.ledger.phi.tolist(), "truth": truth}


ONE = (
    Case("gpt"),
    Case("llama, clipped", llama=True, clip=0.1),
    Case("tied, per token loss", tied=True, by_token=True),
)
TWO = (Case("data parallel", clip=0.1), Case("distributed optimizer", scattered=True, clip=0.1))
PARTS = (Case("tensor parallel", tensor=2),)


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment]
    dist.init_process_group("gloo")
    initialize_rng_tracker(inference_rng_tracker=True)  # one that keeps no states of CUDA
    found: dict[str, Any] = {}
    with OnCpu():
        for cases in (TWO, PARTS) if dist.get_world_size() == 2 else (ONE,):
            parallel_state.initialize_model_parallel(cases[0].tensor)
            found |= {case.name: outcome(case) for case in cases}
            gc.collect()
            parallel_state.destroy_model_parallel()
    Path(sys.argv[1], f"rank{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
