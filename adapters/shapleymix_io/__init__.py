"""Other tools' logs in, trainers' configs out.

>>> import shapleymix as sm, shapleymix_io as io
>>> log = sm.read_runs(io.read("wandb.csv", {"run": "Name", "N": "params", "D": "tokens", "loss": "eval/{lang}"}))
>>> io.export(mix, "megatron", paths="paths.csv").write("blend.txt")

Modules, in reading order:

  table       cells as they stand, and for each the file and line to name where one is wrong
  column_map  which column is what
  tools       what Weights & Biases, MLflow, TensorBoard, Hugging Face's trainer, Megatron and lm-eval leave
  sources     any source as a table, and tables that are joined to it
  proposing   what a table seems to hold: a first map, for `--show`
  reading     a run log, as a map says
  blends      a mixture as a trainer draws it: corpora, streams, weights, epochs, bounds
  export      the trainers, a class each, and a mixture as one of them takes it
"""

from __future__ import annotations

from shapleymix_io.export import Export, export
from shapleymix_io.reading import read

__all__ = ["Export", "export", "read"]
