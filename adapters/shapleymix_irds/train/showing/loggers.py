"""Loggers that need a package of their own: TensorBoard, and Weights & Biases."""

from __future__ import annotations

import importlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapleymix.errors import UsageError
from shapleymix.files import atomic_write
from shapleymix_irds.train.disk import disk_errors
from shapleymix_irds.train.showing.measured import Measured
from shapleymix_irds.train.showing.picture import markdown, picture
from shapleymix_irds.train.showing.telemetry import Metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PICTURES = 50  # of a run, about
ROWS = 400  # of a table of values: all of 20 languages
RUN_ID = "wandb-run.txt"  # in the folder of a run: the id under which it is logged
MATRIX = "irds/matrix"


class Seldom:
    """Whether it is time for the next of `PICTURES` pictures of a run of so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps, self._next = steps, 0

    def now(self, step: int) -> bool:
        if step < min(self._next, self.steps):
            return False
        self._next = step + max(1, self.steps // PICTURES)
        return True


class TensorBoard:
    """Scalars, the matrix as a picture, and its numbers with their standard errors as a text, by tokens.

    What an earlier process logged after the checkpoint that a run continues from is dropped.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        _need("tensorboard", "--tensorboard")
        self.folder, self._seldom = folder, Seldom(steps)
        self._writer: SummaryWriter | None = None

    def step(self, metrics: Metrics) -> None:
        for name, value in metrics.scalars().items():
            self._at(metrics.D).add_scalar(name, value, metrics.D)

    def show(self, metrics: Metrics, measured: Measured) -> None:
        if self._seldom.now(metrics.step):
            writer = self._at(metrics.D)
            writer.add_image(MATRIX, picture(measured), metrics.D, dataformats="HWC")
            writer.add_text("irds/values", markdown(measured), metrics.D)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _at(self, D: int) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            with disk_errors(self.folder):
                self._writer = SummaryWriter(str(self.folder), purge_step=D)
        return self._writer


class WeightsAndBiases:
    """A run in a Weights & Biases project: scalars, the matrix as a picture and a table of its values, by steps.

    Its id is kept in the folder of the run, so that a run that continues is logged as the same one.
    """

    def __init__(self, project: str, name: str, settings: dict[str, Any], folder: Path, steps: int, anew: bool) -> None:
        for package in ("wandb", "PIL"):
            _need(package, "--wandb")
        self._wandb: Any = importlib.import_module("wandb")
        self._seldom = Seldom(steps)
        options = {"project": project, "name": name, "config": settings, "dir": str(folder)}
        try:
            self._run = self._wandb.init(**options, id=_run_id(folder, anew), resume="allow")
        except self._wandb.Error as error:
            hint = "wandb login, or set WANDB_MODE=offline"
            raise UsageError(f"--wandb {project}: {error}", hint=hint) from error

    def step(self, metrics: Metrics) -> None:
        self._run.log(metrics.scalars(), step=metrics.step)

    def show(self, metrics: Metrics, measured: Measured) -> None:
        if self._seldom.now(metrics.step):
            columns = ["source", "target", "value", "stderr"]
            rows = [list(one) for one in measured.largest(ROWS, own=True)]
            shown = {
                MATRIX: self._wandb.Image(picture(measured), caption=f"{measured.heading}; {measured.cost}"),
                "irds/values": self._wandb.Table(columns=columns, data=rows),
            }
            self._run.log(shown, step=metrics.step)

    def close(self) -> None:
        self._run.finish()


def _need(package: str, flag: str) -> None:
    """Refuse a flag whose package is not there."""
    name = {"PIL": "pillow"}.get(package, package)
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise UsageError(f"{flag} needs the package {name}", hint=f"pip install {name}") from error


def _run_id(folder: Path, anew: bool) -> str:
    """The id of the run in a folder: the one that is kept there, or a new one."""
    path = folder / RUN_ID
    with disk_errors(path):
        if not anew and path.is_file():
            return path.read_text(encoding="utf-8").strip()
        folder.mkdir(parents=True, exist_ok=True)
        fresh = secrets.token_hex(4)
        atomic_write(path, fresh + "\n", force=True)
    return fresh
