"""What a page begins from: the law, the budget, weights and bounds of a mixture, and what the fit has seen.

The page knows floors and caps of single sources, tokens at hand with the epochs that they may make, and the mean
objective. What a mixture was found under beyond that (groups, balls, penalties, the worst case) it cannot say: whether
there is any is asked of the solver, by solving the page's own question and comparing.

Legend: M sources, K targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shapleymix.errors import SolveError, UsageError
from shapleymix.files import Json
from shapleymix.fitting.fits import Fit
from shapleymix.laws.terms import Terms
from shapleymix.mixing.bounds import Constraints
from shapleymix.mixing.engine.solving import solve
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.problem import Problem
from shapleymix.mixing.regimes import Regime
from shapleymix.mixing.repeating import epochs_allowed, repeated
from shapleymix.records import BoolArray, FloatArray
from shapleymix.reports.budgets import Budgeted, budgeted

SAME = 1e-6
"""Two optima whose objectives differ by less, relatively, are one."""
OF_ONE_FIT = 1e-6
"""By how much the losses of a mixture may differ from what the fit says of it, relatively."""


@dataclass(frozen=True)
class Question:
    """What the sliders of a page stand at, and what it needs to answer.

    Attributes
    ----------
    law, absent : Budgeted
        The law, and that of mixtures without a target's own language; None where the fit knows of one regime alone.
    weights : array (K,)
        Weights of the targets, about 1.
    caps, floors : array (M,)
        Bounds that were given; those of tokens at hand are worked out from `available` and `epochs`.
    held : array (M,)
        Sources that no run saw, which stay at 0.
    notices : tuple of str
        What the mixture was found under that the page does not know.
    """

    fit: Fit
    mixture: Mixture
    law: Budgeted
    absent: Budgeted | None
    weights: FloatArray
    caps: FloatArray
    floors: FloatArray
    epochs: FloatArray
    held: BoolArray
    notices: tuple[str, ...] = ()

    def to_document(self, name: str, flags: Sequence[str] = ()) -> dict[str, Json]:
        """As JSON: `name` is the file of the fit, `flags` how it is read, for the command line that a page shows."""
        fit, mixture = self.fit, self.mixture
        known = fit.repetition
        return {
            "fit": name,
            "flags": list(flags) + (["--allow-unseen"] if fit.unseen and not self.held.any() else []),
            "sources": list(fit.sources),
            "targets": list(fit.targets),
            "law": self.law.to_document(),
            "absent": self._absent(),
            "held": self.held.tolist(),
            "moves": self.law.moves and (self.absent is None or self.absent.moves),
            "supply": {
                "available": _finite(mixture.available),
                "epochs": _finite(self.epochs),
                "seen": _finite(np.full(len(fit.sources), np.nan) if known is None else known.epochs[:, 1]),
                "rate": None if known is None else known.rate,
            },
            "ranges": {
                "N": fit.N_range.tolist(),
                "D": fit.D_range.tolist(),
                "p": fit.p_range.tolist(),
                "least_own": [_least_own(fit, j) for j in range(len(fit.targets))],
            },
            "untrained": _finite(fit.coverage.untrained),
            "start": {
                "N": mixture.N,
                "D": mixture.D,
                "weights": self.weights.tolist(),
                "caps": self.caps.tolist(),
                "floors": self.floors.tolist(),
            },
            "candidates": self._candidates(),
        }

    def _absent(self) -> Json:
        """The law of mixtures without a target's own language, and which source that is."""
        if self.absent is None or self.fit.absent is None:
            return None
        return {"own": self.fit.absent.own.tolist(), "law": self.absent.to_document()}

    def _candidates(self) -> list[Json]:
        """The mixture itself and its rivals, to be compared with what the page finds."""
        named = [("this report's", self.mixture.p), *((one.name, one.p) for one in self.mixture.baselines)]
        return [{"name": name, "p": p.tolist()} for name, p in named]


def question_of(fit: Fit, mixture: Mixture) -> Question:
    """The question that a mixture answers, as far as a page can put it.

    Raises
    ------
    UsageError
        If the mixture is of another fit.
    SolveError
        If the law has no convex pieces, or the mixture was not chosen by losses.
    """
    if mixture.measure != "loss":
        _require_same(fit, mixture, "sources")
        raise SolveError("the sliders move losses only, and the mixture was chosen by scores of tasks")
    for what in ("sources", "targets"):
        _require_same(fit, mixture, what)
    N, D = mixture.N, mixture.D
    epochs = mixture.max_epochs
    epochs = np.full(len(fit.sources), epochs_allowed(fit)) if epochs is None else epochs
    with np.errstate(invalid="ignore"):
        supplied = np.minimum(mixture.available * epochs / D, 1.0)
    by_tokens = np.isclose(mixture.caps, supplied, rtol=1e-12, atol=0)
    unseen = np.isin(fit.sources, fit.unseen)
    held = unseen & (mixture.caps <= 0)
    absent = None if fit.absent is None else budgeted(fit.absent.law, N, D)
    found = Question(
        fit=fit,
        mixture=mixture,
        law=budgeted(fit.law, N, D),
        absent=absent,
        weights=_short(mixture.weights / mixture.weights.mean()),
        caps=np.where(by_tokens | held, 1.0, mixture.caps),
        floors=mixture.floors,
        epochs=epochs,
        held=held,
    )
    _require_same_law(found)
    return replace(found, notices=_beyond(found))


def _beyond(question: Question) -> tuple[str, ...]:
    """What the mixture was found under that the page does not know, told by the page's own optimum."""
    mixture, found = question.mixture, []
    if mixture.objective_kind != "mean":
        found.append("the least worst loss was sought")
    if mixture.kl > 0:
        found.append("a penalty keeps it near an anchor")
    if mixture.provenance.get("groups"):
        found.append("groups of sources are bound")
    if mixture.min_tokens is not None and (mixture.min_tokens > 0).any():
        found.append("fewest tokens are asked for, which the sliders keep as ratios")
    if mixture.cautious:
        found.append(f"it is the cautious choice over {mixture.cautious}")
    problem = _problem(question)
    if not found and abs(problem.total(mixture.p) - problem.total(solve(problem).p)) > SAME * problem.total(mixture.p):
        found.append("it obeys more than caps, floors and weights, or is no optimum")
    if not found:
        return ()
    return (f"the sliders know caps, floors and the mean objective; of the mixture above, {', and '.join(found)}",)


def _problem(question: Question) -> Problem:
    """The page's own problem at its start."""
    fit, mixture = question.fit, question.mixture
    M, none = len(fit.sources), np.zeros(0)
    bounds = Constraints(
        sources=fit.sources,
        D=mixture.D,
        lower=mixture.floors,
        upper=mixture.caps,
        cap_origin=("given",) * M,
        available=mixture.available,
        epochs=question.epochs,
        members=np.zeros((0, M)),
        group_lower=none,
        group_upper=none,
        group_names=(),
    )
    return Problem(_terms(question, mixture.caps), question.weights / question.weights.sum(), bounds)


def _terms(question: Question, upper: FloatArray) -> Terms:
    """The law's pieces at the start, where sources have no more than `upper` (M,)."""
    fit, mixture = question.fit, question.mixture
    regime = Regime.of(fit, question.law.terms, None, mixture.N, mixture.D)
    plain = question.law.terms if regime is None else regime.held_at_zero(upper).terms
    return repeated(fit, plain, mixture.available, mixture.D)


def _require_same(fit: Fit, mixture: Mixture, what: str) -> None:
    if getattr(fit, what) != getattr(mixture, what):
        hint = "optimize this fit, and report the mixture that it gives"
        raise UsageError(f"the mixture has other {what} than the fit", hint=hint)


def _require_same_law(question: Question) -> None:
    """Refuse a mixture whose losses the fit does not know."""
    mixture = question.mixture
    there = np.isfinite(mixture.losses)
    if not np.allclose(mixture.losses[there], _losses(question)[there], rtol=OF_ONE_FIT, atol=0):
        hint = "optimize this fit, and report the mixture that it gives"
        raise UsageError("the mixture is of another fit: its losses are not those that this one predicts", hint=hint)


def _losses(question: Question) -> FloatArray:
    """Losses (K,) of the mixture under the fit, each by the regime that its target is in."""
    fit, mixture, terms = question.fit, question.mixture, question.law.terms
    regime = Regime.of(fit, terms, None, mixture.N, mixture.D)
    if regime is None:
        return repeated(fit, terms, mixture.available, mixture.D).losses(mixture.p)
    return regime.with_supply(fit, mixture.available, mixture.D).losses(mixture.p, replicated=False)


def _least_own(fit: Fit, j: int) -> float:
    """The lowest ratio of a target's own source in the runs that its fit used; 0 where it is no source."""
    name = fit.targets[j]
    return float(fit.coverage.p_range[j, fit.sources.index(name), 0]) if name in fit.sources else 0.0


def _short(values: FloatArray) -> FloatArray:
    """The same to twelve digits, so that command lines do not show how doubles are rounded."""
    return np.array([float(f"{value:.12g}") for value in values.tolist()])


def _finite(values: FloatArray) -> list[Json]:
    """Numbers, with null where there is none or no limit."""
    return [value if np.isfinite(value) else None for value in values.tolist()]
