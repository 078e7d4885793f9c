"""Several training runs, one after another, by the ranks of one torchrun: starting Python is what takes the time."""

from __future__ import annotations

import json
import sys

from shapleymix_irds.train.app import main
from shapleymix_irds.train.leaving import leave


def run_all(cases: list[list[str]]) -> int:
    """Run each list of arguments; the first exit code that is not 0."""
    return next((code for case in cases if (code := main(case))), 0)


if __name__ == "__main__":
    leave(run_all(json.loads(sys.argv[1])))
