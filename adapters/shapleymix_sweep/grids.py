"""Plans are made: every mixture at every size, token count and seed, with the command of each run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from itertools import product

import numpy as np

from shapleymix.errors import UsageError, did_you_mean
from shapleymix.laws.core import HARM_PRIOR
from shapleymix.tables.words import RECIPE, Amounts, amounts, parse_budget, parse_positive, parse_size
from shapleymix_sweep.mixtures import Mixtures
from shapleymix_sweep.plans import LATE, PLACEHOLDER, Plan, PlannedRun, Pools, Recipe, fill_in, whole

DEFAULT = (
    "shapleymix-irds train --corpus {corpus} --languages {sources} --mixture {mixture} --model {model} --tokens {D} "
    "--seed {seed} --no-irds --eval-untrained --out {out}"
)
"""The command of a run where none is given: the training script of this project."""
TOY, ARTIFICIAL = "toy", "toy_"
"""The corpus of artificial languages, and how their names begin."""
POOLS = " --unique-tokens {unique}"
RATE = " --lr {learning_rate}"
"""What it has besides where pools, and a learning rate, are given."""
SMALL, SMALL_RATE = "small", 1e-5
"""The word for a very small learning rate, and the largest that summaries of arXiv 2512.24503 call so."""
BEST_HARM = 0.015
"""The share of the core that repeats cost at the best mixtures that were trained (.012 to .018)."""
EARLY = ("corpus", "mixture", "sources", "N", "D", "seed", "model", "name", "unique", *RECIPE)
"""Placeholders that are filled in when the plan is made; so is `{p_en}`, the ratio of en."""

Size = float | str


def grid(
    mixtures: Mixtures,
    N: Mapping[str, Size] | Sequence[Size] | Size,
    D: Sequence[Size] | Size,
    *,
    seeds: Sequence[int] = (0,),
    corpus: str | None = None,
    command: str = DEFAULT,
    available: Amounts | None = None,
    scale_down: float | str = 1.0,
    cut_pools: float | str = 1.0,
    learning_rate: Sequence[Size] | Size | None = None,
    batch_tokens: Sequence[Size] | Size | None = None,
) -> Plan:
    """A plan of every mixture at every size, token count and seed; mixtures change fastest, sizes slowest.

    Parameters
    ----------
    mixtures : Mixtures
        What to train on.
    N : size, sequence of sizes, or sizes by name
        Parameters without embeddings; `{model}` of the command is the name of a size: `{"tiny": 23712}`.
    D : size or sequence of sizes
        Tokens.
    seeds : sequence of int
        Seeds of the runs.
    corpus : str, optional
        What the runs are trained on: a folder with a file or a folder for each source, or `"toy"`, whose artificial
        languages have names that begin with `toy_`. The usual command needs it.
    command : str
        How a run is started, with placeholders: `{corpus}`, `{mixture}` (en=0.5,de=0.5), `{p_en}` (the ratio of en),
        `{sources}` (en,de), `{N}`, `{model}`, `{D}`, `{seed}`, `{name}` (of the mixture), `{out}` (the folder that the
        run writes to), `{id}`, `{run}` (its name in the run log), `{unique}` (en=1000000, the pools),
        `{learning_rate}` and `{batch_tokens}`. No shell reads it.
    available : Amounts, optional
        Unique tokens at hand for the target run, by name; runs draw on pools of as many.
    scale_down : float or str
        The factor, such as 1/16, by which N, D and every pool are those of the target: the best ratios depend on D and
        N by unique token alone, so that the runs' best mixture is the target's.
    cut_pools : float or str
        The factor by which the pools alone are cut.
    learning_rate, batch_tokens : number or sequence of numbers, optional
        The recipe: largest learning rate, and tokens of a step, of all runs, or one for each size. `"small"` is a rate
        of 1e-5, at which ranks of data recipes are said to hold from 125M to 1B parameters (arXiv 2512.24503).

    Raises
    ------
    UsageError
        If a placeholder is unknown, `{out}` or one of the recipe's is missing, nothing says what the runs are trained
        on, or two different runs have the same command.
    """
    by_name = N.items() if isinstance(N, Mapping) else [("", size) for size in _listed(N)]
    factor, cut = _factor(scale_down), _factor(cut_pools)
    sizes = [(name, parse_budget(size, "N") * factor) for name, size in by_name]
    tokens = [parse_budget(size, "D") * factor for size in _listed(D)]
    pools = amounts(np.full(len(mixtures.sources), np.nan), available, mixtures.sources, parse_size, "tokens")
    unique = {name: factor * cut * pool for name, pool in zip(mixtures.sources, pools, strict=True) if pool > 0}
    if min(factor, cut) < 1 and not unique:
        raise UsageError("there are no pools to cut", hint="say how many unique tokens there are (available)")
    if not (sizes and tokens and seeds and len(mixtures)):
        raise UsageError("there is nothing to train", hint="give at least one mixture, N, D and seed")
    recipes = _recipes(len(sizes), SMALL_RATE if learning_rate == SMALL else learning_rate, batch_tokens)
    _require_corpus(corpus, mixtures.sources, usual=command == DEFAULT)
    if command == DEFAULT:
        command += (POOLS if unique else "") + (RATE if learning_rate is not None else "")
    given = {*recipes[0], *(["unique"] if unique else []), *(["corpus"] if corpus else [])}
    words = _template(command, mixtures.sources, given, named=factor == 1 and all(name for name, _ in sizes))
    each = product(zip(sizes, recipes, strict=True), tokens, seeds, range(len(mixtures)))
    runs = [_run(words, mixtures, unique, corpus or "", *one) for one in each]
    kept: dict[tuple[str, ...], PlannedRun] = {}
    for run in runs:
        if (other := kept.setdefault(run.command, run)).id != run.id:
            message = f"the command is the same for two runs, {_described(other)} and {_described(run)}"
            raise UsageError(message, hint="put what differs into the command: {mixture}, {N}, {model}, {D} or {seed}")
    again = len(runs) - len(kept)
    said = [f"{again} of {len(runs)} runs are the same as others, and are planned once"] if again else []
    said += _epochs_lacking(runs, unique)
    if any(recipe.get("learning_rate", 1.0) <= SMALL_RATE for recipe in recipes):
        said += [f"losses at a learning rate of {SMALL_RATE:g} rank mixtures, and tell nothing of other N, D or rates"]
    if cut < 1:
        said.append("pools are cut alone: the best ratios of these runs lie too low, and only a law corrects it")
    return Plan(mixtures.sources, tuple(kept.values()), (*mixtures.notices, *said))


def _require_corpus(corpus: str | None, sources: Sequence[str], *, usual: bool) -> None:
    """Refuse runs of which nothing says what they are trained on, and artificial languages under names of real ones."""
    if usual and not corpus:
        raise UsageError(
            "nothing says what the runs train on", hint=f"give the corpus: a folder of the sources, or {TOY}"
        )
    if corpus == TOY and (real := [name for name in sources if not name.startswith(ARTIFICIAL)]):
        raise UsageError(f"the corpus {TOY} has no {real[0]!r}: its artificial languages are called {ARTIFICIAL}...")


def _recipes(
    sizes: int, learning_rate: Sequence[Size] | Size | None, batch_tokens: Sequence[Size] | Size | None
) -> list[dict[str, float]]:
    """The recipe of the runs of each size."""
    given = {"learning_rate": (learning_rate, parse_positive), "batch_tokens": (batch_tokens, parse_budget)}
    found: list[dict[str, float]] = [{} for _ in range(sizes)]
    for name, (values, read) in given.items():
        each = [] if values is None else [read(one, name) for one in _listed(values)]
        if len(each) not in (0, 1, sizes):
            raise UsageError(f"{len(each)} values of {name} for {sizes} sizes", hint="give one, or one for each size")
        for place, recipe in enumerate(found if each else ()):
            recipe[name] = each[place % len(each)]
    return found


def _factor(given: float | str) -> float:
    """A number from 0 to 1, also as a fraction: 1/16."""
    try:
        found = float(Fraction(str(given)))
    except (ValueError, ZeroDivisionError):
        found = 0.0
    if not 0 < found <= 1:
        raise UsageError(f"{given!r} is no factor to scale down by", hint="write it like 1/16 or 0.0625")
    return found


def _epochs_lacking(runs: Sequence[PlannedRun], unique: Pools) -> Iterator[str]:
    """Which sources no run repeats beyond their expected best epochs, without which harm is not measured."""
    for name, pool in unique.items():
        largest = max(runs, key=lambda run: run.D * run.N)
        epochs = max(run.mixture[name] * run.D / pool for run in runs)
        room = BEST_HARM * pool**2 / (np.exp(HARM_PRIOR.center) * largest.N * largest.D)
        best = pool / largest.D + room ** (1 / 3)
        expected = best * largest.D / pool
        if best < 1 and epochs < expected:
            seen = f"no run sees {name} more than {epochs:.2g} times, and about {expected:.2g} is expected to be best"
            yield f"{seen}: add a mixture with more than {best:.2g} of it"


def _listed(given: Sequence[Size] | Size) -> Sequence[Size]:
    return given.split(",") if isinstance(given, str) else [given] if isinstance(given, (int, float)) else list(given)


def _described(run: PlannedRun) -> str:
    return f"{run.name} (N {run.N:g}, D {run.D:g}, seed {run.seed})"


def _run(
    words: Sequence[str], mixtures: Mixtures, unique: Pools, corpus: str, sized: tuple[tuple[str, float], Recipe],
    D: float, seed: int, place: int,
) -> PlannedRun:  # fmt: skip
    ((model, N), recipe), p = sized, mixtures.p[place] / mixtures.p[place].sum()
    mixture = dict(zip(mixtures.sources, p.tolist(), strict=True))
    values = {f"p_{name}": repr(ratio) for name, ratio in mixture.items()}
    values |= {"mixture": ",".join(f"{name}={ratio!r}" for name, ratio in mixture.items() if ratio)}
    values |= {"sources": ",".join(mixtures.sources), "name": mixtures.names[place], "model": model, "corpus": corpus}
    values |= {"unique": ",".join(f"{name}={whole(round(pool))}" for name, pool in unique.items())}
    values |= {"N": repr(whole(N)), "D": repr(whole(D)), "seed": str(seed)}
    values |= {name: repr(whole(value)) for name, value in recipe.items()}
    command = tuple(fill_in(word, values) for word in words)
    return PlannedRun(mixtures.names[place], mixture, N, D, seed, command, unique, recipe)


def _template(command: str, sources: Sequence[str], given: Set[str], *, named: bool) -> list[str]:
    """The words of a command, split as a shell would, with its placeholders checked."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command cannot be split into words: {error}", hint="close its quotes") from error
    known = (*LATE, *EARLY, *(f"p_{name}" for name in sources))
    used = {found[1] for word in words for found in PLACEHOLDER.finditer(word)} - {None}
    for name in sorted(used - set(known)):
        hint = f"{did_you_mean(name, known)}; write {{{{ and }}}} for braces that are meant"
        raise UsageError(f"{{{name}}} of the command is no placeholder", hint=hint)
    if "out" not in used:
        raise UsageError("the command lacks {out}, the folder that the run writes to", hint=f"for instance {DEFAULT}")
    for name in ("corpus", "unique", *RECIPE):
        if (name in used) != (name in given):
            message = f"the command lacks {{{name}}}" if name in given else f"nothing says {{{name}}} of the command"
            raise UsageError(message, hint=f"give {name.replace('unique', 'available')} and {{{name}}}, or neither")
    if "model" in used and not named:
        raise UsageError("{model} of the command is the name of a size, and these have none: tiny=23712, or use {N}")
    return words
