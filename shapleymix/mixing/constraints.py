"""Constraints that a user writes with cvxpy: affine ones are rows of the bounds, others are met by cuts.

A convex expression is nowhere below its tangents. So these, at one mixture after another that breaks a constraint, are
rows that a solver takes (Kelley 1960), and their multipliers are its price.

Axes: M sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapleymix.errors import SolveError, UsageError, described, did_you_mean
from shapleymix.mixing.polytope import Polytope
from shapleymix.records import FloatArray

Constraint = Callable[[Mapping[str, Any]], object]
"""A function from the ratios by name, which are cvxpy expressions, to one cvxpy constraint or a list of them."""

INSIDE = 1e-12
"""A ratio below this is replaced by it where a tangent is made, since slopes at zero may be infinite."""


@dataclass(frozen=True)
class CurvedConstraints:
    """Convex expressions of the ratios that must be at most 0.

    Attributes
    ----------
    variable : cvxpy.Variable
        The ratios.
    names : tuple of str
        What to call each.
    expressions : tuple of cvxpy.Expression
        Each in units of ratio, and of any shape.
    """

    variable: Any = None
    names: tuple[str, ...] = ()
    expressions: tuple[Any, ...] = ()

    def violation(self, p: FloatArray) -> float:
        """By how much a mixture (M,) breaks the worst of them; 0 without any, infinite where one has no value."""
        if not self.names:
            return 0.0
        self.variable.value = np.maximum(p, 0.0)
        over = np.max([np.max(one.value) for one in self.expressions])
        return max(float(np.nan_to_num(over, nan=np.inf)), 0.0)

    def cuts(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Of each the tangent at a mixture (M,) of the part that is broken most: rows (C, M) and their limits (C,).

        Raises
        ------
        SolveError
            If one has no slope there.
        """
        found, inside = [], np.maximum(p, INSIDE)
        for name, one in zip(self.names, self.expressions, strict=True):
            if (tangents := _tangents(one, self.variable, inside)) is None:
                raise SolveError(f"{name} has no slope at some mixture", hint="write it with smooth functions")
            worst = int(np.argmax(tangents[0] @ inside - tangents[1]))
            found.append((tangents[0][worst], tangents[1][worst]))
        rows, limits = zip(*found, strict=True)
        return np.stack(rows), np.array(limits)

    def relax(self, name: str, by: float) -> CurvedConstraints:
        """The same with more room in those of a name."""
        pairs = zip(self.names, self.expressions, strict=True)
        return replace(self, expressions=tuple(one - by if name == own else one for own, one in pairs))


def rows_and_curves(bounds: Polytope, functions: Sequence[Constraint]) -> tuple[Polytope, CurvedConstraints]:
    """The bounds with every affine constraint of the user's own as rows, and the others.

    Raises
    ------
    SolveError
        If one is not convex. UsageError if a function returns no constraint, or one that is not of the ratios alone.
    """
    if not functions:
        return bounds, CurvedConstraints()
    import cvxpy as cp

    p, further = cp.Variable(len(bounds.sources)), []
    ratios = {name: p[i] for i, name in enumerate(bounds.sources)}
    for number, write in enumerate(functions, 1):
        try:
            made = write(ratios)
        except KeyError as error:
            hint = did_you_mean(str(error.args[0]), bounds.sources)
            raise UsageError(f"a function of constraints asks for the ratio of {error.args[0]!r}", hint=hint) from error
        for one in made if isinstance(made, (list, tuple)) else [made]:
            expression, equal = _read_comparison(one, p, bounds.sources[0])
            name = f"constraint {number}"
            if not expression.is_affine():
                further.append((name, expression))
                continue
            rows, limits = _tangents(expression, p, np.zeros(p.size)) or ((), ())
            for weights, limit in zip(rows, limits, strict=True):
                bounds = bounds.with_row(name, weights, limit if equal else -np.inf, limit)
    names, expressions = zip(*further, strict=True) if further else ((), ())
    return bounds, CurvedConstraints(p, names, expressions)


def _read_comparison(constraint: Any, p: Any, example: str) -> tuple[Any, bool]:
    """The expression that a comparison wants at most zero, or at zero, in units of ratio: its largest slope at the even
    mixture is 1."""
    import cvxpy as cp

    kind = type(constraint).__name__
    if kind == "SOC":
        constraint, kind = cp.norm(constraint.args[1]) <= constraint.args[0], "Inequality"
    if kind not in ("Inequality", "Equality") or any(one.id != p.id for one in constraint.variables()):
        hint = f"return one comparison of the ratios or a list of them, such as p[{example!r}] <= 0.5"
        raise UsageError(f"a function of constraints returned {described(constraint)}", hint=hint)
    if not constraint.is_dcp():
        hint = "write it by cvxpy's rules (dcp.stanford.edu)"
        raise SolveError(f"a constraint is not convex: {constraint}", hint=hint)
    p.value = np.full(p.size, 1 / p.size)
    slopes = constraint.expr.grad.get(p)
    unit = 0.0 if slopes is None else float(abs(slopes).max())
    return constraint.expr / (unit if unit > 0 else 1.0), kind == "Equality"


def _tangents(expression: Any, p: Any, at: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Rows (C, M) and limits (C,) of the tangents of an expression's parts at a mixture (M,); None without slopes."""
    p.value = at
    slopes = expression.grad.get(p)
    if slopes is None:
        return None
    rows = slopes.T.toarray()
    return rows, rows @ at - np.ravel(expression.value, order="F")
