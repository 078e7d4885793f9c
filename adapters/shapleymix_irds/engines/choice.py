"""Which engine measures a run: the one asked for, or, with "auto", the grouped one while every call is covered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor, nn

from shapleymix_irds.batch import Batch
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.base import Outcome, Task
from shapleymix_irds.engines.grouped import LENGTH_HINT, GroupedEngine, agree, check_coverage, of_other_length
from shapleymix_irds.engines.isolated import Isolation
from shapleymix_irds.engines.micro import MicroEngine
from shapleymix_irds.engines.rows import apart
from shapleymix_irds.errors import CoverageError
from shapleymix_irds.options import Options, Setting
from shapleymix_irds.wrappers import check_attention, check_averaged, check_hooks, check_wrappers

Wanted = Literal["auto", "grouped", "micro"]


@dataclass
class Choice:
    """The engine of one tracker, chosen at the first evaluated step.

    Attributes
    ----------
    wanted, order : str and int
        Settings of the tracker: `engine` and `order`.
    engine : GroupedEngine or MicroEngine, optional
        The engine of the last call.
    fallback : str, optional
        Why "auto" has taken micro-batches, if the grouped engine was tried.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    world: World
    wanted: Wanted
    order: Literal[1, 2]
    languages: int
    options: Options
    engine: GroupedEngine | MicroEngine | None = field(default=None, init=False)
    fallback: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_wrappers(self.model, self.parameters, self.world)
        self.isolation = Isolation(self.model, self.parameters.values(), self.world)
        self.micro = MicroEngine(self.isolation, self.world, self.order)
        self.chosen: GroupedEngine | None = None
        self.micro_only = False  # the grouped engine has failed
        self.looked = False
        self.misplaced: CoverageError | None = None

    def settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        return {"order": self.order, "engine": self.wanted}

    def run(self, task: Task, whole_val: Callable[[], Batch | None], step: int) -> Outcome:
        """What the engine finds. Micro-batches pass all of an evaluation's validation sequences, `whole_val`, once a
        step, in place of the call's own.

        Raises
        ------
        CoverageError
            If no engine can be right, or the grouped engine was asked for and a call is not covered.
        """
        check_wrappers(self.model, self.parameters, self.world)
        check_hooks(self.parameters)
        check_attention()
        self._look(task)
        if self._may_group() and not self._of_other_length(task, step):
            try:
                self.engine = self.chosen = self.chosen or self._probed(task)
                return self.engine.run(task)
            except CoverageError as error:
                if self.wanted == "grouped":
                    raise
                self.fallback, self.micro_only = f"step {step}: {error.message}", True
        self.engine = self.micro
        return self.micro.run(replace(task, val=whole_val()))

    def finish(self, lr: float, step: int) -> Tensor | None:
        """At commit: have gradients been averaged over ranks? Then the products of second order, or None."""
        check_averaged(self.parameters, self.world, step)
        return self.micro.finish(lr)

    def forget(self) -> None:
        """Let go what a step that failed has left."""
        self.micro.forget()

    def _look(self, task: Task) -> None:
        """At the first call: do sequences stay apart, at all and in each layer?"""
        if not self.looked:
            mixed, self.misplaced = apart(self.model, task)
            agree(self.world, mixed)
            self.looked = True

    def _of_other_length(self, task: Task, step: int) -> bool:
        """Whether on any rank this call's sequences are not as long as validation sequences; then it goes by
        micro-batches, the only engine for it."""
        fault = of_other_length(task)
        if not self.world.any(fault is not None):
            return False
        if self.wanted == "grouped":
            raise fault or CoverageError("another rank has sequences of another length", hint=LENGTH_HINT)
        self.fallback = self.fallback or f"step {step}: {fault.message if fault else 'lengths differ between ranks'}"
        return True

    def _probed(self, task: Task) -> GroupedEngine:
        """Look at a few sequences; what one rank finds in its own counts for all, lest engines differ."""
        fault = self.misplaced
        try:
            check_coverage(self.isolation, self.parameters, task)
        except CoverageError as error:
            fault = error
        agree(self.world, fault)
        return GroupedEngine(self.model, self.world, self.options.chunk_mib)

    def _may_group(self) -> bool:
        many = self.wanted == "auto" and self.languages <= self.options.micro_batches
        return self.wanted != "micro" and self.order == 1 and not many and not self.micro_only
