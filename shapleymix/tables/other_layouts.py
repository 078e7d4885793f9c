"""What to say of tables that are no run logs as they stand: how they are read, or what a map took for languages."""

from __future__ import annotations

from shapleymix.errors import LayoutError, Location
from shapleymix.tables.importing.column_map import ColumnMap
from shapleymix.tables.importing.patterns import matches
from shapleymix.tables.importing.recognising import TOOLS, guessed
from shapleymix.tables.importing.usual_maps import with_usual
from shapleymix.tables.run_columns import Roles, lacking
from shapleymix.tables.sheets import Sheet


def of_other_kind(sheet: Sheet, raw: Sheet | None = None) -> LayoutError | None:
    """What to do with a table that is no run log as it stands; None where it looks like one with faults."""
    tool = raw is not None and raw.kind in TOOLS
    guess = guessed(raw, with_usual(ColumnMap(), raw)) if raw is not None and tool else guessed(sheet)
    if not tool and (not guess.certain or sheet.places):
        return None
    lacks = lacking(sheet, need_losses=True)
    kind = f"is {guess.kind}" if guess.kind else "is written otherwise than a run log"
    message = f"{kind}: it has no {', no '.join(lacks)}" if lacks else kind
    hint = f"read it with {', '.join(f'{name}={value!r}' for name, value in guess.keywords.items())}"
    return LayoutError(message, hint=hint, location=Location(sheet.origin), reading=guess.keywords)


def of_foreign_ratios(sheet: Sheet, roles: Roles) -> LayoutError | None:
    """What to do with a log of our names whose ratios have others: they are of its targets, or sum to a whole."""
    guess = guessed(sheet)
    if "p" not in guess.map or sheet.places:
        return None
    shared = set(matches(guess.map["p"], sheet.columns)) & set(roles.losses)
    return of_other_kind(sheet) if len(shared) > 1 or guess.options.get("ratio_unit") != "weights" else None


def strangers(sheet: Sheet, roles: Roles) -> list[str]:
    """What to say where a map gives sources and targets that have no name in common."""
    known = sheet.places and roles.sources and len(roles.losses) > 1
    if not known or set(roles.sources) & set(roles.losses):
        return []
    sources, targets = (", ".join([*names][:3]) for names in (roles.sources, roles.losses))
    return [
        f"no target is called as a source is ({sources}; {targets}): are the patterns of the map those of languages?"
    ]
