"""What benchmarks print: markdown tables, and a verdict on every figure that must hold.

Every script takes `--small`: it then runs on the repository's own fixtures in some seconds, to see that it runs at all,
and its limits do not count.
"""

from __future__ import annotations

import multiprocessing
import operator
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from multiprocessing.pool import Pool
from typing import Any

SMALL = "--small" in sys.argv[1:]
_HOLDS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}
_verdicts: list[tuple[str, bool]] = []


def table(title: str, *columns: str) -> None:
    """Start a markdown table."""
    print(f"\n### {title}\n")
    row(*columns)
    row(*["---"] * len(columns))


def row(*cells: object) -> None:
    """Print one line of a table; floats get four significant digits."""
    texts = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
    print("| " + " | ".join(texts) + " |", flush=True)


def must(name: str, value: float, limit: float, relation: str = "<=") -> bool:
    """Record whether a figure holds, for `finish`; a NaN never does."""
    holds = bool(_HOLDS[relation](value, limit))
    _verdicts.append((f"{name}: {value:.6g} (must be {relation} {limit:.6g})", holds))
    return holds


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """How long a call takes."""
    begin = clock()
    work()
    return clock() - begin


def on_all_cores(work: Callable[..., Any], each: Iterable[tuple[Any, ...]]) -> list[Any]:
    """What a function of a script gives for each of some arguments: not for what is timed."""
    return [work(*one) for one in each] if SMALL else _processes().starmap(work, each, chunksize=1)


@cache
def _processes() -> Pool:
    return multiprocessing.get_context("spawn").Pool(initializer=warnings.simplefilter, initargs=("ignore",))


def finish() -> None:
    """Print every verdict, and exit with 1 if one of them failed, unless the run was a small one."""
    print()
    for text, holds in _verdicts:
        print(f"- {'holds' if holds else 'FAILS'}: {text}")
    sys.exit(0 if SMALL or all(holds for _, holds in _verdicts) else 1)
