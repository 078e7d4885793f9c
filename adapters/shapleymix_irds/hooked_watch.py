"""A watch that a trainer opens in one hook and closes in another, and the matrices that it writes at the end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from torch import Tensor

from shapleymix.errors import Fault
from shapleymix_irds.errors import TrackerError
from shapleymix_irds.ledger import Kind
from shapleymix_irds.tracker import IRDS


class Span:
    """One tracker's `watch`, open or not; steps are counted as they are committed.

    Attributes
    ----------
    tracker : IRDS
        The tracker.
    """

    def __init__(self, tracker: IRDS) -> None:
        self.tracker = tracker
        self._stack: ExitStack | None = None

    @property
    def open(self) -> bool:
        """Whether a forward and backward pass is being watched."""
        return self._stack is not None

    def begin(self, lang: Tensor | Sequence[str], length: int | None = None) -> None:
        """Watch a call from here on; labels are as `IRDS.watch` takes them, and the loss is a mean."""
        self.end()
        pending, stack = self.tracker.pending, ExitStack()
        step = self.tracker.next_step if pending is None else pending.step
        stack.enter_context(self.tracker.watch(lang, step=step, length=length))
        self._stack = stack

    def end(self) -> None:
        """Watch until here.

        Raises
        ------
        TrackerError
            If there was no backward pass.
        """
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()

    def drop(self) -> None:
        """Forget the step that is under way: its gradients will change no weight."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.__exit__(RuntimeError, RuntimeError("dropped"), None)
        self.tracker.drop()


def save_matrices(tracker: IRDS, folder: Path) -> list[Fault]:
    """Write `sv_raw.csv` and `sv.csv` over those of an earlier run; why one of them is missing."""
    faults: list[Fault] = []
    kinds: dict[str, Kind] = {"sv_raw.csv": "raw", "sv.csv": "calibrated"}
    for name, kind in kinds.items():
        path = folder / name
        if tracker.world.main:
            for old in (path, path.with_name(f"{name}.json")):
                old.unlink(missing_ok=True)
        try:
            tracker.save(path, kind, force=True)
        except TrackerError as error:
            faults.append(Fault(f"there is no {name}: {error.message}", hint=error.hint))
    return faults
