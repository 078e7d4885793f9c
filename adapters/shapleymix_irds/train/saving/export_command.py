"""`shapleymix-irds export`."""

from __future__ import annotations

from pathlib import Path

import click

from shapleymix_irds.train.telling import say

HELP = """Write the model of a run as a LlamaForCausalLM that transformers loads.

RUN is the --out of irds_train.py; any number of ranks may have trained it. The tokenizer is copied if it was a file.

\b
Examples:
  shapleymix-irds export run -o run-model
  shapleymix-irds export run -o run-model --step 1000 --dtype bf16
"""


@click.command("export", help=HELP)
@click.argument("run", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), required=True, help="Folder for the model.")
@click.option("--step", type=int, help="Checkpoint to take; the last one if not given.")
@click.option("--dtype", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True, help="Numbers in it.")
def command(run: Path, out: Path, step: int | None, dtype: str) -> None:
    """Export a run's model."""
    from shapleymix_irds.train.saving.export import export

    say(f"wrote {export(run, out, step=step, dtype=dtype)}")
