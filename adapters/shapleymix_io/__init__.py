"""Other tools' logs in, trainers' configs out.

>>> import shapleymix as sm, shapleymix_io as io
>>> log = sm.read_runs(io.read("wandb.csv", {"run": "Name", "N": "params", "D": "tokens", "loss": "eval/{lang}"}))
>>> io.export(mix, "megatron", paths="paths.csv").write("blend.txt")

A log on its way in:

  sources     where it is: files, globs, folders, databases and servers, each given to the form that reads it
  forms       bytes as a table with its lines: CSV, JSON, charts, states of trainers, logs
  stores      runs of Weights & Biases, MLflow, TensorBoard and lm-eval as a table; `olmix`, a swarm
  table       cells as they stand, and for each the file and line to name where one is wrong; tables joined and stacked
  meaning     what columns are, by what they hold, for `--show`; `names`, what their names say
  column_map  which column is what, as a person says it
  reading     the table, taken by the map, as the columns of a run log

A mixture on its way out:

  blends      as any trainer draws it: corpora, streams, weights, epochs, bounds
  export      the trainers, a class each, and a mixture as one of them takes it

To add a tracker: in `forms` or `stores` a function that returns a `Table` (by `table_of`, or `table_of_histories` where
a tool keeps runs with steps), with what the form itself fixes (`usual`, `keys`); and the line that tells its files or
addresses from others. It needs no list of names: `meaning` judges every table alike. To add an export: in `export` a
`Format` that states how the trainer draws and writes `config`, and its class in `_ALL`, from which `FORMATS` is made.
"""

from __future__ import annotations

from shapleymix_io.export import Export, export
from shapleymix_io.reading import read

__all__ = ["Export", "export", "read"]
