"""Files as the commands take them: logs, matrices, languages tables, fits and mixtures, each with its notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from shapleymix.errors import LayoutError, Location, MixedError, StoreError, UsageError
from shapleymix.files import STANDARD_INPUT, is_table_name
from shapleymix_cli.console import Output
from shapleymix_cli.reading import Logs, import_command

if TYPE_CHECKING:
    from shapleymix.fitting.fits import Fit
    from shapleymix.records import Record
    from shapleymix.sweeping.listed import Listed
    from shapleymix.sweeping.plans import Plan
    from shapleymix.tables.languages import Languages
    from shapleymix.tables.runs import RunLog
    from shapleymix.tables.transfer import TransferMatrix

R = TypeVar("R", bound="Record")
Kind = Literal["raw", "normalized"] | None


def read_log(out: Output, logs: Logs, *, losses: Literal["required", "optional"] = "required") -> RunLog:
    """One or several run logs as one, saying what reading changed."""
    from shapleymix.tables.run_reading import read_runs

    if len([path for path in logs.paths if path == "-"]) > 1:
        raise UsageError("standard input can be read only once", hint="give - once")
    try:
        log = read_runs(logs.paths, losses=losses, **logs.how)
    except LayoutError as error:
        raise LayoutError(error.message, hint=_command(error, logs), location=error.location) from error
    except MixedError as error:
        hint = _commands(error, logs)
        raise MixedError(error.message, hint=hint, location=error.location) from error
    for one in log.files:
        out.used("-" if one.file == STANDARD_INPUT else one.file, one.sha256)
    out.note(log.notices)
    return log


def _command(error: LayoutError, logs: Logs) -> str:
    """The command that may read a table of another kind."""
    path = error.location.file or STANDARD_INPUT
    given = logs.paths if path in logs.paths else ["-" if path == STANDARD_INPUT else path]
    command = import_command(given, {**logs.how, **error.reading})
    return f"if that is so, read it with: {command}"


def _commands(error: MixedError, logs: Logs) -> str:
    """The ways to have every log of a call read in its own way."""
    suited = error.suited[0]
    odd, how = (suited, logs.how) if error.own else (error.others[0], {})
    map = import_command([odd], how, f"{Path(odd).stem}-map.toml", to="--write-map")
    log = import_command([suited], logs.how, f"{Path(suited).stem}-runs.csv")
    return f"name a map file in the place of {odd}, or what is imported first: {map}; or: {log}"


def read_matrix(out: Output, path: str | None, kind: Kind = None) -> TransferMatrix | None:
    """The transfer matrix of `--transfer`."""
    return None if path is None else matrix_of(out, path, kind)


def matrix_of(out: Output, path: str, kind: Kind = None) -> TransferMatrix:
    """A transfer matrix, saying what reading it brought up."""
    from shapleymix.tables.transfer_reading import read_transfer

    matrix = read_transfer(path, kind=kind)
    out.used(path, sha256_of(matrix) if matrix.read_from else matrix.provenance["digest"])
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


def load_fit(out: Output, path: str, law_file: str | None = None, likes: Sequence[str] = ()) -> Fit:
    """What `shapleymix fit -o` wrote, with the sources of `--like`.

    A fit of a user's own law needs the law's file, `my_law.py:MyLaw`.
    """
    from shapleymix.fitting.fits import Fit
    from shapleymix.fitting.likeness import like
    from shapleymix.records import IMPORT_FIRST
    from shapleymix_cli import own_laws

    if is_table_name(path):
        hint = "the first argument is what `shapleymix fit -o fit.json` writes"
        raise UsageError("is a table, not a fit", location=Location(file=str(path)), hint=hint)
    own = None if law_file is None else own_laws.own_law(law_file)
    try:
        fit = Fit.load(path)
    except StoreError as error:
        if error.hint != IMPORT_FIRST:
            raise
        hint = "name the file of the law, as it was given to fit: --law-file my_law.py:MyLaw"
        raise StoreError(f"{error.message} of the library", location=error.location, hint=hint) from error
    out.used(path, sha256_of(fit))
    if own is not None:
        out.used(own.file, own.sha256)
        out.warn(own_laws.changed(fit, own))
    if not likes:
        return fit
    fit = like(fit, likes)
    out.warn(f"little is known of the effect of {new}: {fit.thin[new]}" for new in fit.coverage.alike)
    return fit


def read_mixture_table(out: Output, path: str) -> Listed:
    """A table of mixtures, saying what reading changed."""
    from shapleymix.sweeping.listed import read_mixtures

    table = read_mixtures(path)
    out.used(path, str(table.provenance["digest"]))
    out.note(table.notices)
    return table


def read_sweep(out: Output, path: str) -> Plan:
    """The plan of runs in a `runs.jsonl`."""
    from shapleymix.sweeping.plans import read_plan

    plan = read_plan(path)
    out.used(path, plan.digest)
    return plan


def load_record(out: Output, kind: type[R], path: str) -> R:
    """A result of a kind, from the document in which a command saved it."""
    found = kind.load(path)
    out.used(path, sha256_of(found))
    return found


def sha256_of(record: Record) -> str:
    """Hash of the file that a result was loaded from."""
    assert record.read_from is not None
    return record.read_from.sha256
