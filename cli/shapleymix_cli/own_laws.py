"""Laws by name, or from a user's own file, whose faults are told as the user's."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from shapleymix.errors import Location, ShapleyMixError, UsageError, did_you_mean

if TYPE_CHECKING:
    from shapleymix.fitting.candidates import Contender


def laws_of(text: str | None) -> list[Contender] | None:
    """Laws from `shapley,learned,my_law.py:MyLaw`: names stay names, a user's own become what the file holds."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--laws names no law", hint="see `shapleymix laws`")
    return [_from_file(name) if ".py:" in name else known_law(name) for name in dict.fromkeys(names)]


def known_law(name: str) -> str:
    """The name of a law, or a UsageError with the nearest one."""
    from shapleymix.laws import BLACK_BOXES, LAWS

    known = (*LAWS, *BLACK_BOXES)
    if name not in known:
        raise UsageError(f"there is no law {name!r}", hint=did_you_mean(name, known))
    return name


def _from_file(text: str) -> Contender:
    """The object `Name` of `file.py:Name`."""
    path, _, name = text.rpartition(":")
    module = _module(path)
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = did_you_mean(name, public)
        raise UsageError(f"holds no {name!r}", hint=hint, location=Location(file=path))
    return getattr(module, name)


def _module(path: str) -> ModuleType:
    """A user's file as a module, under its own name so that its dataclasses can be found again."""
    if not Path(path).is_file():
        raise UsageError("there is no such file", location=Location(file=path), hint="write --laws my_law.py:MyLaw")
    spec = importlib.util.spec_from_file_location(f"shapleymix_user_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file may do
        raise _users_fault(error, path, "cannot be imported") from error
    return module


@contextmanager
def blaming(laws: Sequence[object] | None) -> Iterator[None]:
    """Say of an error that a user's own law raised that it is theirs, with its line."""
    modules = [sys.modules.get(getattr(law, "__module__", "")) for law in laws or () if not isinstance(law, str)]
    files = {getattr(module, "__file__", None) for module in modules}
    try:
        yield
    except ShapleyMixError:
        raise
    except Exception as error:
        for path in filter(None, files):
            if _last_line(error, path):
                raise _users_fault(error, path, "failed") from error
        raise


def _users_fault(error: Exception, path: str, what: str) -> UsageError:
    line = getattr(error, "lineno", None) or _last_line(error, path)
    message = f"{what}, {type(error).__name__}: {error}"
    return UsageError(message, location=Location(file=path, line=line))


def _last_line(error: Exception, path: str) -> int | None:
    """Line of the user's file that raised, or None where the error did not pass through it."""
    trace, line, own = error.__traceback__, None, os.path.abspath(path)
    while trace is not None:
        if os.path.abspath(trace.tb_frame.f_code.co_filename) == own:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
