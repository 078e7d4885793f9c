"""What sbatch is told, from what is typed: `partition=gpu,time=1:30:00,requeue=true`, as submitit wants it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence

from shapleymix.errors import UsageError

Told = dict[str, object]
"""Keywords of submitit's executor, whose values have no common type."""

_BETWEEN = re.compile(r",(?=[\w-]+=)")
"""A comma before a name: one within a value, such as that of nodelist=a,b, parts nothing."""
_OF_SUBMITIT = ("name", "timeout_min", "mem_gb", "tasks_per_node", "num_gpus", "array_parallelism", "signal_delay_s")
_OF_SUBMITIT += ("setup", "teardown", "srun_args", "use_srun", "stderr_to_stdout")
_RECKONED = ("job_name", "partition", "time", "nodes", "ntasks_per_node", "cpus_per_task", "cpus_per_gpu", "qos", "mem")
_RECKONED += ("gpus_per_node", "gpus_per_task", "mem_per_gpu", "mem_per_cpu", "comment", "constraint", "exclude")
_RECKONED += ("account", "gres", "mail_type", "mail_user", "nodelist", "dependency", "exclusive", "wckey")
KNOWN = frozenset((*_OF_SUBMITIT, *_RECKONED))
"""What submitit knows, and reckons with in part; all else it hands on."""
_LISTS = ("setup", "teardown")
_OURS = ("array", "map_count", "output", "error", "open_mode", "parsable", "wrap", "wait", "additional_parameters")
"""What submitit sets, or reads the answer of."""
_TIME = re.compile(r"(?:(?P<days>\d+)-(?=\d))?(?P<rest>\d+(?::\d+){0,2})")


def pairs_of(texts: Sequence[str]) -> dict[str, str]:
    """The names and values in what is typed, names with `_` for `-`.

    Raises
    ------
    UsageError
        If a part is no name=value, or a name comes twice or is set by submitit.
    """
    found: dict[str, str] = {}
    for part in (part for text in texts for part in _BETWEEN.split(text)):
        typed, equals, value = part.partition("=")
        name = typed.strip().lstrip("-").replace("-", "_")
        if not (name and equals and value.strip()):
            hint = "for instance partition=gpu,time=60,gres=gpu:1; an option without a value is requeue=true"
            raise UsageError(f"--slurm {typed!r} is no name=value", hint=hint)
        if name in found:
            raise UsageError(f"--slurm {name} is given twice", hint="give each name once")
        if name in _OURS:
            raise UsageError(f"--slurm {name} is submitit's own", hint="leave it out: arrays depend on it")
        if name == "signal":
            hint = "give signal_delay_s=120: the seconds between SLURM's warning and the end"
            raise UsageError("--slurm signal is submitit's own", hint=hint)
        found[name] = value.strip()
    return found


def keywords(given: Mapping[str, str]) -> Told:
    """Keywords of submitit's executor; of what it does not know, sbatch is told as it is.

    Raises
    ------
    UsageError
        If a time is none.
    """
    values = {name: _value(name, text) for name, text in given.items()}
    named: Told = {f"slurm_{name}": value for name, value in values.items() if name in KNOWN}
    more = {name: value for name, value in values.items() if name not in KNOWN}
    return named | ({"slurm_additional_parameters": more} if more else {})


def _value(name: str, text: str) -> object:
    """A value as submitit takes it: it reckons with times and numbers, and joins lists."""
    if name in ("time", "timeout_min"):
        return minutes(text)
    if name in _LISTS:
        return [text]
    if name == "srun_args":
        return shlex.split(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdecimal() and str(int(text)) == text else text


def minutes(text: str) -> int:
    """A time as sbatch takes it, in whole minutes: `90`, `90:00`, `1:30:00`, `1-0`, `1-12:00`, `1-12:00:00`.

    Raises
    ------
    UsageError
        If it is none, or not above 0.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--slurm time={text} is no time", hint="minutes, hours:minutes:seconds, or days-hours:minutes"
        )
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:
        hours, mins, seconds = (*parts, 0, 0)[:3]
        hours += 24 * int(found["days"])
    else:
        hours, mins, seconds = {1: (0, *parts, 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    total = math.ceil(60 * hours + mins + seconds / 60)
    if total < 1:
        raise UsageError(f"--slurm time={text} leaves no time", hint="give the minutes that one run may take")
    return total
