"""From the runs that a team has to a trainer's config and a page, in five commands, and runs to try them on.

The commands are those that the README shows below `HEADING`; where it has no such heading, those here.
"""

from __future__ import annotations

import csv
import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
from simulated import log_of

from shapleymix.laws import Law
from shapleymix.tables.runs import RunLog

HEADING = "From MLflow to a trainer"
COMMANDS = """\
shapleymix import mlflow.db --map N=params.n_params --map D=metrics.tokens --map 'p=params.p_{lang}' \\
    --map 'loss=metrics.eval/loss/{lang}' -o runs.csv
shapleymix fit runs.csv -o fit.json
shapleymix optimize fit.json -N 1.3B -D 100B -o mixture.json
shapleymix export mixture.json --format megatron --paths paths.csv -o blend.txt
shapleymix report fit.json --mixture mixture.json --log runs.csv -o report.html
"""
STORE = "mlflow.db"
README = Path(__file__).parents[1] / "README.md"
N, D = 1.3e9, 1e11


def shown(text: str) -> str:
    """The first console block below the heading of a page, or what stands above where it has no such heading."""
    found = re.search(rf"^#+ {HEADING}\n.*?```console\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    return COMMANDS if found is None else found[1]


def five_commands() -> list[list[str]]:
    """The words of each command, without the program's name."""
    lines = shown(README.read_text(encoding="utf-8")).replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [one[1:] for one in words if one[:1] == ["shapleymix"]]


@cache
def truth() -> tuple[Law, RunLog]:
    """A known law, and 36 runs of it that scatter by .3%."""
    law, _, log = log_of("learned-base", rows=36, noise=3e-3, sizes=(1e8, 4e8), tokens=(2e9, 8e9))
    return law, log


def write_paths(folder: Path, log: RunLog) -> None:
    """`paths.csv`: where the corpus of each language lies."""
    with open(folder / "paths.csv", "w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["language", "path", "available_tokens"])
        rows.writerows([name, f"corpora/{name}_text_document", "200000000000"] for name in log.sources)


def is_log(found: RunLog) -> bool:
    """Whether a log holds the runs of the truth, in any order; numbers as texts came through."""
    log = truth()[1]
    found = found.aligned(log.sources, log.targets)
    row = [found.runs.index(name) for name in log.runs] if set(found.runs) == set(log.runs) else []
    return len(row) == len(found) == len(log) and all(
        np.allclose(getattr(found, name)[row], getattr(log, name), rtol=1e-12) for name in ("N", "D", "p", "loss")
    )


def blend(text: str) -> dict[str, float]:
    """The weights of a Megatron blend by language."""
    pairs = [line.split() for line in text.splitlines() if line.strip()]
    return {path.removeprefix("corpora/").removesuffix("_text_document"): float(weight) for weight, path in pairs}


def regret(weights: dict[str, float]) -> float:
    """By how much of the mean loss a mixture is worse, by the true law, than the best of 20,000 others."""
    law, log = truth()
    p = np.array([[weights.get(name, 0.0) for name in log.sources]])
    rivals = np.random.default_rng(0).dirichlet(np.ones(len(log.sources)), 20_000)
    means = [np.mean(law(some, np.full(len(some), N), np.full(len(some), D)), axis=1) for some in (p, rivals)]
    return float(means[0][0] / min(means[0].min(), means[1].min()) - 1)
