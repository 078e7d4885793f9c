"""Laws by name, or from a user's own file, whose faults are told as the user's."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from shapleymix.errors import Location, ShapleyMixError, UsageError, did_you_mean
from shapleymix.fitting.settings import AUTO

if TYPE_CHECKING:
    from shapleymix.fitting.candidates import Contender
    from shapleymix.fitting.fits import Fit
    from shapleymix.laws import Law

_PREFIX = "shapleymix_user_"
_EXAMPLE = "write my_law.py:MyLaw"


class UsersFault(UsageError):
    """An error of a user's own file, with its line."""


class OwnLaw(NamedTuple):
    """A law of a user's file, where it is from (`my_law.py:MyLaw`), and the SHA-256 of that file."""

    law: type[Law]
    text: str
    sha256: str

    @property
    def file(self) -> str:
        """The file's name."""
        return self.text.rpartition(":")[0]


def is_own(text: str) -> bool:
    """Whether a text says a law of a user's file, not one of the library."""
    return ".py:" in text


def laws_of(text: str | None) -> list[Contender] | None:
    """Laws from `shapley,learned-base,my_law.py:MyLaw`: names stay names, a user's own become what the file holds."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--laws names no law", hint="see `shapleymix laws`")
    return [_from_file(name)[0] if is_own(name) else known_law(name) for name in dict.fromkeys(names)]


def known_law(name: str) -> str:
    """The name of a law, or a UsageError with the nearest one."""
    from shapleymix.laws import BLACK_BOXES, LAWS

    known = (*LAWS, *BLACK_BOXES)
    if name not in known:
        raise UsageError(f"there is no law {name!r}", hint=did_you_mean(name, known))
    return name


def chosen_law(text: str) -> str | OwnLaw:
    """What to fit: `auto` and a law's name as they are, a user's own as what the file holds."""
    if is_own(text):
        return own_law(text)
    return text if text == AUTO else known_law(text)


def marked(fit: Fit, own: OwnLaw) -> Fit:
    """The fit with the place and the hash of its law in the provenance."""
    return replace(fit, provenance={**fit.provenance, "law_file": own.text, "law_sha256": own.sha256})


def changed(fit: Fit, own: OwnLaw) -> list[str]:
    """A warning where the file is not the one that was fitted.

    Raises
    ------
    UsageError
        If the fit holds another law than the file.
    """
    if type(fit.law) is not own.law:
        message = f"the fit holds law {fit.law.name!r}, not {own.text.rpartition(':')[2]}"
        written = fit.provenance.get("law_file")
        hint = f"give law_file={written}" if written else "leave out --law-file"
        raise UsageError(message, hint=hint, location=Location(file=own.file))
    if fit.provenance.get("law_sha256") in (None, own.sha256):
        return []
    return [f"{own.file} is not the file that was fitted (its SHA-256 differs): the law may be another"]


def own_law(text: str) -> OwnLaw:
    """The law that `my_law.py:MyLaw` says; fits that hold it can be read from then on.

    Raises
    ------
    UsageError
        If there is no such file or name, the file fails, or what it holds there is not a law that can be fitted and
        stored.
    """
    from shapleymix.laws import Law

    if not is_own(text):
        raise UsageError(f"{text!r} is no law of a file", hint=_EXAMPLE)
    found, digest = _from_file(text)
    place = Location(file=text.rpartition(":")[0])
    if not (inspect.isclass(found) and issubclass(found, Law)):
        hint = "fitting takes a subclass of shapleymix.laws.Law; `shapleymix compare` takes this one as it is"
        raise UsageError(f"{text.rpartition(':')[2]} is no law that can be fitted", hint=hint, location=place)
    return OwnLaw(found, text, digest)


def _from_file(text: str) -> tuple[Contender, str]:
    """The object `Name` of `file.py:Name`, and the hash of the file."""
    path, _, name = text.rpartition(":")
    module, digest = _module(path)
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = did_you_mean(name, public)
        raise UsageError(f"holds no {name!r}", hint=hint, location=Location(file=path))
    return getattr(module, name), digest


def _module(path: str) -> tuple[ModuleType, str]:
    """A user's file, read once, as a module under a name of its own so that its dataclasses can be found again."""
    if not Path(path).is_file():
        raise UsageError("there is no such file", location=Location(file=path), hint=_EXAMPLE)
    own = os.path.abspath(path)
    module = ModuleType(f"{_PREFIX}{Path(path).stem}_{sha256(os.fsencode(own)).hexdigest()[:8]}")
    module.__file__ = own
    sys.modules[module.__name__] = module
    try:
        content = Path(path).read_bytes()
        exec(compile(content, own, "exec"), vars(module))
    except Exception as error:  # whatever a user's file may do
        raise _users_fault(error, own, "cannot be imported") from error
    return module, sha256(content).hexdigest()


@contextmanager
def blaming() -> Iterator[None]:
    """Say of an error that began in a user's own file that it is theirs, with its line."""
    try:
        yield
    except UsersFault:
        raise
    except Exception as error:
        files = [module.__file__ for name, module in list(sys.modules.items()) if name.startswith(_PREFIX)]
        for cause in _causes(error):
            for path in filter(None, files):
                if _last_line(cause, path):
                    raise _users_fault(cause, path, "failed") from error
        raise


def _causes(error: BaseException) -> Iterator[Exception]:
    """The errors, this one and those that it was raised from, that are not the library's own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, Exception) and not isinstance(cause, ShapleyMixError):
            yield cause
        cause = cause.__cause__


def _users_fault(error: Exception, path: str, what: str) -> UsersFault:
    line = getattr(error, "lineno", None) or _last_line(error, path)
    message = f"{what}, {type(error).__name__}: {error}"
    return UsersFault(message, location=Location(file=path, line=line))


def _last_line(error: Exception, path: str) -> int | None:
    """Line of the user's file that raised, or None where the error did not pass through it."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
