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
import re
from dataclasses import dataclass
from pathlib import Path

from shapleymix.errors import Location, UsageError
from shapleymix.sweeping.plans import DIGITS, ENDING

SUFFIX = "-sweep"
HANDED_BACK = ("runs.csv", "runs.jsonl")
"""The run log that a run's program writes into `{out}`, under one of these names."""
_ID = re.compile(f"[0-9a-f]{{{DIGITS}}}")


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
        """The folder that is named, or the one beside the file of the plan, the same for all links to it.

        Raises
        ------
        UsageError
            If no folder is named and the plan is no file: standard input, a pipe.
        """
        if folder is not None:
            return cls(Path(os.path.realpath(folder)))
        if os.fspath(plan) == "-" or (os.path.exists(plan) and not os.path.isfile(plan)):
            hint = "the folder of its runs lies beside it: give one (folder)"
            raise UsageError("the plan is no file", location=Location(os.fspath(plan)), hint=hint)
        path = Path(os.path.realpath(plan))
        return cls(path.with_name(path.name.removesuffix(ENDING) + SUFFIX))

    def place(self, run: str) -> Place:
        """The folder of a run by its id."""
        return Place(self.root / run)

    def there(self) -> frozenset[str]:
        """Ids of the runs that have folders, of this plan or of another; what else lies there is its owner's."""
        try:
            with os.scandir(self.root) as entries:
                return frozenset(entry.name for entry in entries if _ID.fullmatch(entry.name) and entry.is_dir())
        except FileNotFoundError:
            return frozenset()
