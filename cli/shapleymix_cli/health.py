"""What a run rests on, checked one by one: packages, solvers, cores, the folder; with the next step where one fails."""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from shapleymix.errors import ShapleyMixError
from shapleymix_cli.project import NAME, find

OK, ABSENT, DOUBT, FAULT = "ok", "absent", "doubt", "fault"
"""It works; an optional part is not there; it works, perhaps not as meant; it does not work."""

CLOSE = 1e-6
"""How near a solver's mixture must be to the one that is known."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_REQUIREMENT = re.compile(r"""([\w.-]+?)\s*>=\s*([\d.]+)\s*(?:;\s*extra\s*==\s*['"]([\w-]+)['"])?""")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes
    ----------
    about : str
        What it belongs to: `packages`, `solvers`, ...
    name, found : str
        What was looked at, and what was found.
    state : str
        `OK`, `ABSENT`, `DOUBT` or `FAULT`.
    hint : str, optional
        The next step.
    """

    about: str
    name: str
    found: str
    state: str = OK
    hint: str | None = None


def checks() -> list[Check]:
    """All of them; a check that breaks is a fault itself."""
    parts = (_program, _packages, _extras, _solvers, _cores, _folder)
    return [one for part in parts for one in _guarded(part)]


def _guarded(part: Callable[[], Iterator[Check]]) -> list[Check]:
    done: list[Check] = []
    try:
        for one in part():
            done.append(one)
    except Exception as error:  # whatever a broken installation may raise
        name = part.__name__.strip("_")
        done.append(Check(name, "the rest", f"{type(error).__name__}: {error}", FAULT, "install it anew"))
    return done


def _program() -> Iterator[Check]:
    version = f"{metadata.version('shapleymix')} in {Path(__file__).resolve().parents[1]}"
    yield Check("program", "shapleymix", version)
    yield Check("program", "python", f"{platform.python_version()} ({sys.executable})")
    yield Check("program", "system", f"{platform.system()} {platform.machine()}")


def _packages() -> Iterator[Check]:
    """What the program cannot do without."""
    for name, least, extra in required():
        if extra is None:
            version = installed(name)
            enough = version is not None and number(version) >= number(least)
            hint = None if enough else f"pip install '{name}>={least}'"
            yield Check("packages", name, version or "not installed", OK if enough else FAULT, hint)


def _extras() -> Iterator[Check]:
    """What some commands need; `dev` is of no command."""
    for name, least, extra in required():
        if extra not in (None, "dev"):
            version = installed(name)
            state = ABSENT if version is None else OK if number(version) >= number(least) else DOUBT
            hint = None if state == OK else f"pip install '{name}>={least}'"
            yield Check(f"extra {extra}", name, version or "not installed", state, hint)


def required() -> list[tuple[str, str, str | None]]:
    """Each package that the distribution names, its least version, and the extra that it belongs to."""
    found = [_REQUIREMENT.fullmatch(text) for text in metadata.requires("shapleymix") or ()]
    return [(one[1], one[2], one[3]) for one in found if one is not None]


def installed(name: str) -> str | None:
    """The version of a package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def number(version: str) -> tuple[int, ...]:
    """The numbers of a version in their order, without what marks a build; zeros at the end do not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    parts = [int(part) for part in found[0].split(".")] if found else []
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _solvers() -> Iterator[Check]:
    """Each engine on a problem whose optimum is known: ratios in proportion to (w a)^(1 / (1 + gamma))."""
    import numpy as np

    from shapleymix.laws.terms import PowerTerms
    from shapleymix.mixing.bounds import Bounds
    from shapleymix.mixing.engine.cone import solve_cone
    from shapleymix.mixing.engine.interior_point import solve_interior
    from shapleymix.mixing.engine.solving import solve
    from shapleymix.mixing.problem import Problem

    a, w, gamma = np.array([2.0, 1.0, 0.5, 1.5]), np.array([1.0, 3.0, 2.0, 1.0]), 0.7
    terms = PowerTerms(np.zeros(4), a, np.full(4, gamma), np.eye(4))
    problem = Problem(terms, w, Bounds().at(("a", "b", "c", "d"), 1e9))
    known = (w * a * gamma) ** (1 / (1 + gamma))
    known /= known.sum()
    engines = {"barrier Newton": lambda one: solve(one).p, "interior point": solve_interior, "Clarabel": solve_cone}
    for name, engine in engines.items():
        try:
            off = float(np.abs(engine(problem) - known).max())
        except Exception as error:  # a solver that is not whole fails in its own way
            yield Check(
                "solvers", name, f"{type(error).__name__}: {error}", FAULT, "pip install --force-reinstall cvxpy"
            )
            continue
        good = off < CLOSE
        yield Check("solvers", name, f"within {off:.0e} of a known optimum", OK if good else FAULT,
                    None if good else "report it, with the versions above")  # fmt: skip


def _cores() -> Iterator[Check]:
    """Cores that this process may use, and what numerical libraries make of them."""
    from threadpoolctl import threadpool_info

    from shapleymix.fitting.settings import Settings

    cores, quota = usable_cores(), cpu_quota()
    limited = "" if quota is None or quota >= cores else f", of which a limit leaves {quota:g}"
    yield Check("cores", "usable", f"{cores} of {os.cpu_count()}{limited}")
    least = min(cores, quota or cores)
    crowded = Settings.threads > least
    hint = "give --threads 1" if crowded else None
    yield Check("cores", "--threads", f"{Settings.threads} by default", DOUBT if crowded else OK, hint)
    given = ", ".join(f"{name}={os.environ[name]}" for name in _THREADS if name in os.environ)
    most = max((int(one["num_threads"]) for one in threadpool_info()), default=1)
    too_many = most > least
    hint = "export OMP_NUM_THREADS=1: more threads than cores slow each other down" if too_many else None
    yield Check("cores", "of NumPy", f"{most} threads ({given or 'no variable limits them'})",
                DOUBT if too_many else OK, hint)  # fmt: skip


def usable_cores() -> int:
    """Cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> float | None:
    """The cores' worth of time that a container leaves, or None where nothing is known of it."""
    try:
        most, period = path.read_text(encoding="ascii").split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def _folder() -> Iterator[Check]:
    """The current folder: whether results can be written, and what a project file adds."""
    try:
        with tempfile.TemporaryFile(dir="."):
            yield Check("folder", "writing", os.getcwd())
    except OSError as error:
        yield Check("folder", "writing", error.strerror or str(error), DOUBT, "go to a folder of your own")
    try:
        project = find(None)
    except ShapleyMixError as error:
        yield Check("folder", NAME, " ".join(str(error).split("\n")), FAULT, f"mend {NAME}")
        return
    yield Check("folder", NAME, "none" if project is None else f"says {', '.join(project.entries) or 'nothing'}")
