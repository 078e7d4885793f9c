"""An evaluated step: its projections, its validation sequences and its training calls, until their sums are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from torch import Tensor, nn

from shapleymix_irds.accounts.step import Pending, Sums, close, over_parts
from shapleymix_irds.arrangement import Arrangement
from shapleymix_irds.batch import Piece, ValidationSet, halves
from shapleymix_irds.distributed import World
from shapleymix_irds.engines.base import LossFn
from shapleymix_irds.engines.midpoint import at_midpoint
from shapleymix_irds.engines.observer import Observer, Watched
from shapleymix_irds.engines.rows import Labels
from shapleymix_irds.engines.sketches import Form, share_of_step
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.options import Setting
from shapleymix_irds.rates import Rates
from shapleymix_irds.wrappers import check_attention, check_averaged, check_hooks, check_wrappers

Engine = Literal["auto", "sketch", "exact"]
ROOM = 2**22  # numbers of exact gradients by group that "auto" holds


class Evaluator:
    """What a tracker evaluates its steps with.

    Attributes
    ----------
    loss_fn : LossFn, optional
        The loss of validation sequences; `backward` gives its own.
    sample : Piece, optional
        Training sequences on which the model is looked at where there is no validation set.
    share : float
        Multiplications of sketches over those of a plain step.
    """

    def __init__(
        self,
        model: nn.Module,
        world: World,
        languages: Sequence[str],
        validation: ValidationSet | None,
        engine: Engine,
        form: Form,
        order: Literal[1, 2],
        any_divisor: bool = False,
        arrangement: Arrangement | None = None,
    ) -> None:
        self.arrangement = arrangement or Arrangement()
        self.any_divisor = any_divisor
        self.world, self.languages, self.validation, self.order = world, tuple(languages), validation, order
        self.groups = len(languages) * (2 if validation is None else 1)
        weights = [p for p in model.parameters() if p.requires_grad]
        numbers = self.groups * sum(p.numel() for p in weights)
        exact = engine == "exact" or (engine == "auto" and numbers <= ROOM)
        form = Form(0, 0) if exact else form
        self.observer = Observer(model, world, form, len(languages), self.arrangement)
        self.share = share_of_step(((p.shape[0], p.shape[1]) for p in weights if p.dim() == 2), form)
        self.loss_fn: LossFn | None = None
        self.sample: Piece | None = None
        self.evaluation, self.known = 0, False

    def settings(self) -> dict[str, Setting]:
        """What must not change over a resume."""
        form = self.observer.layout.form
        return {"order": self.order, "engine": self.observer.name, "numbers": form.width, "side": form.side}

    @property
    def passed(self) -> str | None:
        """Which parameters take a pass a language, in words."""
        names = sorted(self.observer.coverage.passed)
        return f"a pass a language for {', '.join(names)}" if names else None

    @contextmanager
    def watch(
        self,
        pending: Pending,
        indices: Tensor,
        length: int | None,
        evaluation: int,
        seed: int,
        kinds: Callable[[], Mapping[str, int]] = dict,
    ) -> Iterator[tuple[Watched, Labels]]:
        """One call of an evaluated step: whose language each sequence (B,) or token (B, S) is, and S if known.

        `kinds` tells parameters that may have different learning rates (see `Layout`).

        Raises
        ------
        CoverageError
            See `Observer.watch`.
        """
        if pending.calls == 1:
            self.evaluation = evaluation
            self.observer.open(seed * 1_000_003 + pending.step)
            self.observer.layout = replace(self.observer.layout, kinds=kinds())
            self.check()
            self._look()
            if self.order == 1:
                self._validate()
        turn = self.world.rank + pending.calls + 1
        groups = halves(indices, len(self.languages), turn) if self.validation is None else indices
        labels = self.observer.labels(groups.to(self.observer.device), self.groups, length)
        with self.observer.watch(labels, self._validate) as watched:
            yield watched, labels

    def finish(self, pending: Pending, rates: Rates) -> Sums:
        """The sums of the step, with gradients in `.grad` as the optimiser gets them."""
        if not self.arrangement.scattered:
            check_averaged(self.observer.parameters, self.world, pending.step)
        if self.order == 2:
            with at_midpoint(self.observer.parameters, rates.moves):
                self._validate()
            self.observer.coverage.agree(self.observer.device, by_passes=False)
        if self.arrangement.divisor is not None:  # in place of the number of ranks
            rates = replace(rates, grad_scale=rates.grad_scale * self.arrangement.divisor / self.world.size)
        args = (pending, self.observer, self.world, self.languages, rates, self.any_divisor)
        if self.arrangement.parts is None:
            return close(*args)
        return over_parts(partial(close, *args), self.arrangement.parts, pending.step)

    def check(self) -> None:
        """Refuse wrappers and hooks under which values would be wrong; before any pass, since ranks pass different
        sequences."""
        check_wrappers(self.observer.model, self.observer.parameters, self.world, self.arrangement.divisor)
        check_hooks(self.observer.parameters)
        check_attention()

    def _look(self) -> None:
        """Before the first evaluation: what is covered."""
        if self.known:
            return
        sample = self.sample if self.validation is None else self.validation.sample(self.observer.device)
        if sample is not None:
            self.observer.rehearse(self._loss(), sample)
        self.known, self.sample = True, None

    def _validate(self) -> None:
        if self.validation is not None:
            world, device = self.world, self.observer.device
            pieces = self.validation.share(self.evaluation, world.rank, world.size, device)
            self.observer.validated = self.observer.validate(self._loss(), pieces)

    def _loss(self) -> LossFn:
        if self.loss_fn is None:
            hint = "give the tracker `loss_fn`, which it needs for validation sequences"
            raise TrackerError("`watch` has no loss for validation sequences", hint=hint)
        return self.loss_fn
