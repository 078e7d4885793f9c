"""Many problems as one: terms stacked along a new leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from shapleymix.laws.terms import MATRICES, Terms
from shapleymix.records import BoolArray


def stacked(members: Sequence[Terms]) -> Terms:
    """Terms of several budgets with one more leading axis; fields that all members share are stored once."""
    if len(members) == 1:
        return _map(members[0], lambda value: np.asarray(value)[None])
    first = members[0]
    changes = {}
    for field in fields(first):
        values = [getattr(member, field.name) for member in members]
        if values[0] is not None:
            changes[field.name] = _stack(values, first.batch, field.name in MATRICES)
    return replace(first, **changes)


def finite_members(terms: Terms) -> BoolArray:
    """Which members of the one leading axis have finite numbers only."""
    flat = terms.flat()
    sane = np.ones(terms.batch, dtype=bool).reshape(-1)
    for field in fields(flat):
        value = getattr(flat, field.name)
        if value is not None:
            sane &= np.isfinite(value).reshape(len(sane), -1).all(axis=1)
    return sane


def _stack(values: list[Any], batch: tuple[int, ...], matrix: bool) -> Any:
    tail = 2 if matrix else 1
    arrays = [np.asarray(value, dtype=float) for value in values]
    shared = arrays[0].ndim == tail and all(array is values[0] for array in values)
    if shared:
        return arrays[0]
    whole = [np.broadcast_to(array, batch + array.shape[-tail:]) for array in arrays]
    return np.stack(whole)


def _map(terms: Terms, change: Any) -> Terms:
    present = {field.name: getattr(terms, field.name) for field in fields(terms)}
    return replace(terms, **{name: change(value) for name, value in present.items() if value is not None})
