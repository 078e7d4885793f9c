"""In-run data Shapley for any PyTorch training loop (ShapleyLaw paper, appendix on IRDS).

`IRDS` watches a training loop or replaces `loss.backward()`; see `shapleymix_irds.tracker`.
Imported lazily, since it needs torch.

Modules, in reading order:

  errors       what can go wrong while a run is measured; every message names the step, language, rank or parameter
  schedule     settings of a tracker, the steps that it evaluates, and their price
  world        the ranks that train together, what wraps a model, and passes that training does not notice
  batch        whose each sequence is, and the validation sequences that ranks divide among them
  sketches     whose each row of a layer's input is, and random maps of gradients into a few numbers
  calls        which calls of torch functions are covered, and what each does with parameters
  probes       the probes behind covered calls, and the mode under which a model runs while it is watched
  coverage     parameters whose use is not covered, and whether sequences stay apart, agreed upon by all ranks
  engine       training calls and validation passes
  following    learning rates, and what optimisers multiply gradients with
  ledger       what is booked: the accounts, the log of evaluations, the matrix
  step         a step between its calls and its commit
  tracker      `IRDS`, which goes into a training loop
  hooked_watch a watch that a trainer opens in one of its hooks and closes in another
  hf           the tracker in the trainers of Hugging Face, TRL and LLaMA-Factory
  lightning    Lightning: a callback
  megatron     Megatron-core: its layers made known to the probes, and a run
  torchtitan   torchtitan: its trainer, followed
  train        train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run
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
