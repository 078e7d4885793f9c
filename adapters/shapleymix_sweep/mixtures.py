"""Mixtures to train: in use, drawn at random, or every coalition of the sources.

C mixtures of M sources.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import polars as pl
from numpy.typing import NDArray

import shapleymix as sm
from shapleymix.errors import DataError, Location, UsageError
from shapleymix.game.exact import members_of
from shapleymix.game.kriging import sample_coalitions
from shapleymix.tables.languages import column_of
from shapleymix.tables.mixtures import mixture_of
from shapleymix.tables.sheets import read_sheet

Floats = NDArray[np.float64]

ALIKE = 1e-4
"""Mixtures whose ratios differ by less than this are the same mixture."""
JOIN = "+"
MOST_EXACT, PER_PLAYER = 10, 12
"""Up to ten sources, all coalitions are trained unless fewer are asked for; for more sources, 12 for each."""
LEAST_RATIO = 1e-3
"""A smaller ratio that is drawn becomes 0: nobody trains on a few tokens of a language."""
LEAST_PARAMETER = 1e-3
"""Least parameter of a Dirichlet distribution: with smaller ones a draw can be all zeros."""
SPARE = 4
"""So many times the mixtures that are asked for are drawn, since bounds can make some of them alike."""


@dataclass(frozen=True)
class Mixtures:
    """Mixtures with names, in the order in which to train them.

    Attributes
    ----------
    sources : tuple of str (M,)
        Labels.
    names : tuple of str (C,)
        Names of the mixtures, each different.
    p : array (C, M)
        Ratios.
    notices : tuple of str
        What was left out.
    """

    sources: tuple[str, ...]
    names: tuple[str, ...]
    p: Floats
    notices: tuple[str, ...] = ()

    @classmethod
    def once(cls, sources: Sequence[str], named: Sequence[tuple[str, Floats]], notices: Sequence[str] = ()) -> Mixtures:
        """Mixtures (M,) by name. Of two mixtures that are alike the first stays, and a notice counts the others."""
        kept: dict[bytes, Floats] = {}
        names: dict[str, bytes] = {}
        for name, p in named:
            key = np.rint(p / ALIKE).astype(np.int64).tobytes()
            if key not in kept:
                kept[key] = p
                names[name if name not in names else f"{name}-{len(names) + 1}"] = key
        again = len(named) - len(kept)
        said = [f"{again} mixtures occur more than once, and are listed once"] if again else []
        p = np.array(list(kept.values())).reshape(-1, len(sources))
        return cls(tuple(sources), tuple(names), p, (*notices, *said))

    def __len__(self) -> int:
        return len(self.names)

    def columns(self, **budget: float) -> dict[str, Sequence[object] | Floats]:
        """The columns of a run log without losses: `run`, N and D where they are given, and `p_<source>`."""
        known = {name: np.full(len(self), value) for name, value in budget.items()}
        ratios = {f"p_{name}": self.p[:, place] for place, name in enumerate(self.sources)}
        return {"run": list(self.names), **known, **ratios}


def read_mixtures(path: str | os.PathLike[str]) -> Mixtures:
    """Read a table with `p_<source>`, and `run` for the names; a run log gives each of its mixtures once.

    Parameters
    ----------
    path : path
        CSV, `.csv.gz`, Parquet or JSON lines; `-` is standard input.

    Raises
    ------
    DataError
        If the file cannot be read, or has faults: each with its line and column.
    """
    sheet = read_sheet(path)
    budget = [1.0] * sheet.rows
    usual = {"run": [f"mixture-{row + 1}" for row in range(sheet.rows)], "N": budget, "D": budget}
    log = sm.read_runs(pl.DataFrame({**usual, **sheet.columns}), losses="optional", origin=sheet.origin)
    if not log.sources:
        raise DataError("has no p_<source>", location=Location(sheet.origin), hint="a table of mixtures has ratios")
    first: dict[object, int] = {}
    for row in np.flatnonzero(log.trained).tolist():
        first.setdefault(log.mixture_keys[row], row)
    named = [(log.runs[row], log.p[row]) for row in first.values()]
    return Mixtures.once(log.sources, named, log.notices)


def empirical(
    asked: Sequence[str | Mixtures],
    sources: Sequence[str],
    languages: sm.Languages | None = None,
    D: float | None = None,
) -> Mixtures:
    """Mixtures that are in use.

    Parameters
    ----------
    asked : sequence of str or Mixtures
        `natural`, `uniform`, `temperature:T`, `unimax:E`, `text:DIR`, ratios (`en=0.5,de=0.5`, `en=1`), or mixtures
        that were read from a table.
    sources : sequence of str (M,)
        Labels.
    languages : Languages, optional
        The tokens that are available of each source.
    D : float, optional
        Tokens of a run, which `unimax` needs.

    Raises
    ------
    UsageError
        If a mixture is unknown, or what it is computed from is missing.
    """
    available = column_of(languages, "available_tokens", sources)
    named: list[tuple[str, Floats]] = []
    for one in asked:
        if isinstance(one, Mixtures):
            if set(one.sources) != set(sources):
                raise UsageError(f"a table has the sources {', '.join(one.sources)}, expected {', '.join(sources)}")
            named += zip(one.names, one.p[:, [one.sources.index(name) for name in sources]], strict=True)
        elif D is None and one.strip().startswith("unimax"):
            raise UsageError(f"{one!r} needs the tokens of the run", hint="give D")
        else:
            named.append((one, mixture_of(one, sources, available, D or np.nan)))
    return Mixtures.once(sources, named)


def random_mixtures(
    count: int,
    sources: Sequence[str],
    *,
    base: Floats | None = None,
    concentration: float = 1.0,
    seed: int = 0,
    moved: Callable[[Floats], Floats] | None = None,
) -> Mixtures:
    """Mixtures drawn from a Dirichlet distribution with the parameters `concentration M base`.

    Parameters
    ----------
    count : int
        How many.
    sources : sequence of str (M,)
        Labels.
    base : array (M,), optional
        Mean of the draws; None = even.
    concentration : float
        Below 1, a few sources have nearly all of a mixture; far above 1, all draws are close to `base`.
    seed : int
        Seed of the draws.
    moved : callable, optional
        Moves mixtures (C, M) into bounds, such as floors; None = no bounds.

    Raises
    ------
    UsageError
        If a number is not above 0.
    """
    if count < 1 or not concentration > 0:
        raise UsageError(f"{count} random mixtures of concentration {concentration:g}: expected more than 0")
    M = len(sources)
    parameters = np.maximum(concentration * M * (np.full(M, 1 / M) if base is None else base), LEAST_PARAMETER)
    drawn = np.random.default_rng(seed).dirichlet(parameters, SPARE * count)
    rounded = np.where(drawn < LEAST_RATIO, 0.0, drawn)
    even = rounded / rounded.sum(axis=1, keepdims=True)
    kept = even if moved is None else np.maximum(moved(even), 0.0)
    _, first = np.unique(np.rint(kept / ALIKE), axis=0, return_index=True)
    p = (kept / kept.sum(axis=1, keepdims=True))[np.sort(first)][:count]
    width = len(str(len(p)))
    said = [f"the bounds leave {len(p)} different mixtures of {count}"] if len(p) < count else []
    return Mixtures.once(sources, [(f"random-{place:0{width}d}", row) for place, row in enumerate(p, 1)], said)


def coalitions(sources: Sequence[str], samples: int | None = None, seed: int = 0) -> Mixtures:
    """The even mixtures of coalitions of sources, from which Shapley values are computed.

    Parameters
    ----------
    sources : sequence of str (K,)
        The players of the game.
    samples : int, optional
        How many coalitions to train, besides the one of all; None = all 2^K - 1 of at most ten players, 12 for each
        player where there are more.
    seed : int
        Seed of the sample.

    Raises
    ------
    UsageError
        If the samples are too few for this many players.
    """
    K = len(sources)
    wanted = PER_PLAYER * K if samples is None and K > MOST_EXACT else samples
    if wanted is None or (K <= 2 * MOST_EXACT and wanted >= 2**K - 2):
        members = members_of(np.arange(2**K), K)
    else:
        members = sample_coalitions(K, wanted, np.random.default_rng(seed))
    trained = members[members.any(axis=1)]
    trained = trained[np.lexsort((*trained.T, trained.sum(axis=1)))]
    names = tuple(JOIN.join(compress(sources, row)) for row in trained.tolist())
    what = "exact" if len(trained) == 2**K - 1 else "estimates"
    notice = f"{len(trained)} of the 2^{K} - 1 coalitions: Shapley values will be {what}"
    return Mixtures(tuple(sources), names, trained / trained.sum(axis=1, keepdims=True), (notice,))
