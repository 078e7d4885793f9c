"""From the runs that a team has to a trainer's config and a page, in five commands, and runs to try them on.

The commands are those that the README shows below `HEADING`.
"""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path

import numpy as np
from simulated import log_of

from shapleymix.laws import Law
from shapleymix.tables.runs import RunLog

HEADING = "From MLflow to a trainer"
STORE = "mlflow.db"
README = Path(__file__).parents[1] / "README.md"
N, D = 1.3e9, 1e11


def five_commands() -> list[list[str]]:
    """The words of each command of the first console block below the heading, without the program's name."""
    block = README.read_text(encoding="utf-8").partition(f"## {HEADING}\n")[2]
    lines = block.partition("```console\n")[2].partition("```")[0].replace("\\\n", " ").splitlines()
    found = [shlex.split(line.removeprefix("$ "), comments=True)[1:] for line in lines]
    assert [words[0] for words in found] == ["import", "fit", "optimize", "export", "report"]
    assert STORE in found[0][1]
    return found


@cache
def truth() -> tuple[Law, RunLog]:
    """A known law, and 36 runs of it that scatter by .3%."""
    law, _, log = log_of("shapley-concave", rows=36, noise=3e-3, sizes=(1e8, 4e8), tokens=(2e9, 8e9))
    return law, log


def write_tables(folder: Path) -> None:
    """`languages.csv`, how much there is of each language, and `paths.csv`, where its corpus lies."""
    names = truth()[1].sources
    languages = [f"{name},{name.upper()},400B\n" for name in names]
    (folder / "languages.csv").write_text("".join(["language,family,available_tokens\n", *languages]))
    paths = [f"{name},corpora/{name}_text_document\n" for name in names]
    (folder / "paths.csv").write_text("".join(["language,path\n", *paths]))


def is_blend(folder: Path) -> bool:
    """Whether the blend is the mixture, and near the best there is by the true law."""
    mixture = json.loads((folder / "mixture.json").read_text())
    weights = blend((folder / "blend.txt").read_text())
    same = all(abs(weights[name] - p) < 1e-12 for name, p in zip(mixture["sources"], mixture["p"], strict=True))
    return same and abs(sum(weights.values()) - 1) < 1e-9 and regret(weights) < 0.01


def is_page(folder: Path) -> bool:
    """Whether the report is a whole page about these languages."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    return page.rstrip().endswith("</html>") and all(name in page for name in truth()[1].sources)


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
