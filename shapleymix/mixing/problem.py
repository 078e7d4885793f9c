"""A question about mixtures, written down once, and answered in several ways.

>>> question = problem(fit, "243M", "100B", available={"en": "5T", "fi": "20B"}, max_epochs=4)
>>> question.solve(), question.with_tokens("fi+20B").solve(), question.compare(["uniform", "natural"])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from shapleymix.fitting.own_fit import FitSpec
from shapleymix.fitting.settings import Size
from shapleymix.mixing.answers import Candidates, Mixture
from shapleymix.mixing.asked import Asked, is_called_as, takes_keywords
from shapleymix.mixing.frontier import POINTS, Frontier, frontier_of
from shapleymix.mixing.question import Question
from shapleymix.mixing.reporting import candidates_of, report, tokens_of
from shapleymix.mixing.solving import solve_all
from shapleymix.tables.mixtures import Rivals


@dataclass(frozen=True)
class Problem(Question):
    """A question, and the answers to it; see `problem`."""

    def solve(self) -> Mixture:
        """The optimal mixture, with its proof."""
        return solve_problems((self,))[0]

    def compare(self, mixtures: Rivals) -> Candidates:
        """Several mixtures side by side, and what each gains over the first."""
        return candidates_of(self, mixtures)

    def frontier(self, between: str, points: int = POINTS) -> Frontier:
        """The trade-off between the mean losses of two sets of targets, such as `"en:rest"`."""
        return frontier_of(self, between, points)

    def with_tokens(self, change: str) -> Self:
        """The same question with more or fewer unique tokens at hand: `"de+50B"`, `"en-1T,de+10B"`."""
        available = self.surface.available
        return self.with_available(available + tokens_of(str(change), self.within.sources, available))


def solve_problems(problems: Sequence[Problem]) -> tuple[Mixture, ...]:
    """The optimal mixtures of several problems of one kind."""
    found = zip(problems, solve_all([one.goal for one in problems], problems[0].asked.seed), strict=True)
    return tuple(report(*one.with_help(proof)) for one, proof in found)


@is_called_as(Asked)
@takes_keywords
def problem(fit: FitSpec, N: Size, D: Size, **keywords: Any) -> Problem:
    """A question about mixtures for N parameters and D tokens.

    A mixture may be text (`"en=0.5,de=50%"`), a mapping, ratios in the order of the sources, a `Mixture`, the file of
    a saved one, or a baseline's name: `"uniform"`, `"natural"`, `"temperature:T"`, `"unimax:E"`, `"text:DIR"`.

    Parameters
    ----------
    fit : FitSpec
        A `Fit`, the file of a saved one, or an object of your own with `sources`, `targets` and `predict`.
    N, D : Size
        Parameters and tokens of the run: numbers, or sizes such as `"243M"`.
    unit : str
        Unit of the losses, and so of the objective: `"nats"` a token, or `"bpb"`, bits a byte by the column
        `bytes_per_token` of `languages`.
    weights : WeightSpec, optional
        What each target's loss counts: `"unweighted"`, `"normalized"` (losses are divided by those of monolingual
        models), numbers by target (`"en=1,de=2"`; the others get 0), or a languages table. By default the weights of
        `languages` if it has any, else unweighted.
    monolingual : mapping or str, optional
        Measured losses of monolingual models in nats, for normalized weights; predicted where not given.
    objective : str
        `"mean"`, or `"worst"`: the largest weighted loss is minimised.
    caps : Ratios, optional
        Highest ratios, such as `"en=0.3,de=40%"`.
    floors : Ratios, optional
        Lowest ratios, likewise.
    fix : Ratios, optional
        Exact ratios, likewise.
    languages : LanguagesSpec, optional
        Languages table or its file: available tokens, epochs, families and weights.
    available : Amounts, optional
        Unique tokens by name, such as `"en=5T,fi=20B"`; they override those of the table.
    max_epochs : EpochsSpec, optional
        How often a token may be seen, for all sources or by name. Without it there is no limit if the fit knows what
        repetition costs, and the limit is 4 if it does not.
    min_tokens : TokensSpec, optional
        Fewest tokens, for every source or by name.
    groups : GroupSpec or sequence of GroupSpec
        Bounds on summed ratios, such as `"en+de<=0.3"`, `"cjk: zh+ja>=10%"`, `"Germanic>=60%"` (a family) or
        `"en>=20%"` (all sources whose names begin with `en/`).
    keep_within : NamesSpec
        Families or parents, such as `"en"` of `en/web` and `en/books`, of which only the summed ratio is chosen: inside
        of each the ratios stay as the mixture `kept` has them.
    kept : MixtureSpec, optional
        The mixture whose ratios `keep_within` keeps; natural by default.
    near : MixtureSpec, optional
        A mixture to stay close to; needs `within`.
    within : float or str, optional
        The largest distance from `near`.
    distance : str
        How that is measured: `"l1"`, the sum of absolute differences, or `"kl"`, nats.
    after : MixtureSpec, optional
        For a run already begun, what it has read so far; needs `trained`. N, D, bounds and epochs are those of the
        whole run, and so is the answer, whose `rest` is what to read from now on. Mixtures to compare with are of the
        rest. Losses are taken to hang on what a run has read in all, not on its order.
    trained : Size, optional
        How many of the D tokens it has read.
    anchor : MixtureSpec, optional
        A mixture towards which the optimum is pulled; needs `kl`.
    kl : float
        Strength of the pull: the term kl * KL(p || anchor) is added to the objective, in its unit.
    constraints : sequence of Constraint
        Functions from the ratios by name, which are cvxpy expressions, to one cvxpy constraint or a list of them:
        `lambda p: p["en"] <= 2 * p["de"]`.
    compare_to : Rivals
        Further mixtures to compare with, by name or in a list: `["unimax:4", "plan=en=0.5,de=0.5"]`.
    what_if : str or sequence of str
        Changes of the available tokens, such as `"de+50B"` or `"de+50B,fr-10B"`: the problem is solved again with each.
    downstream : Downstream or path, optional
        Calibrated tasks: the mixture is chosen by their scores instead of losses.
    allow_unseen : bool
        Allow ratios for sources that no fitted run saw, and others than the one that all runs had.
    level : float
        Probability of the intervals.
    seed : int
        Seed of the search that is made where a law is not convex.

    Raises
    ------
    InfeasibleError
        If the bounds leave no mixture; says which, by how much, and the smallest repair.
    SolveError
        If no mixture has a finite loss, the law overflows at the budget, or a constraint is not convex.
    UsageError
        If a name is unknown or an option out of range.
    """
    return Problem.of(Asked(fit, N, D, **keywords))
