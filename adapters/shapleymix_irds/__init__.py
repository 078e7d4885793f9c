"""In-run data Shapley for any PyTorch training loop (ShapleyLaw paper, appendix on IRDS).

`IRDS` watches a training loop or replaces `loss.backward()`; see `shapleymix_irds.tracker`.
Imported lazily, since it needs torch.

Modules, in reading order:

  errors       what can go wrong while a run is measured; every message names the step, language, rank or parameter
  schedule     settings of a tracker, the steps that it evaluates, and their time
  distributed  the ranks that train together, and the parts of a tensor that each of them holds
  wrappers     what wraps a model, what that does to gradients, and what is refused
  batch        whose each sequence is, and the validation sequences that ranks divide among them
  engines      how a step is measured: probes behind the layers, sketches of gradients by language
  following    learning rates, and what optimisers multiply gradients with
  accounts     what is booked: a step, the ledger, the log, the matrix
  tracker      `IRDS`, which goes into a training loop
  spanning     a watch that a trainer opens in one of its hooks and closes in another
  hf           the tracker in the trainers of Hugging Face, TRL and LLaMA-Factory
  lightning    Lightning: a callback
  megatron     Megatron-core: its layers made known to the probes, and a run
  torchtitan   torchtitan: its trainer, followed
  train        train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run
  commands     the `shapleymix-irds` command: what is done beside a training loop
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapleymix_irds.schedule import Options as Options
    from shapleymix_irds.tracker import IRDS as IRDS

__all__ = ["IRDS", "Options"]


def require_torch() -> None:
    """Raise one plain error where PyTorch is not installed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ImportError("shapleymix_irds needs PyTorch 2.6 or newer\n  hint: pip install 'shapleymix[irds]'")


def __getattr__(name: str) -> Any:
    if name in __all__:
        require_torch()
        from shapleymix_irds import tracker

        return getattr(tracker, name)
    raise AttributeError(f"module 'shapleymix_irds' has no attribute {name!r}")
