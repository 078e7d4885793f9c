"""Lightning: a callback that measures any `LightningModule` whose batches say which language their sequences are of.

::

    irds = IRDSCallback(["en", "de"], validation, loss_fn=sequence_losses, every=10, out="phi")
    Trainer(callbacks=[irds], gradient_clip_val=1.0).fit(module, batches)

A watch opens when a training batch begins and closes behind its backward pass. The step is committed between the
clipping of gradients and the optimiser's step: behind `configure_gradient_clipping`.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from operator import itemgetter
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from shapleymix.errors import caution
from shapleymix_irds.batch import Inputs, Sequences, length
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.hooked_watch import Span, save_matrices
from shapleymix_irds.tracker import IRDS

Labels = Tensor | Sequence[str]
ModuleLoss = Callable[[LightningModule, Inputs, Tensor], Tensor]


class IRDSCallback(Callback):
    """Measures a run of Lightning's `Trainer`; weights are those of a run without it.

    Parameters
    ----------
    languages, val, **settings : as for `IRDS`
        The tracker's own settings: every, engine, options.
    lang : callable
        The labels of a batch; by default what it has under "lang". A label is a language's index or name, for each
        sequence (B,), or for each token (B, S).
    loss_fn : callable
        `loss_fn(module, x, y)`: the token loss summed over each validation sequence, (B,).
    out : str or os.PathLike[str], optional
        Folder for the log of evaluations, and for `sv_raw.csv` and `sv.csv` at the end.

    Attributes
    ----------
    tracker : IRDS, optional
        The tracker, once training has begun.
    """

    def __init__(
        self,
        languages: Sequence[str],
        val: Mapping[str, Sequences],
        *,
        lang: Callable[[Any], Labels] = itemgetter("lang"),
        loss_fn: ModuleLoss,
        out: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self.languages, self.val, self.lang, self.loss_fn = list(languages), val, lang, loss_fn
        self.settings, self.out = settings, out
        self.tracker: IRDS | None = None
        self._span: Span | None = None
        self._saved: dict[str, Any] = {}

    # -- the tracker's life ------------------------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the tracker, now that the model is wrapped; behind what a checkpoint has restored."""
        check_trainer(trainer)

        def loss(x: Inputs, y: Tensor) -> Tensor:
            with trainer.precision_plugin.train_step_context():
                return self.loss_fn(pl_module, x, y)

        model = trainer.strategy.model or pl_module
        self.tracker = IRDS(model, self.languages, val=self.val, loss_fn=loss, out=self.out, **self.settings)
        self.tracker.follow(trainer.optimizers[0], hook=False)
        self._span = Span(self.tracker)
        if self._saved:
            self.tracker.load_state_dict(self._saved)
        self._take_after_clipping(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure the losses at the end, and write the matrices."""
        tracker, span = self._running()
        self._release(pl_module)
        span.drop()  # accumulated gradients that no step has used
        if tracker.engine.loss_fn is not None and tracker.steps:
            tracker.measure(tracker.engine.loss_fn)
        if self.out is not None and tracker.ledger.count:
            faults = save_matrices(tracker, Path(self.out))
            caution(map(str, faults if tracker.world.main else ()))  # an error would cost the trained model

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the watch, so that nothing else is watched."""
        self._release(pl_module)
        if self._span is not None:
            self._span.drop()

    def state_dict(self) -> dict[str, Any]:
        """The tracker as of the last optimiser's step, as the weights are."""
        return self._saved if self.tracker is None else self.tracker.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until there is a tracker."""
        self._saved = state_dict

    # -- one batch ---------------------------------------------------------------------------------------------

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Watch the batch."""
        _, span = self._running()
        if span.open:  # a hook has skipped the rest of an epoch
            span.drop()
        span.begin(self.lang(batch), length(_tensors(batch)))

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Watch no longer; what is done to gradients from here on is known by their norms."""
        self._running()[1].end()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A batch without a backward pass (`training_step` gave None) changes no weight."""
        _, span = self._running()
        if span.open:
            span.drop()

    # -- inside ------------------------------------------------------------------------------------------------

    def _running(self) -> tuple[IRDS, Span]:
        assert self.tracker is not None
        assert self._span is not None
        return self.tracker, self._span

    def _take_after_clipping(self, pl_module: LightningModule) -> None:
        """Lightning calls `configure_gradient_clipping` before each step, be there a limit or not."""
        clip = pl_module.configure_gradient_clipping

        @wraps(clip)
        def clip_and_take(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            clip(optimizer, *args, **kwargs)
            tracker, span = self._running()
            if tracker.pending is not None and not span.open:  # else no backward pass, and so no step
                tracker.take(0)

        object.__setattr__(pl_module, "configure_gradient_clipping", clip_and_take)

    def _release(self, pl_module: LightningModule) -> None:
        pl_module.__dict__.pop("configure_gradient_clipping", None)


def check_trainer(trainer: Trainer) -> None:
    """Refuse what would be measured wrongly.

    Raises
    ------
    TrackerError
        Naming it.
    """
    if not trainer.lightning_module.automatic_optimization:
        raise TrackerError("manual optimisation is not measured", hint="take Lightning's automatic optimisation")
    if getattr(trainer.precision_plugin, "scaler", None) is not None:
        raise TrackerError("a GradScaler may skip steps (fp16)", hint="train in bf16, or without the tracker")
    if len(trainer.optimizers) != 1:
        message = f"the module has {len(trainer.optimizers)} optimisers, expected 1"
        raise TrackerError(message, hint="give all parameters to one optimiser, in groups")
    if trainer.strategy.handles_gradient_accumulation:
        kind = type(trainer.strategy).__name__
        raise TrackerError(f"{kind} accumulates and clips by itself", hint="take DDPStrategy or ModelParallelStrategy")


def _tensors(batch: Any) -> Inputs:
    """The tensors of a batch in their order."""
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else [batch]
    return {str(n): value for n, value in enumerate(values) if isinstance(value, Tensor)}
