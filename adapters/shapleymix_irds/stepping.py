"""A step between its first call and the optimiser: what it needs, and how it is booked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.optim import Optimizer

from shapleymix.records import Json
from shapleymix_irds.accounts.ledger import Evaluation
from shapleymix_irds.accounts.step import Call, Pending, clip_coefficient
from shapleymix_irds.checks import check_seen, check_step
from shapleymix_irds.errors import NonFiniteError, TrackerError
from shapleymix_irds.evaluating import Evaluator
from shapleymix_irds.following import Following, unwrapped
from shapleymix_irds.options import Options
from shapleymix_irds.rates import Group, Rates, numbered, rates_by_parameter
from shapleymix_irds.record import Record
from shapleymix_irds.schedule import Schedule


class Stepping(Record):
    """A record that is written step by step.

    Attributes
    ----------
    following : Following, optional
        The optimisers that commit by themselves.
    unsure : tuple of Pending and tensors, optional
        The last step, where the device has yet to tell that its optimisers did not skip it.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        evaluator: Evaluator,
        schedule: Schedule | None,
        options: Options,
        out: str | os.PathLike[str] | None,
        parameter_groups: Sequence[Group] | None,
    ) -> None:
        super().__init__(model, languages, evaluator, schedule, options, out)
        given = parameter_groups or [evaluator.observer.parameters.values()]
        self.parameter_groups = [group if isinstance(group, Mapping) else list(group) for group in given]
        self.one_rate = parameter_groups is None
        self.following: Following | None = None
        self.unsure: tuple[Pending, list[Tensor]] | None = None
        self._grouped()

    def follow(self, *optimizers: Optimizer) -> None:
        """From now on, commit when these optimisers take their steps: leave `commit` out.

        Learning rates are those of their parameter groups; what clipping, unscaling (also by a `GradScaler`) and
        averaging multiply gradients with is measured on evaluated steps. A step that they skip is not counted. Values
        are those of plain gradient descent at these rates, whatever the optimisers are.

        Parameters
        ----------
        optimizers : torch.optim.Optimizer
            All that train the model: a step is committed when each has been called.

        Raises
        ------
        TrackerError
            If a trained parameter is in no group of theirs, or one in a group is not the model's. Later, by
            `optimizer.step()`: if it is given a closure, or gradients were changed otherwise than by one factor for
            all of a parameter group since the backward pass.
        """
        if self.following is not None or self.pending is not None or not optimizers:
            raise TrackerError("call `follow` once, with all optimisers, and between two steps")
        if self.evaluator.order == 2 and len(optimizers) > 1:
            hint = "take order=1, or one optimiser of several parameter groups"
            raise TrackerError(
                "second order needs all weights to move at once, and there are several optimisers", hint=hint
            )
        following = Following([unwrapped(optimizer) for optimizer in optimizers], self.world)
        following.kinds(self.evaluator.observer.parameters, {})
        following.hook(self._stepping)
        self.following = following

    def unfollow(self) -> None:
        """Leave the optimisers that are followed, as for another tracker of theirs."""
        if self.following is not None:
            self._settle()
            self.following.leave()
            self.following = None

    def commit(
        self,
        *,
        lr: float | Sequence[float],
        grad_norm: float | Tensor | None = None,
        max_norm: float | None = None,
        grad_scale: float = 1.0,
    ) -> None:
        """Add the step to phi, after clipping and before `optimizer.step()`; cheap on steps not evaluated.

        Parameters
        ----------
        lr : float or sequence of float
            The scheduled learning rate of this step; several where the tracker knows as many `parameter_groups`.
        grad_norm, max_norm : float, optional
            The norm that `clip_grad_norm_` returned, and its limit, if the gradients were clipped.
        grad_scale : float
            What the loss was multiplied with before it was differentiated (`GradScaler.get_scale()`); of first order.
            A step that the scaler skips is left out by `skip`.
        """
        pending = self._by_hand()
        with self._dropping():
            lrs = rates_by_parameter(lr, self._grouped(), len(self.parameter_groups), pending.step)
            if self.evaluator.order == 2 and grad_scale != 1:
                told = "second order moves by what is in `.grad`, and commit cannot tell whether it is still scaled"
                raise TrackerError(f"step {pending.step}: {told}", hint="`follow` the optimiser, or take order=1")
            if pending.evaluated:
                clip = clip_coefficient(grad_norm, max_norm, pending.step)
                self._book(pending, Rates(lrs, dict.fromkeys(lrs, clip), grad_scale))
            elif not isinstance(grad_norm, Tensor):  # which would have to come from the device
                clip_coefficient(grad_norm, max_norm, pending.step)
        self._end(pending)

    def commit_rates(self, rates: Rates) -> None:
        """As `commit`, where a trainer knows by parameter what gradients are multiplied with."""
        pending = self._by_hand()
        with self._dropping():
            if pending.evaluated:
                self._book(pending, rates)
        self._end(pending)

    def skip(self) -> None:
        """In place of `commit`: the optimiser will not take the step, which is left out; its number may come again."""
        self._by_hand()
        self._drop()

    # -- between steps -------------------------------------------------------------------------------------

    def _check(self, step: int, tokens: int | None) -> int:
        """A call begins; a step that the optimisers have skipped is dropped, for the next one or its repetition."""
        self._take_back()
        pending, following = self.pending, self.following
        if pending is not None and following is not None:
            if pending.step != step or following.met:
                self._settle(again=pending.step == step)
            elif not pending.evaluated and following.cleared_since(self.evaluator.observer.parameters):
                self._drop()
        number = check_step(step, self.next_step)
        if self.pending is not None and (following is None or not self.pending.evaluated):
            self.pending.check_call(number, tokens)  # of an evaluated step, once it is known not to begin again
        return number

    def _settle(self, again: bool = False) -> None:
        """The step is over, and not all optimisers have come: they have skipped it; its number may come `again`."""
        pending, following = self.pending, self.following
        if pending is None or following is None:
            return
        if not following.skipped:
            if pending.evaluated:
                if not following.cleared(self.evaluator.observer.parameters):
                    hint = "call each optimiser in each step, or follow only those that are"
                    raise TrackerError(f"step {pending.step}: not all of the optimisers took it", hint=hint)
                self._book_followed(pending)
            self._end(pending)
            self.next_step -= again
        self._drop()

    def _drop(self) -> None:
        """The step that is under way is left out."""
        self.pending = None
        if self.following is not None:
            self.following.forget()

    def _take_back(self) -> None:
        """The last step is not counted after all, if its fused optimisers turn out to have skipped it."""
        unsure, self.unsure = self.unsure, None
        if unsure is not None and all(float(overflow) > 0 for overflow in unsure[1]):
            self.steps, self.tokens, self.next_step = self.steps - 1, self.tokens - unsure[0].total, unsure[0].step

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Resume; cuts log rows after the checkpoint.

        Raises
        ------
        ResumeError
            If it is no tracker's state, or its languages or settings differ from this tracker's.
        """
        super().load_state_dict(state)
        self.unsure = None

    def provenance(self) -> dict[str, Json]:
        """How the values came about, as the SV matrix carries it."""
        self._take_back()
        return super().provenance()

    def _check_whole(self) -> None:
        """A step that no optimiser has begun to take is not in a checkpoint, which is of the weights before it."""
        self._take_back()
        if self.following is None:
            super()._check_whole()
        elif self.following.met:
            self._settle()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """A step in which something fails is dropped, so that a later one can begin."""
        try:
            yield
        except BaseException:
            self._drop()
            raise

    def _by_hand(self) -> Pending:
        if self.following is not None:
            raise TrackerError("the tracker follows the optimiser, which commits", hint="leave `commit` out")
        return self._begun()

    def _begun(self) -> Pending:
        if self.pending is None:
            after = f"after step {self.next_step - 1}" if self.steps else "before the first step"
            raise TrackerError(f"commit without backward {after}", hint="call `backward` once or more a step")
        return self.pending

    # -- one step ------------------------------------------------------------------------------------------

    def _grouped(self) -> dict[str, int]:
        """The parameter group of each trained parameter."""
        parameters = self.evaluator.observer.parameters
        return dict.fromkeys(parameters, 0) if self.one_rate else numbered(self.parameter_groups, parameters)

    def _kinds(self) -> dict[str, int]:
        """Which parameters will have the same learning rate in the step that begins."""
        if self.following is None:
            return self._grouped()
        return self.following.kinds(self.evaluator.observer.parameters, self._grouped())

    def _before_backward(self, pending: Pending, call: Call) -> None:
        """In an evaluated step, gradients begin with nothing, and go on with what was noted."""
        following = self.following
        if following is None:
            return
        cleared = following.cleared(self.evaluator.observer.parameters)
        if pending.calls == 1 and not cleared:
            hint = "clear gradients (`optimizer.zero_grad()`) in each step, before the backward pass"
            raise TrackerError(f"step {pending.step} begins with gradients of an earlier one", hint=hint)
        if pending.calls > 1 and cleared and following.noted:  # the step was skipped, and begins again
            pending.restart(call)
            self.evaluator.observer.train = {}
            following.forget()
        elif pending.calls > 1:
            pending.check_call(call.step, call.tokens)

    def _after_backward(self, pending: Pending) -> None:
        if self.following is not None and pending.evaluated:
            self.following.note(self.evaluator.observer.parameters)
        elif self.following is not None:
            self.following.mark(self.evaluator.observer.parameters)

    def _stepping(self, number: int, optimizer: Optimizer) -> None:
        """An optimiser is about to take a step."""
        following = self.following
        assert following is not None
        if self.pending is None and all(group.get("lr") == 0 for group in optimizer.param_groups):
            return  # as PyTorch does it to make an optimiser's state
        pending = self._begun()
        with self._dropping():
            if pending.evaluated:
                following.meet(number, self.evaluator.observer.parameters, pending.step)
            else:
                following.meet_plain(number)
            if not following.all_met:
                return
            if pending.evaluated and not following.skipped:
                self._book_followed(pending)
            if not (pending.evaluated and following.skipped):
                self._end(pending)
            if not pending.evaluated and following.overflows:
                self.unsure = pending, following.overflows
            self._drop()

    def _book_followed(self, pending: Pending) -> None:
        assert self.following is not None
        parameters = self.evaluator.observer.parameters
        try:
            rates = self.following.rates(parameters, pending.step)
        except NonFiniteError:
            ones = dict.fromkeys(parameters, 1.0)
            self.evaluator.finish(pending, Rates(ones, ones))  # which may tell the language
            raise
        self._book(pending, rates)

    def _book(self, pending: Pending, rates: Rates) -> None:
        assert self.schedule is not None
        sums = self.evaluator.finish(pending, rates)
        evaluation = Evaluation(pending.step, float(self.schedule.every), rates.lr, rates.clip, *sums)
        self.ledger.add(evaluation)
        if self.log is not None:
            self.log.add(evaluation)

    def _end(self, pending: Pending) -> None:
        """A step is committed."""
        self.pending = None
        self.steps, self.tokens, self.next_step = self.steps + 1, self.tokens + pending.total, pending.step + 1
        self.clock.lap(pending.evaluated)
        check_seen(self.languages, self.ledger.unseen, self.options.unseen_limit, pending.step)
