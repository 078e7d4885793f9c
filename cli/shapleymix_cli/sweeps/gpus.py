"""Which GPUs there are, and which of them each place in the pool has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from itertools import takewhile

from shapleymix.errors import UsageError

VISIBLE = "CUDA_VISIBLE_DEVICES"
NONE = "none"


def gpus_of(asked: str | None) -> tuple[str, ...]:
    """The GPUs to share out: those asked for (`0,1`, `none`), those that this process may see, or all of the machine.

    Raises
    ------
    UsageError
        If a part of what is asked for is empty.
    """
    if asked is None:
        visible = os.environ.get(VISIBLE)
        return _found() if visible is None else tuple(takewhile(_is_gpu, map(str.strip, visible.split(","))))
    if asked.strip() == NONE:
        return ()
    parts = tuple(part.strip() for part in asked.split(","))
    if not all(parts):
        raise UsageError(f"--gpus {asked!r} names no GPU between two commas", hint="for instance 0,1, or none")
    return parts


def _is_gpu(name: str) -> bool:
    """Whether it names a GPU; CUDA ends the list at the first part that does not, such as -1, which hides all."""
    return bool(name) and not name.startswith("-")


def _found() -> tuple[str, ...]:
    """Numbers of the GPUs that the driver lists; none where there is no driver."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    lines = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return tuple(str(place) for place in range(len(lines))) if done.returncode == 0 else ()


def environments(gpus: Sequence[str], each: int, jobs: int | None) -> list[dict[str, str]]:
    """What each place in the pool adds to the environment of its runs: `each` GPUs of its own.

    Parameters
    ----------
    gpus : sequence of str
        The GPUs; one that is named twice is shared by two runs.
    each : int
        How many a run has.
    jobs : int, optional
        How many places; None = as many as the GPUs allow, or one without GPUs.

    Raises
    ------
    UsageError
        If there are not so many GPUs.
    """
    if not gpus:
        return [{} for _ in range(jobs or 1)]
    room = len(gpus) // each
    if room < (jobs or 1):
        hint = "ask for fewer, name a GPU several times to share it (--gpus 0,0,1,1), or --gpus none"
        raise UsageError(f"{jobs or 1} jobs with {each} each of {len(gpus)} GPUs ({','.join(gpus)})", hint=hint)
    return [{VISIBLE: ",".join(gpus[place * each : (place + 1) * each])} for place in range(jobs or room)]
