"""Streaming imports torchvision for its pictures; the registry's is for CUDA: no operators beside a torch for the CPU.

No test here looks at pictures: the two operators whose absence ends the import are declared, and never called.
"""

from __future__ import annotations

import importlib
import sys

import torch

ABSENT = ("nms", "qnms")

try:
    importlib.import_module("torchvision")
except RuntimeError:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    for name in ABSENT:
        torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")
