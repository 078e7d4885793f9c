"""Which column of a run log is what, by its name; what is missing, misspelt, or means nothing."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shapleymix.errors import Fault, did_you_mean
from shapleymix.tables.importing.summaries import as_map, summaries, taken_for_language
from shapleymix.tables.names import check_label
from shapleymix.tables.runs import COUNTS, UNIQUE
from shapleymix.tables.sheets import Sheet
from shapleymix.tables.spelling import SAME_NAME, lookalikes, twin_fault

REQUIRED = ("N", "D")
OPTIONAL = ("run", "weight", "split", "seed")
_ID_NAMES = {"run", "runs", "runid", "runname", "id", "name", "experiment", "experimentid", "experimentname", "model"}
_PREFIXES = ("p_", "loss_", "tokens_")
_NAMED_LIKE = (
    "columns are run, N, D, p_<source> or tokens_<source>, loss_<target>, weight, split, seed, tokens_unique_<source>"
)


@dataclass
class Roles:
    """What each column of a sheet is; `ratios`, `tokens`, `unique` and `losses` map labels to columns."""

    ratios: dict[str, str] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    unique: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)

    def group(self, column: str) -> dict[str, str]:
        """The labels that a prefixed column belongs to."""
        prefix = column.split("_", 1)[0]
        return {"p": self.ratios, "loss": self.losses, "tokens": self.tokens}[prefix]

    @property
    def sources(self) -> tuple[str, ...]:
        """Labels of the sources, in the order of their columns."""
        return tuple(self.ratios or self.tokens)


def roles_of(sheet: Sheet, faults: list[Fault]) -> Roles:
    """What each column is, by its name; labels that cannot be used are faults."""
    roles = Roles()
    for column in sheet.columns:
        if column.startswith(UNIQUE):
            roles.unique[column.removeprefix(UNIQUE)] = column
        elif column in COUNTS:
            roles.ignored.append(column)
        elif column.startswith(_PREFIXES):
            label = column.split("_", 1)[1]
            problem = check_label(label)
            if problem:
                hint = "write p_<source> and loss_<target> with plain labels such as p_en"
                faults.append(sheet.header_fault(column, f"the label {label!r} of column {column!r} {problem}", hint))
            roles.group(column)[label] = column
        elif column not in (*REQUIRED, *OPTIONAL, "loss"):
            roles.ignored.append(column)
    if "loss" in sheet.columns and roles.losses:
        roles.ignored.append("loss")
    elif "loss" in sheet.columns:
        roles.losses["loss"] = "loss"
    faults.extend(_twins(sheet, roles))
    faults.extend(_strays(sheet, roles))
    return roles


def _strays(sheet: Sheet, roles: Roles) -> Iterator[Fault]:
    """Unique tokens of what is no source."""
    for label, column in roles.unique.items():
        if label not in roles.sources:
            message = f"{column!r} is of a source {label!r} that has no ratios"
            yield sheet.header_fault(column, message, did_you_mean(label, roles.sources))


def _twins(sheet: Sheet, roles: Roles) -> Iterator[Fault]:
    """Labels that look alike and differ, also of a source and a target: one language would be taken for two."""
    column = {**roles.losses, **roles.tokens, **roles.ratios}
    for name, twin in lookalikes([*roles.sources, *roles.losses]).items():
        yield sheet.header_fault(column[name], f"the label {twin_fault(name, twin)}", SAME_NAME)


def lacking(sheet: Sheet, need_losses: bool) -> list[str]:
    """The names of columns that the sheet has none of."""
    starts = {"p_<source>": ("p_", "tokens_")} | ({"loss_<target>": ("loss_",)} if need_losses else {})
    absent = [name for name in REQUIRED if name not in sheet.columns]
    absent += [name for name, known in starts.items() if not any(column.startswith(known) for column in sheet.columns)]
    return [name for name in absent if not (name == "loss_<target>" and "loss" in sheet.columns)]


def header_faults(sheet: Sheet, roles: Roles, need_losses: bool) -> Iterator[Fault]:
    """Columns that a log cannot be without, with what may have been meant."""
    has_budget = REQUIRED[:1] if roles.tokens else REQUIRED
    for column in (name for name in has_budget if name not in sheet.columns):
        counts = [name for name in roles.ignored if column == "D" and name in COUNTS]
        near = (
            f"is the column {counts[0]!r} meant? {as_map(f'D={counts[0]}')}" if counts else _near(column, roles.ignored)
        )
        yield sheet.header_fault(column, f"has no column {column!r}", near or _NAMED_LIKE)
    if "run" not in sheet.columns and (named := _ids(roles.ignored)):
        hint = f"is the column {named!r} meant? rename it to 'run', or say so: {as_map(f'run={named}')}"
        yield sheet.header_fault("run", "has no column 'run'", hint)
    if need_losses and not roles.losses:
        near = _near("loss_<target>", [name for name in roles.ignored if "los" in name.lower()])
        yield sheet.header_fault("loss", "has no loss_<target> column", near or _NAMED_LIKE)
    if roles.ratios and roles.tokens:
        yield sheet.header_fault("tokens", "has both p_ and tokens_ columns", "keep one of the two kinds")


def _ids(columns: list[str]) -> str | None:
    """A column that is called as ids of runs are."""
    return next((name for name in columns if re.sub(r"[\W_]", "", name.lower()) in _ID_NAMES), None)


def _near(name: str, candidates: list[str]) -> str | None:
    """A hint that names a column which looks like a misspelt `name`."""
    lowered = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    return f"is the column {lowered[close[0]]!r} meant? rename it to {name!r}" if close else None


def summary_notices(sheet: Sheet, roles: Roles) -> Iterator[str]:
    """Averages and the like that a log's own names call languages."""
    for columns in (roles.ratios or roles.tokens, roles.losses):
        own = {label: name for label, name in columns.items() if sheet.place(name).column == name != "loss"}
        yield from (taken_for_language(label, own[label]) for label in summaries(own, {}))


def ignored_notices(roles: Roles) -> Iterator[str]:
    """A line for all columns that mean nothing here, and one for each that looks misspelt."""
    labels = (*roles.sources, *roles.losses)
    known = [*OPTIONAL, *(f"{prefix}{label}" for prefix in (*_PREFIXES[:2], UNIQUE) for label in labels)]
    plain = []
    for column in roles.ignored:
        close = difflib.get_close_matches(column, known, n=1, cutoff=0.75) if column != "loss" else []
        if close and column.removeprefix(f"{close[0]}_") not in labels:
            yield f"ignored the column {column!r}: did you mean {close[0]!r}?"
        else:
            plain.append(column)
    if plain:
        yield f"ignored {len(plain)} columns: {', '.join(plain[:8])}{', ...' if len(plain) > 8 else ''}"
