"""Files as the commands take them: logs with their notices, fits, laws by name or in a user's own file."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from shapleymix.errors import Location, ShapleyMixError, UsageError, did_you_mean
from shapleymix_cli.console import Output

if TYPE_CHECKING:
    from shapleymix.fitting.fits import Fit
    from shapleymix.records import Record
    from shapleymix.tables.languages import Languages
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.simplex import MixtureSpec
    from shapleymix.tables.transfer import TransferMatrix

Kind = Literal["raw", "normalized"] | None

TABLES = (".csv", ".csv.gz", ".parquet", ".pq", ".jsonl", ".ndjson")


def read_log(out: Output, paths: Sequence[str], *, losses: Literal["required", "optional"] = "required") -> RunLog:
    """One or several run logs as one, saying what reading changed."""
    from shapleymix.tables.run_reading import read_runs
    from shapleymix.tables.runs import concat

    if len([path for path in paths if path == "-"]) > 1:
        raise UsageError("standard input can be read only once", hint="give - once")
    logs = [read_runs(path, losses=losses) for path in paths]
    for path, one in zip(paths, logs, strict=True):
        out.used(path, one.digest)
    log = concat(logs)
    out.note(log.notices)
    return log


def read_matrix(out: Output, path: str | None, kind: Kind = None) -> TransferMatrix | None:
    """The transfer matrix of `--sv`."""
    return None if path is None else matrix_of(out, path, kind)


def matrix_of(out: Output, path: str, kind: Kind = None) -> TransferMatrix:
    """A transfer matrix, saying what reading it brought up."""
    from shapleymix.tables.transfer_reading import read_transfer

    matrix = read_transfer(path, kind=kind)
    out.used(path, matrix.provenance.get("digest") or sha256_of(matrix))
    notice = matrix.provenance.get("notice")
    out.warn([f"{path}: {notice}"] if notice else [])
    return matrix


def read_table(out: Output, path: str | None) -> Languages | None:
    """The languages table of `--languages`."""
    return None if path is None else languages_of(out, path)


def languages_of(out: Output, path: str) -> Languages:
    """A languages table, saying what reading it left out."""
    from shapleymix.tables.languages import read_languages

    table = read_languages(path)
    out.used(path, table.digest)
    out.note(f"{path}: {notice}" for notice in table.notices)
    return table


def load_fit(out: Output, path: str) -> Fit:
    """What `shapleymix fit -o` wrote."""
    from shapleymix.fitting.fits import Fit

    if path.lower().endswith(TABLES):
        hint = "the first argument is what `shapleymix fit -o fit.json` writes"
        raise UsageError("is a table, not a fit", location=Location(file=path), hint=hint)
    fit = Fit.load(path)
    out.used(path, sha256_of(fit))
    return fit


def sha256_of(record: Record) -> str:
    """Hash of the file that a result was loaded from."""
    assert record.read_from is not None
    return record.read_from.sha256


def named_mixtures(mixtures: Sequence[str]) -> dict[str, MixtureSpec]:
    """The mixtures by name; `plan=en=0.5,de=0.5` has one, any other is its own.

    Raises
    ------
    UsageError
        If two different mixtures have one name.
    """
    from shapleymix.mixing.baselines import rivals_of

    found: dict[str, MixtureSpec] = {}
    for text in dict.fromkeys(mixtures):
        ((name, given),) = rivals_of([text]).items()
        if name in found:
            raise UsageError(f"two mixtures are named {name!r}", hint="give each its own name: --mixture NAME=MIX")
        found[name] = given
    return found


def laws_of(text: str | None) -> list[Any] | None:
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


def _from_file(text: str) -> Any:
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
def blaming(laws: Sequence[Any] | None) -> Iterator[None]:
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
