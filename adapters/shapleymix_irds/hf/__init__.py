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
  committing  the step is committed by the optimiser itself
  callback    what a trainer tells the tracker: the state in a checkpoint, losses, results
  trainer     `IRDSTrainer` and `IRDSTrainerMixin`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapleymix_irds.hf.arguments import IRDSArguments as IRDSArguments
    from shapleymix_irds.hf.collating import LanguageCollator as LanguageCollator
    from shapleymix_irds.hf.packing import label_tokens as label_tokens
    from shapleymix_irds.hf.trainer import IRDSTrainer as IRDSTrainer
    from shapleymix_irds.hf.trainer import IRDSTrainerMixin as IRDSTrainerMixin

__all__ = ["IRDSArguments", "IRDSTrainer", "IRDSTrainerMixin", "LanguageCollator", "label_tokens"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from shapleymix_irds.hf import arguments, collating, packing, trainer

        homes = (arguments, collating, packing, trainer)
        return next(getattr(home, name) for home in homes if hasattr(home, name))
    raise AttributeError(f"module 'shapleymix_irds.hf' has no attribute {name!r}")
