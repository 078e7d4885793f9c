"""`IRDS`: measure who teaches whom while a model trains (ShapleyLaw paper, appendix on IRDS, first-order eq.).

Four lines in a training loop::

    tracker = IRDS(model, languages, val=validation)
    loss = tracker.backward(loss_fn, x, y, lang, step=step)             # replaces loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    tracker.commit(lr=lr, grad_norm=norm, max_norm=1.0); optimizer.step()

Notation: K languages; g_i is the gradient of the training loss summed over language i's part of the batch, so
that sum_i g_i is what the optimiser gets; h_j is the gradient of the mean validation loss of language j; a
*Gram* is the (K, K) matrix <h_j, g_i>, row i the source; phi += weight * lr * clip * Gram.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

LossFn = Callable[[Tensor, Tensor], "Tensor | tuple[Tensor, Tensor]"]
Sequences = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Options:
    """Settings of a tracker beyond the common ones.

    Parameters
    ----------
    seed
        Seed of the evaluated steps and of the rotation of the validation set.
    val_sequences
        Validation sequences a language at an evaluation; the set rotates, so that few suffice.
    overhead
        With `every="auto"`: the share of a plain run's time that may be added.
    total_steps
        Length of the run, if known: helps `every="auto"` not to evaluate more often than is useful.
    ignore_index
        Labels in `y` that carry no loss (they are not counted as tokens).
    unseen_limit
        Evaluations in a row without a token of a language after which that is an error.
    chunk_mib
        Memory for the per-language weight gradients of one layer; larger layers are worked in chunks of rows.
    measure_sequences
        Validation sequences a language on which the loss drop of the run is measured (for calibration).
    micro_batches
        Calls of `backward` a step; with at least K of them `engine="auto"` takes "micro".
    """

    seed: int = 0
    val_sequences: int = 8
    overhead: float = 0.05
    total_steps: int | None = None
    ignore_index: int = -100
    unseen_limit: int = 50
    chunk_mib: float = 64.0
    measure_sequences: int = 64
    micro_batches: int = 1


class IRDS:
    """The tracker of one training run.

    Parameters
    ----------
    model
        The module as it is called in `loss_fn`: plain, compiled, DDP or FSDP2 (`fully_shard`). Wrap it first.
    languages
        Names of the K languages.
    val
        Validation sequences of each language, `{name: (x, y)}` with x and y of shape (n, S), S as in training;
        the same on every rank. None: validation-free, where fresh training sequences stand in (single-epoch
        data from the validation distribution only).
    every
        m: one step of each block of m is evaluated; "auto" takes the m that holds `options.overhead`.
    engine
        "grouped" (one concatenated pass), "micro" (language-pure micro-batches: any layer, any option), or
        "auto": grouped where every parameter is covered.
    order
        1, or 2: validation gradients at the middle of the step (needs K gradients of memory; engine micro).
    precondition
        The AdamW optimiser, if the products are to be weighted by 1 / (sqrt(v) + eps) (engine micro).
    process_group
        The data-parallel group; the default group if torch.distributed is initialised.
    out
        Folder for the log of evaluations (Parquet); None: no log.
    """

    def __init__(
        self,
        model: nn.Module,
        languages: Sequence[str],
        *,
        val: Mapping[str, Sequences] | None,
        every: int | Literal["auto"] = "auto",
        engine: Literal["auto", "grouped", "micro"] = "auto",
        order: Literal[1, 2] = 1,
        precondition: torch.optim.Optimizer | None = None,
        process_group: Any = None,
        out: str | os.PathLike[str] | None = None,
        options: Options | None = None,
    ) -> None:
        raise NotImplementedError

    def backward(
        self,
        loss_fn: LossFn,
        x: Tensor,
        y: Tensor,
        lang: Tensor | Sequence[str],
        *,
        step: int,
        tokens: int | None = None,
    ) -> Tensor:
        """Replace `loss.backward()`: gradients as ever, and on an evaluated step the Gram, too.

        Parameters
        ----------
        loss_fn
            `loss_fn(x, y)` returns the token loss summed over each sequence, shape (B,): it calls the model
            that was given to the tracker. It may return a pair: (what is trained on, for example with z-loss;
            the plain loss to measure on validation sequences).
        x, y
            This rank's sequences and labels, shape (B, S).
        lang
            Language of each sequence, shape (B,): indices into `languages`, or names.
        step
            Counted from 0. Several calls with one step accumulate (micro-batches); then give `tokens`.
        tokens
            Tokens of the whole step over all ranks and micro-batches, by which the summed loss is divided.
            None: those of this call over all ranks (one all-reduce).

        Returns
        -------
        Tensor
            This rank's part of the step's mean loss (detached): its sum over ranks and micro-batches is
            the mean loss a token.
        """
        raise NotImplementedError

    def commit(
        self, *, lr: float, grad_norm: float | Tensor | None = None, max_norm: float | None = None
    ) -> None:
        """Add the step to phi, after clipping and before `optimizer.step()`; cheap on steps not evaluated.

        Parameters
        ----------
        lr
            The scheduled learning rate of this step.
        grad_norm, max_norm
            What `clip_grad_norm_` returned and its limit, if the gradients were clipped.
        """
        raise NotImplementedError

    def evaluates(self, step: int) -> bool:
        """Whether `step` is (or will be) evaluated."""
        raise NotImplementedError

    def measure(self, loss_fn: LossFn) -> NDArray[np.float64]:
        """Mean validation loss of each language (K,) now, on a fixed part of the validation set.

        The first `backward` calls it (the start of the run); call it at the end, and at checkpoints for which
        a calibrated matrix is wanted. Every rank must call it. Validation-free trackers have no validation
        set: give the losses to `record_losses` instead.
        """
        raise NotImplementedError

    def record_losses(self, losses: Mapping[str, float]) -> None:
        """Give measured validation losses instead of `measure`: the first call is the run's start."""
        raise NotImplementedError

    def matrix(self, kind: Literal["raw", "calibrated"] = "calibrated") -> Any:
        """The SV matrix so far as the core's TransferMatrix, with standard errors and provenance.

        Calibrated: each column scaled so that it sums to the measured drop of that validation loss.
        """
        raise NotImplementedError

    def save(
        self, path: str | os.PathLike[str], kind: Literal["raw", "calibrated"] = "calibrated", *, force: bool = False
    ) -> None:
        """Write the SV matrix (rank 0 only) as CSV or Parquet by the path's ending, atomically."""
        raise NotImplementedError

    @property
    def efficiency(self) -> NDArray[np.float64]:
        """Sum of each column of raw phi over the measured drop of that validation loss (K,); NaN if unknown."""
        raise NotImplementedError

    @property
    def overhead(self) -> float:
        """Measured share of time added so far: evaluated steps against plain ones; NaN before both were seen."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """State for the model's checkpoint: one JSON string under "irds" (the Stateful protocol of DCP)."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume; cuts log rows after the checkpoint.

        Raises
        ------
        ResumeError
            If the checkpoint's languages or settings differ from this tracker's.
        """
        raise NotImplementedError
