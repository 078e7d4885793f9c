"""Which engine measures a run: the one asked for, or, with "auto", the grouped one while every call is covered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor, nn

from shapleymix_irds.batch import Batch
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.base import Outcome, Task
from shapleymix_irds.engines.grouped import GroupedEngine, agree, check_coverage
from shapleymix_irds.engines.micro import MicroEngine
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.options import Options, Setting

Wanted = Literal["auto", "grouped", "micro"]


@dataclass
class Choice:
    """The engine of one tracker; `engine` is chosen at the first evaluated step.

    Attributes
    ----------
    wanted, order, optimizer : str, int and Optimizer
        Settings of the tracker: `engine`, `order` and `precondition`.
    fallback : str, optional
        Why "auto" has taken micro-batches, if the grouped engine was tried.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    world: World
    wanted: Wanted
    order: Literal[1, 2]
    optimizer: torch.optim.Optimizer | None
    languages: int
    options: Options
    engine: GroupedEngine | MicroEngine | None = field(default=None, init=False)
    fallback: str | None = field(default=None, init=False)

    def settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        return {"order": self.order, "engine": self.wanted, "preconditioned": self.optimizer is not None}

    def run(self, task: Task, whole_val: Callable[[], Batch | None], step: int) -> Outcome:
        """What the engine finds. Micro-batches pass all of an evaluation's validation sequences, `whole_val`, once a
        step, in place of the call's own.

        Raises
        ------
        CoverageError
            If the grouped engine was asked for and a call is not covered.
        """
        try:
            engine = self._chosen(task)
            if isinstance(engine, GroupedEngine):
                return engine.run(task)
        except CoverageError as error:
            if self.wanted == "grouped":
                raise
            self.fallback = f"step {step}: {error.message}"
            engine = self.engine = self._micro()
        return engine.run(replace(task, val=whole_val()))

    def finish(self, lr: float) -> Tensor | None:
        """The products of second order, at commit."""
        assert self.engine is not None, "an evaluated step has run"
        return self.engine.finish(lr)

    def forget(self) -> None:
        """Let go what a step that failed has left."""
        if isinstance(self.engine, MicroEngine):
            self.engine.forget()

    def _chosen(self, task: Task) -> GroupedEngine | MicroEngine:
        if self.engine is None:
            if self._may_group():
                self._probe(task)
                self.engine = GroupedEngine(self.model, self.world, self.options.chunk_mib)
            else:
                self.engine = self._micro()
        return self.engine

    def _probe(self, task: Task) -> None:
        """Look at a few sequences; what one rank finds in its own counts for all, lest engines differ."""
        fault = None
        try:
            check_coverage(self.model, self.parameters, task)
        except CoverageError as error:
            fault = error
        agree(self.world, fault, task.batch.x.device)

    def _may_group(self) -> bool:
        whole = self.order == 2 or self.optimizer is not None
        many = self.wanted == "auto" and self.languages <= self.options.micro_batches
        return self.wanted != "micro" and not whole and not many

    def _micro(self) -> MicroEngine:
        return MicroEngine(self.model, self.parameters.values(), self.world, self.order, self.optimizer)
