"""What one rank meets, all ranks raise: an error of one that the others wait for would be a run that hangs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import torch.distributed as dist

from shapleymix.errors import Fault, ShapleyMixError
from shapleymix_irds.distributed import World

Given = TypeVar("Given")


class _Outcome(NamedTuple):
    """What an action gave, or the kind of its error and what was wrong."""

    given: object = None
    kind: type[ShapleyMixError] | None = None
    fault: Fault = Fault("")

    def value(self) -> object:
        """What was given; what was wrong is raised."""
        if self.kind is not None:
            raise self.kind.of([self.fault])
        return self.given


def on_every(world: World, action: Callable[[], Given]) -> list[Given]:
    """Do it on every rank; what it gave on each, by rank.

    Raises
    ------
    ShapleyMixError
        On every rank, what the first rank that failed has met.
    """
    outcomes = [_tried(action)]
    if world.size > 1:
        mine, outcomes = outcomes[0], [_Outcome()] * world.size
        dist.all_gather_object(outcomes, mine, group=world.group)
    return [cast(Given, outcome.value()) for outcome in outcomes]


def on_main(world: World, action: Callable[[], Given]) -> Given:
    """Do it on rank 0; what it gave there, on every rank.

    Raises
    ------
    ShapleyMixError
        On every rank, what rank 0 has met.
    """
    outcomes = [_tried(action) if world.main else _Outcome()]
    if world.size > 1:
        dist.broadcast_object_list(outcomes, src=0, group=world.group)
    return cast(Given, outcomes[0].value())


def _tried(action: Callable[[], object]) -> _Outcome:
    try:
        return _Outcome(action())
    except ShapleyMixError as error:
        return _Outcome(None, type(error), Fault(error.message, error.location, hint=error.hint))
