"""In-run data Shapley for any PyTorch training loop (ShapleyLaw paper, appendix on IRDS).

`IRDS` replaces `loss.backward()`; see `shapleymix_irds.tracker`. Imported lazily, since it needs torch.
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
