"""Train one model on one mixture; `python adapters/irds_train.py --help`, or under torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

ADAPTERS = Path(__file__).resolve().parent
sys.path.insert(0, str(ADAPTERS.parent))
sys.path.insert(0, str(ADAPTERS))

from shapleymix_irds.train.app import leave, main  # noqa: E402

if __name__ == "__main__":
    leave(main())
