"""The lines of torchtitan's page around its own trainer: `torchrun ... torchtitan_page.py FOLDER`."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchtitan_runs as runs
from irds_models import batch

PAGE = Path(__file__).resolve().parents[3] / "adapters" / "docs" / "torchtitan.md"
(LINES,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def part(*_: int) -> tuple[Any, Any, Any]:
    """The batch of two languages; the same each time, so that losses fall."""
    return batch((3, 2, 0, 0), masked=False)


def main() -> None:
    os.chdir(sys.argv[1])
    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    dist.init_process_group("gloo")
    runs.part = part
    x, y, lang = part()
    held_out = {name: (x[lang == k], y[lang == k]) for k, name in enumerate(("en", "de"))}
    names: dict[str, Any] = {"config": runs.config_of(runs.Case("page", steps=20), True, "dump")}
    exec(LINES, names | {"validation": held_out, "loss_fn": runs.validation_loss})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
