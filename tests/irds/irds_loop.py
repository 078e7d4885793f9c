"""A small training run with a tracker, which can be stopped and go on."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from irds_models import LANGUAGES, batch, loss_of, make_model, validation
from shapleymix_irds import IRDS, Options

OPTIONS = Options(val_sequences=2, measure_sequences=3)


class Loop:
    """A small training run with a tracker."""

    def __init__(self, out: Path | None = None, steps: int = 0, **options: Any) -> None:
        self.model = make_model().double()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, betas=(0.9, 0.95))
        self.loss_fn = options.pop("loss_of", loss_of)(self.model)
        settings: dict[str, Any] = {"val": validation(5), "every": 3, "options": OPTIONS, "out": out}
        self.tracker = IRDS(self.model, options.pop("languages", LANGUAGES), **(settings | options))
        self.step = 0
        self.run(steps)

    def run(self, steps: int) -> Loop:
        for _ in range(steps):
            x, y, lang = batch((2, 1, 3, 2), seed=self.step)
            self.tracker.backward(self.loss_fn, x, y, lang, step=self.step)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.tracker.commit(lr=1e-2, grad_norm=norm, max_norm=1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
        return self

    def checkpoint(self) -> dict[str, Any]:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        return {"tracker": json.loads(json.dumps(self.tracker.state_dict())), "rest": copy.deepcopy(state)}

    def resume(self, checkpoint: dict[str, Any]) -> Loop:
        rest = checkpoint["rest"]
        self.model.load_state_dict(rest["model"])
        self.optimizer.load_state_dict(rest["optimizer"])
        self.step = rest["step"]
        self.tracker.load_state_dict(checkpoint["tracker"])
        return self
