"""LLaMA-Factory imports torchvision and torchaudio, whose wheels for GPUs do not load beside PyTorch's CPU build.

No test touches pictures or sound, so that stand-ins do where they do not load.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType


def _stand_in(name: str, needed: bool) -> None:
    try:
        importlib.import_module(name)
    except (ImportError, OSError, RuntimeError):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module if needed else None  # type: ignore[assignment]


_stand_in("torchvision", needed=False)
_stand_in("torchaudio", needed=True)
