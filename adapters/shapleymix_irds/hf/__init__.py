"""The tracker inside Hugging Face's `Trainer`, TRL's `SFTTrainer` and LLaMA-Factory's trainers.

`IRDSTrainer` is `Trainer` with a tracker; `IRDSTrainerMixin` makes any subclass of `Trainer` one::

    class Tracked(IRDSTrainerMixin, SFTTrainer): ...

    Tracked(model, args, train_dataset=train, irds=IRDSArguments(["en", "de"], val=validation)).train()

Imported lazily, since it needs transformers.

Modules, in reading order:

  arguments   what the tracker of a trainer is told
  collating   batches that keep the language of each example, or of each token
  validation  validation sequences from datasets, and the loss of a causal language model
  packing     examples with a language for each token, which packing joins
  callback    what a trainer tells the tracker: the state in a checkpoint, losses, results
  trainer     `IRDSTrainer` and `IRDSTrainerMixin`
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapleymix_irds.hf.arguments import IRDSArguments as IRDSArguments
    from shapleymix_irds.hf.collating import LanguageCollator as LanguageCollator
    from shapleymix_irds.hf.packing import label_tokens as label_tokens
    from shapleymix_irds.hf.trainer import IRDSTrainer as IRDSTrainer
    from shapleymix_irds.hf.trainer import IRDSTrainerMixin as IRDSTrainerMixin
    from shapleymix_irds.hf.validation import causal_loss as causal_loss
    from shapleymix_irds.hf.validation import validation_of as validation_of

__all__ = [
    "IRDSArguments",
    "IRDSTrainer",
    "IRDSTrainerMixin",
    "LanguageCollator",
    "causal_loss",
    "label_tokens",
    "validation_of",
]
_HOME = {
    "IRDSArguments": "arguments",
    "LanguageCollator": "collating",
    "causal_loss": "validation",
    "label_tokens": "packing",
    "validation_of": "validation",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"shapleymix_irds.hf.{_HOME.get(name, 'trainer')}"), name)
    raise AttributeError(f"module 'shapleymix_irds.hf' has no attribute {name!r}")
