"""In-run data Shapley for any PyTorch training loop (ShapleyLaw paper, appendix on IRDS).

`IRDS` watches a training loop or replaces `loss.backward()`; see `shapleymix_irds.tracker`.
Imported lazily, since it needs torch.

Modules, in reading order:

  distributed  the ranks that train together, and the parts of a tensor that each of them holds
  errors       what can go wrong while a run is measured; every message names the step, language, rank or parameter
  arrangement  how a trainer arranges a model: the order of activations, and parameters that ranks divide
  wrappers     what wraps a model, what that does to gradients, and which wrappers are refused
  buffers      buffers that a model writes while it runs
  batch        whose each sequence is, and the validation sequences that ranks divide among them
  schedule     which steps are evaluated: one step of each block of m, chosen by a seeded hash, weighted by m
  options      settings of a tracker
  rates        learning rates of parameter groups, and what a step multiplies gradients with
  engines      how a step is measured: probes behind the layers, sketches of gradients by language
  accounts     what is booked: a step, the ledger, the log, the matrix
  checks       what can be said against a tracker before the first step, and against what it is given in each
  measuring    measured validation losses, and measured time
  evaluating   an evaluated step: its projections, validation sequences and training calls, until their sums are taken
  state        what a tracker writes into a checkpoint, and the check that a resumed run is the same run
  record       the record of a run: its accounts, what is shown of them, and what is saved
  following    optimisers that commit by themselves, and what they multiply gradients with
  stepping     a step between its first call and the optimiser: `commit` and `follow`
  tracker      `IRDS`, which goes into a training loop
  hf           the tracker in the trainers of Hugging Face, TRL and LLaMA-Factory
  spanning     a watch that a trainer opens in one of its hooks and closes in another
  lightning    Lightning: a callback
  megatron     Megatron-core: its layers made known to the probes, and a run
  torchtitan   torchtitan: its trainer, followed
  train        train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run
  commands     the `shapleymix-irds` command: what is done beside a training loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapleymix_irds.options import Options as Options
    from shapleymix_irds.tracker import IRDS as IRDS

__all__ = ["IRDS", "Options"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from shapleymix_irds import tracker

        return getattr(tracker, name)
    raise AttributeError(f"module 'shapleymix_irds' has no attribute {name!r}")
