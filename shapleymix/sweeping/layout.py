"""The folder of a plan: where each run lies, and what its files are called.

`runs.jsonl` has `runs-sweep/`, with a folder for each run, named by its id:

  out/         what the run's own program writes (`{out}` of the command), with its run log, `runs.csv` or `runs.jsonl`
  log.txt      what it said
  result.json  what it handed back; where this file is, the run is finished
  failed.json  how often it failed, and how it did last
  claim        locked by whoever runs it
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shapleymix.sweeping.plans import ENDING

SUFFIX = "-sweep"
HANDED_BACK = ("runs.csv", "runs.jsonl")
"""The run log that a run's program writes into `{out}`, under one of these names."""


@dataclass(frozen=True)
class Place:
    """The folder of one run."""

    folder: Path

    @property
    def out(self) -> Path:
        """The folder of the run's own program."""
        return self.folder / "out"

    @property
    def log(self) -> Path:
        """What the program said."""
        return self.folder / "log.txt"

    @property
    def result(self) -> Path:
        """What it handed back."""
        return self.folder / "result.json"

    @property
    def failure(self) -> Path:
        """How it failed."""
        return self.folder / "failed.json"

    @property
    def claim(self) -> Path:
        """What is locked while it runs."""
        return self.folder / "claim"


@dataclass(frozen=True)
class Layout:
    """The folder of a plan."""

    root: Path

    @classmethod
    def of(cls, plan: str | os.PathLike[str], folder: str | None = None) -> Layout:
        """The folder that is named, or the one beside the file of the plan; whole, so that a run may start anywhere."""
        path = Path(plan)
        named = path.with_name(path.name.removesuffix(ENDING) + SUFFIX) if folder is None else Path(folder)
        return cls(Path(os.path.abspath(named)))

    def place(self, run: str) -> Place:
        """The folder of a run by its id."""
        return Place(self.root / run)

    def there(self) -> frozenset[str]:
        """Names of the folders of runs that there are, of this plan or of another."""
        try:
            with os.scandir(self.root) as entries:
                return frozenset(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return frozenset()
