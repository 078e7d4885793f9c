"""The step is committed by the optimiser itself, clipped as the trainer clipped it."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from torch import Tensor
from torch.optim import Optimizer

from shapleymix_irds.tracker import IRDS


class Committing:
    """Commits each step of an optimiser; `tracker` may be replaced or taken away."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.tracker: IRDS | None = None
        self.norm: Tensor | float | None = None
        self.limit: float | None = None
        self.followed: Optimizer | None = None
        clip: Any = accelerator.clip_grad_norm_

        def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: int = 2) -> Any:
            self.norm, self.limit = clip(parameters, max_norm, norm_type=norm_type), max_norm
            return self.norm

        self.accelerator.clip_grad_norm_ = clip_grad_norm_  # type: ignore[method-assign]

    def follow(self, optimizer: Any, tracker: IRDS) -> None:
        """Commit to `tracker` before each step of the optimiser."""
        self.tracker = tracker
        inner = getattr(optimizer, "optimizer", optimizer)
        if inner is not self.followed:
            self.followed = inner
            inner.register_step_pre_hook(self._commit)

    def _commit(self, optimizer: Optimizer, *_: object) -> None:
        tracker, norm, limit = self.tracker, self.norm, self.limit
        self.norm = self.limit = None
        if tracker is None or tracker.pending is None:
            return
        scaler = self.accelerator.scaler
        scale = 1.0 if scaler is None else float(scaler.get_scale())
        tracker.commit(lr=optimizer.param_groups[0]["lr"], grad_norm=norm, max_norm=limit, grad_scale=scale)
