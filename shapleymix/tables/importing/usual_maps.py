"""What tools call their columns, where their form fixes it: a map that holds unless the user's says otherwise."""

from __future__ import annotations

from shapleymix.tables.importing.column_map import ColumnMap, Columns, One
from shapleymix.tables.importing.patterns import matches
from shapleymix.tables.panels import PANEL
from shapleymix.tables.sheets import Sheet

OLMIX = "olmix"
"""Kind of a pair of tables, `metrics` with `ratios` joined."""

_LOSSES = {
    "trainer_state": ("eval_{lang}_loss", "eval_loss"),
    "megatron": ("validation-{lang}: lm loss", "validation: lm loss"),
    OLMIX: ("metrics:{lang}", "metrics:{lang}"),
}
_TOKENS = {
    "trainer_state": ("num_input_tokens_seen", "step"),
    "megatron": ("tokens", "iteration"),
    "tensorboard": ("tokens", "step"),
    "mlflow": ("tokens", "step"),
    "wandb": ("tokens", "_step"),
    PANEL: ("tokens", "Step"),
}
"""The column of the tokens seen, and that of steps, for `tokens_per_step`."""


def with_usual(map: ColumnMap, sheet: Sheet) -> ColumnMap:
    """The map with what it leaves open as the table's tool calls it."""
    if not sheet.kind:
        return map
    roles: dict[str, One] = {"run": "run"} if "run" in sheet.columns else {}
    tokens, step = _TOKENS.get(sheet.kind, ("", ""))
    column = step if map.tokens_per_step is not None else tokens
    if column in sheet.columns and "D" not in sheet.columns:
        roles["D"] = column
    labelled: dict[str, Columns] = {}
    if sheet.kind in _LOSSES:
        several, one = _LOSSES[sheet.kind]
        labelled["loss"] = several if matches(several, sheet.columns) else one
    if sheet.kind == OLMIX:
        labelled["p"] = "ratios:{lang}"
    ignore = ("name", "index", "ratios:name", "ratios:index") if sheet.kind == OLMIX else ()
    return map.over(ColumnMap(roles, labelled, ignore=ignore))


def is_history(sheet: Sheet) -> bool:
    """Whether the rows are steps of training: those without any loss say nothing."""
    return sheet.kind in _TOKENS
