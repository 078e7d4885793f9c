"""Megatron-core: measure a run of its GPT with the local layer spec, data parallel and tensor parallel.

::

    irds = MegatronIRDS(model, optimizer, ["en", "de"], val=validation, loss_fn=loss_fn, every=10, out="phi")

    def forward_step(data_iterator, model):
        batch = next(data_iterator)
        irds.micro_batch(batch["lang"])           # the one new line in a training script
        ...

The layers of Megatron call autograd functions of their own, whose backward pass may add a weight's gradient to
`main_grad` by itself. `register` makes the linear layer known to the tracker's probes, which stand behind its output:
what becomes of the gradient of the weight does not matter to them. Embeddings and norms of the local spec call
PyTorch's. Activations are (S, B, ...) throughout. A tensor-parallel rank sketches its own part of each layer, and
products of the parts add up.

`micro_batch` opens a watch, which closes with the next micro-batch or when gradients are finalised; the step is
committed behind `optimizer.step()`, which tells the norm that it clipped by, and whether it was skipped.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker, layers
from megatron.core.utils import get_model_config
from torch import Tensor, nn
from torch.overrides import wrap_torch_function

from shapleymix_irds.batch import Inputs, LossFn, Sequences
from shapleymix_irds.calls import READERS, read_linear
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.hooked_watch import Span
from shapleymix_irds.tracker import IRDS
from shapleymix_irds.world import Arrangement, World, local, named_parameters

# -- layers that probes can see ------------------------------------------------------------------------------------


def register() -> None:
    """Make Megatron's linear layer known; where no tracker looks, it is what it was."""
    if layers.linear_with_grad_accumulation_and_async_allreduce not in READERS:
        linear = wrap_torch_function(lambda *args, **options: (*args, *options.values()))(
            layers.linear_with_grad_accumulation_and_async_allreduce
        )
        layers.linear_with_grad_accumulation_and_async_allreduce = linear
        READERS[linear] = read_linear


# -- a run ---------------------------------------------------------------------------------------------------------


class MegatronIRDS:
    """Measures a training run of Megatron; weights are those of a run without it.

    Parameters
    ----------
    model : nn.Module or list of one
        As Megatron's `DistributedDataParallel` wraps it.
    optimizer : MegatronOptimizer
        Its optimiser: `step` commits from here on.
    languages, val, **settings : as for `IRDS`
        The tracker's own settings: every, engine, options, out.
    loss_fn : callable
        `loss_fn(x, y)`: the token loss summed over each validation sequence, (B,), by a call of the model.

    Attributes
    ----------
    tracker : IRDS
        The tracker; its `state_dict()` belongs into the checkpoint.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: Any,
        languages: Sequence[str],
        *,
        val: Mapping[str, Sequences],
        loss_fn: LossFn,
        **settings: Any,
    ) -> None:
        register()
        chunks = [model] if isinstance(model, nn.Module) else list(model)
        self.model, self.optimizer, self.config = chunks[0], optimizer, get_model_config(chunks[0])
        check_parallelism(chunks, self.config)
        self.tracker = IRDS(
            self.model,
            languages,
            val=val,
            loss_fn=_aside(loss_fn),
            process_group=parallel_state.get_data_parallel_group(),
            arrangement=arrangement_of(self.model),
            **settings,
        )
        self._span = Span(self.tracker)
        self._divisor: float | Tensor = 1.0  # tokens of the step, where the loss is summed over them
        self._finalize: Callable[..., None] = self.config.finalize_model_grads_func
        self.config.finalize_model_grads_func = self._finalize_and_close
        self._step: Callable[[], tuple[Any, ...]] = optimizer.step
        optimizer.step = self._step_and_commit

    def micro_batch(self, lang: Tensor | Sequence[str], length: int | None = None) -> None:
        """Begin a micro-batch: between its data and the model's forward pass, in the forward step of training.

        Parameters
        ----------
        lang : Tensor or list of str
            Language of each sequence, (B,), or of each token, (B, S); the same on tensor-parallel ranks.
        length : int, optional
            S, if not that of the validation sequences.
        """
        if self.model.training and torch.is_grad_enabled():
            self._span.begin(lang, length)

    def _finalize_and_close(self, model: list[nn.Module], num_tokens: Tensor | None = None, **more: Any) -> None:
        """Backward passes are over."""
        self._span.end()
        self._finalize(model, num_tokens, **more)
        world = self.tracker.world
        self._divisor = 1.0 if num_tokens is None else num_tokens.clamp(min=1) / world.size

    def _step_and_commit(self) -> tuple[Any, ...]:
        """The optimiser's step; one that it skips changes no weight, and counts for nothing."""
        self._span.end()
        scale, pending = self.optimizer.get_loss_scale(), self.tracker.pending
        rate = None if pending is None else common_rate(self.optimizer.param_groups, pending.step)
        done = self._step()
        if not done[0]:
            self._span.drop()
        elif rate is not None:
            clip = float(self.optimizer.config.clip_grad)
            norm = done[1] if clip > 0 else None
            limit = None if norm is None else clip
            self.tracker.commit(lr=rate, grad_norm=norm, max_norm=limit, grad_scale=scale * self._divisor)
        return done


def common_rate(groups: Iterable[Mapping[str, Any]], step: int) -> float:
    """The learning rate of all groups of Megatron's parameters, which are copies or parts of the model's.

    Raises
    ------
    TrackerError
        If there are several.
    """
    rates = {float(group["lr"]) for group in groups}
    if len(rates) != 1:
        told = ", ".join(f"{rate:g}" for rate in sorted(rates))
        hint = "leave decoupled learning rates out"
        raise TrackerError(f"step {step}: the optimiser has several learning rates ({told}), expected one", hint=hint)
    return rates.pop()


def arrangement_of(model: nn.Module) -> Arrangement:
    """What Megatron has done to the model on this rank."""
    parameters = named_parameters(model)
    device = local(next(iter(parameters.values()))).device
    parts = World.of(parallel_state.get_tensor_model_parallel_group(), device)
    whole = {name for name, each in parameters.items() if not layers.param_is_not_tensor_parallel_duplicate(each)}
    return Arrangement(True, tensor_parallel=parts if parts.size > 1 else None, copies=frozenset(whole))


def _aside(loss_fn: LossFn) -> LossFn:
    """The loss of validation sequences, which takes no random numbers from Megatron's own states."""

    def call(x: Inputs, y: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        states = get_cuda_rng_tracker()
        before = states.get_states()
        try:
            return loss_fn(x, y)
        finally:
            states.set_states(before)

    return call


def check_parallelism(chunks: Sequence[nn.Module], config: Any) -> None:
    """Refuse what would be measured wrongly.

    Raises
    ------
    TrackerError
        Naming it.
    """
    sizes = {
        "tensor": parallel_state.get_tensor_model_parallel_world_size(),
        "pipeline": parallel_state.get_pipeline_model_parallel_world_size(),
        "context": parallel_state.get_context_parallel_world_size(),
        "expert": parallel_state.get_expert_model_parallel_world_size(),
    }
    for name, size in sizes.items():
        if size > 1 and name != "tensor":
            raise TrackerError(f"Megatron's {name} parallelism of {size} ranks is not measured", hint=_PARALLEL)
    if sizes["tensor"] > 1 and config.qk_layernorm:  # whose gradients are in parts that add up to that of one weight
        raise TrackerError("Megatron's qk_layernorm is not measured under tensor parallelism", hint=_PARALLEL)
    if config.sequence_parallel:
        raise TrackerError("Megatron's sequence parallelism is not measured", hint=_PARALLEL)
    if len(chunks) != 1:
        raise TrackerError(f"the model comes in {len(chunks)} chunks, expected 1", hint=_PARALLEL)
    if config.finalize_model_grads_func is None:
        hint = "set config.finalize_model_grads_func = finalize_model_grads before the tracker is made"
        raise TrackerError("nothing averages Megatron's gradients over ranks", hint=hint)


_PARALLEL = "measure a run that is data and tensor parallel only, without sequence parallelism"
