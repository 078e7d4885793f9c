"""Buffers that a model writes while it runs, such as the load of its experts: passes of the tracker must not count."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapleymix_irds.wrappers import share_buffers, tidy


class Buffers:
    """The buffers of a model as they were when this was made."""

    def __init__(self, model: nn.Module) -> None:
        share_buffers(model)
        self.model = model
        self.kept = {
            (module, name): (buffer, buffer.clone(), buffer._version)
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        }

    def written(self) -> list[str]:
        """Names of the buffers that have other values now."""
        changed = [key for key in self.kept if self._differs(*key)]
        prefixes = {module: tidy(f"{name}.") for name, module in self.model.named_modules()}
        return [prefixes[module].removeprefix(".") + name for module, name in changed]

    def restore(self) -> None:
        """Put them back."""
        with torch.no_grad():
            for (module, name), (buffer, values, _) in self.kept.items():
                if self._differs(module, name):
                    buffer.copy_(values)
                    module._buffers[name] = buffer

    def _differs(self, module: nn.Module, name: str) -> bool:
        buffer, values, version = self.kept[module, name]
        now: Tensor | None = module._buffers.get(name)
        if now is buffer and buffer._version == version:
            return False
        return now is None or now.shape != values.shape or not torch.equal(now, values)
