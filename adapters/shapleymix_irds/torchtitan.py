"""torchtitan: measure its `Trainer`, data parallel (FSDP2, HSDP).

::

    trainer = config.build()
    measure(trainer, ["en", "de"], val=validation, loss_fn=loss_fn, every=10, out="phi")
    trainer.train()

The data loader gives the language of each sequence as `input_dict["lang"]`. torchtitan sums a step's loss over the
tokens of all ranks, divides it by their number, and lets FSDP2 sum gradients, not average them; the tracker counts
alike. A step is committed by the optimisers (`IRDS.follow`), and the tracker's state is part of its checkpoints.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torchtitan.components.loss import ChunkedLossWrapper
from torchtitan.trainer import Trainer

from shapleymix_irds.batch import Inputs, LossFn, Sequences
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.tracker import IRDS
from shapleymix_irds.world import Arrangement

ModelLoss = Callable[[nn.Module, Inputs, Tensor], Tensor]


def measure(
    trainer: Trainer,
    languages: Sequence[str],
    *,
    val: Mapping[str, Sequences],
    loss_fn: ModelLoss,
    key: str = "lang",
    **settings: Any,
) -> IRDS:
    """Measure a trainer from here on; weights are those of a run without it.

    Parameters
    ----------
    trainer : Trainer
        As its configuration builds it, before `train()`.
    languages, val, **settings : as for `IRDS`
        The tracker's own settings: every, engine, options, out.
    loss_fn : callable
        `loss_fn(model, x, y)`: the token loss summed over each validation sequence, (B,).
    key : str
        Where a batch's inputs have the language of each sequence: taken out before the model is called.

    Returns
    -------
    IRDS
        The tracker, for `measure`, `matrix` and `save` at the end.
    """
    check_trainer(trainer)
    model = trainer.model_parts[0]
    batch = trainer.parallel_dims.get_mesh("batch").get_group() if trainer.parallel_dims.dp_enabled else None
    tracker = IRDS(
        model,
        languages,
        val=val,
        loss_fn=_within(trainer, model, loss_fn),
        process_group=batch,
        arrangement=Arrangement(divisor=1.0),
        **settings,
    )
    tracker.follow(*trainer.optimizers)
    run = trainer.forward_backward_step

    def watched(*, input_dict: dict[str, Any], labels: Tensor, global_valid_tokens: Tensor) -> Tensor:
        if key not in input_dict:
            hint = f'give input_dict[{key!r}] in the data loader, or measure(key="...")'
            raise TrackerError(f"step {trainer.step - 1}: the batch has no labels at {key!r}", hint=hint)
        lang = input_dict.pop(key)
        with tracker.watch(lang, step=trainer.step - 1, tokens=global_valid_tokens, length=labels.shape[1]):
            return run(input_dict=input_dict, labels=labels, global_valid_tokens=global_valid_tokens)

    trainer.forward_backward_step = watched
    states = getattr(trainer.checkpointer, "states", None)
    if isinstance(states, dict):
        states["irds"] = tracker
    return tracker


def _within(trainer: Trainer, model: nn.Module, loss_fn: ModelLoss) -> LossFn:
    def call(x: Inputs, y: Tensor) -> Tensor:
        with trainer.train_context():
            return loss_fn(model, x, y)

    return call


def check_trainer(trainer: Trainer) -> None:
    """Refuse what would be measured wrongly.

    Raises
    ------
    TrackerError
        Naming it.
    """
    dims = trainer.parallel_dims
    for name, on in {"pipeline": dims.pp_enabled, "tensor": dims.tp_enabled, "context": dims.cp_enabled}.items():
        if on:
            raise TrackerError(f"torchtitan's {name} parallelism is not measured", hint="take FSDP or HSDP alone")
    if not trainer.config.training.disable_cuda_graphs:
        hint = "set training.disable_cuda_graphs"
        raise TrackerError("a step that is replayed as a CUDA graph cannot be looked at", hint=hint)
    if isinstance(trainer.loss_fn, ChunkedLossWrapper):
        hint = "set loss=CrossEntropyLoss.Config(...)"
        raise TrackerError("ChunkedLossWrapper takes the output layer out of the model", hint=hint)
