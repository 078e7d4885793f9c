"""Evaluations as a run has logged them."""

from pathlib import Path

import polars as pl
from shapleymix_irds.ledger import Evaluation, segments


def read_log(folder: Path) -> tuple[tuple[str, ...], list[Evaluation]]:
    """Languages, and the logged evaluations in their order."""
    frame = pl.concat(map(pl.read_parquet, segments(folder)))
    languages, found = tuple(frame["source"].unique(maintain_order=True)), []
    n = len(languages)
    for block in frame.iter_slices(n * n):
        step, weight, lr, clip = block.select("step", "weight", "lr", "clip").row(0)
        gram, tokens, val_losses = (block[name].to_numpy().reshape(n, n) for name in ("gram", "tokens", "val_loss"))
        found.append(Evaluation(step, weight, lr, clip, gram, tokens[:, 0], val_losses[0]))
    return languages, found
