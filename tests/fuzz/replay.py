"""Try one printed problem again: `python tests/fuzz/replay.py "Case(seed=..., ...)"`."""

from __future__ import annotations

import sys

import fuzz_optimize
from problems import Case

if __name__ == "__main__":
    print(fuzz_optimize.trial(eval(sys.argv[1], {"Case": Case})))
