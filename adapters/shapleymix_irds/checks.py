"""What can be said against a tracker before the first step, and against what it is given in each."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from shapleymix_irds.batch import Inputs
from shapleymix_irds.engines.base import LossFn
from shapleymix_irds.errors import CoverageError, LanguageError, TrackerError


def check_settings(languages: Sequence[str], every: object, engine: str, order: int, free: bool) -> None:
    """Settings that cannot be meant.

    Raises
    ------
    TrackerError
        With what to change.
    """
    if not languages or len(set(languages)) < len(languages):
        raise TrackerError("the tracker needs languages, each once", hint=f"given: {', '.join(languages)}")
    if every != "auto" and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
        raise TrackerError(f"every is {every!r}: it must be 'auto' or a whole number from 1 on")
    if engine not in ("auto", "sketch", "exact"):
        raise TrackerError(f"engine is {engine!r}: it must be 'auto', 'sketch' or 'exact'")
    if order not in (1, 2):
        raise TrackerError(f"order is {order!r}: it must be 1 or 2")
    if order == 2 and free:
        raise TrackerError("second order needs validation sequences", hint="give `val`, or take order=1")


def check_modules(model: nn.Module) -> None:
    """Layers in which one sequence changes another's gradient have no gradient by language.

    Raises
    ------
    CoverageError
        Naming the module.
    TrackerError
        If nothing is trained.
    """
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TrackerError("no parameter of the model is trained", hint="set requires_grad before making the tracker")
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm):
            hint = "use LayerNorm, RMSNorm or GroupNorm"
            raise CoverageError(f"module {name!r} is a {type(module).__name__}, which mixes sequences", hint=hint)


def check_step(step: int, least: int) -> int:
    """The step as an int; steps begin at 0 and only grow.

    Raises
    ------
    TrackerError
        Also where a step comes again that is committed already, be it before a resume.
    """
    try:
        number = operator.index(step)
    except TypeError:
        raise TrackerError(f"step is {step!r}: it must be a whole number") from None
    if number < 0:
        raise TrackerError(f"step is {number}: steps are counted from 0")
    if number < least:
        hint = "count steps upwards, and after a resume from where the checkpoint was made"
        raise TrackerError(f"step {number} comes after step {least - 1}, which is committed", hint=hint)
    return number


def check_seen(languages: Sequence[str], unseen: Sequence[int], limit: int, step: int) -> None:
    """Refuse to go on where a language has long been absent; `unseen` counts evaluations without it."""
    for name, count in zip(languages, unseen, strict=True):
        if count >= limit:
            hint = "leave it out of the tracker's languages, or raise Options(unseen_limit=...)"
            raise LanguageError(f"step {step}: no token of {name!r} in {count} evaluations", hint=hint)


def checked(loss_fn: LossFn, place: str) -> LossFn:
    """The loss function, made to refuse a result that is not the loss of each sequence."""

    def call(x: Inputs, y: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        both = loss_fn(x, y)
        for losses in both if isinstance(both, tuple) else (both,):
            shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            if shape != (len(y),):
                hint = 'take the token loss with reduction="none" and sum it over each sequence'
                raise TrackerError(f"{place}: loss_fn gave {shape}, expected shape ({len(y)},)", hint=hint)
        return both

    return call


def non_embedding(model: nn.Module) -> int:
    """N: parameters without embeddings and without the output layer."""
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    vocabularies = {table.num_embeddings for table in tables}
    outside = {id(table.weight) for table in tables}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.out_features in vocabularies:
            outside |= {id(parameter) for parameter in module.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in outside)
