"""Other tools' logs in, trainers' configs out.

>>> import shapleymix as sm, shapleymix_io as io
>>> log = sm.read_runs(io.read("wandb.csv", {"run": "Name", "N": "params", "D": "tokens", "loss": "eval/{lang}"}))
>>> io.export(mix, "megatron", paths="paths.csv").write("blend.txt")

A log on its way in:

  sources     where it is: a file, folder, database or server is told by its name and content, and read
  readers     what Weights & Biases, MLflow, TensorBoard, Hugging Face, Megatron and lm-eval leave
  table       what a reader returns: cells as they stand, and for each the file and line to name where one is wrong
  column_map  which column is what, as a person says it
  reading     the table, taken by the map, as the columns of a run log
  proposing   a first map, guessed from the names of columns, for `--show`

A mixture on its way out:

  blends      as any trainer draws it: corpora, streams, weights, epochs, bounds
  export      the trainers, a class each, and a mixture as one of them takes it

To add a reader: in `readers` a function that returns a `Table` (by `table_of`, or `table_of_histories` where a tool
keeps runs with steps), the name of its kind, and in `USUAL` what it calls its columns; in `sources` the line that tells
its files or addresses from others. To add an export: in `export` a `Format` that states how the trainer draws and
writes `config`, and its class in `_ALL`, from which `FORMATS` is made.
"""

from __future__ import annotations

from shapleymix_io.export import Export, export
from shapleymix_io.reading import read

__all__ = ["Export", "export", "read"]
