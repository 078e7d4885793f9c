"""Small real inputs to damage, made once a session, and the command line called inside of this process."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shapleymix_cli.main import commands

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
BUDGET = ("-N", "97600", "-D", "2M")
USUAL_CODES = (0, 1, 2)


@dataclass(frozen=True)
class Outcome:
    """Exit code and both streams of one call."""

    code: int
    out: str
    err: str


def call(words: Sequence[str]) -> Outcome:
    """Run `shapleymix WORDS...`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = commands.main(list(words), standalone_mode=False)
    return Outcome(code, out.getvalue(), err.getvalue())


def checked(words: Sequence[str]) -> Outcome:
    """An outcome as every outcome must be: a usual exit code, no fault of ours, and JSON where it was asked for."""
    found = call(words)
    everything = found.out + found.err
    assert "internal fault" not in everything, f"internal fault: {_fault(everything)}"
    assert "Traceback" not in everything, everything[-300:]
    assert found.code in USUAL_CODES, f"exit code {found.code}"
    assert "\x1b" not in everything, "a terminal escape reaches the screen"
    if "--json" in words and not {"--help", "--version"} & set(words):
        document = json.loads(found.out, parse_constant=_refuse)
        assert (found.code == 0) == ("error" not in document), f"exit code {found.code} with {found.out[:200]}"
    elif found.code:
        assert "error" in found.err.lower(), f"exit code {found.code} without a reason"
    return found


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def _fault(text: str) -> str:
    return text[text.index("internal fault") :][:300].replace("\n", " ")


@cache
def folder() -> Path:
    """A folder with the fixtures, a transfer matrix, two fits, a mixture, a prediction and a comparison."""
    goal = Path(tempfile.mkdtemp(prefix="shapleymix-fuzz-"))
    atexit.register(shutil.rmtree, goal, ignore_errors=True)
    for path in FIXTURES.glob("*.csv"):
        shutil.copy(path, goal / path.name.replace("multilingual5_", ""))
    runs, common = str(goal / "runs.csv"), ["--bootstrap", "4", "--folds", "0", "-q"]
    for words in (
        ["shapley", str(goal / "coalitions.csv"), "-o", str(goal / "sv.csv")],
        ["fit", runs, "--law", "learned-base", "--min-own-tokens", "20k", *common, "-o", str(goal / "fit.json")],
        ["fit", runs, "--law", "shapley-tempered", "--transfer", str(goal / "sv.csv"), "--bootstrap", "0",
         "--folds", "3", "-q", "-o", str(goal / "sv-fit.json")],
        ["optimize", str(goal / "fit.json"), *BUDGET, "-o", str(goal / "mix.json")],
    ):  # fmt: skip
        made = call(words)
        assert made.code == 0, f"{' '.join(words)}: {made.err}"
    return goal
