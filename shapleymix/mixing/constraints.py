"""Constraints that a user writes with cvxpy: affine ones become rows of the bounds, others cones in each program.

Axes: M sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shapleymix.errors import SolveError, UsageError, described, did_you_mean
from shapleymix.mixing.polytope import Polytope
from shapleymix.records import FloatArray

Constraint = Callable[[Mapping[str, Any]], object]
"""A function from the ratios by name, which are cvxpy expressions, to one cvxpy constraint or a list of them."""

AROUND = 1e-4


class Cones:
    """Convex constraints on a mixture p: `limits - of_p @ p - of_more @ y` lies in cones, for some y.

    Attributes
    ----------
    of_p, of_more, limits : array (C, M), (C, Y) and (C,)
        The rows, in the order of the cones.
    kinds : list
        The cones, as Clarabel names them.
    """

    def __init__(self, p: Any, constraints: Sequence[Any]) -> None:
        import cvxpy as cp
        from cvxpy.error import DCPError, SolverError
        from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones

        self._p, self._constraints = p, constraints
        try:
            data = cp.Problem(cp.Minimize(0), list(constraints)).get_problem_data(cp.CLARABEL)[0]
        except (DCPError, SolverError) as error:
            raise SolveError(f"a constraint is not convex: {str(error).splitlines()[0]}") from error
        matrix, first = data["A"].toarray(), data["param_prob"].var_id_to_col[p.id]
        own = np.arange(first, first + p.size)
        self.of_p, self.of_more = matrix[:, own], np.delete(matrix, own, axis=1)
        self.limits, self.kinds = data["b"], dims_to_solver_cones(data["dims"])

    def violation(self, p: FloatArray) -> float:
        """By how much a mixture (M,) breaks the worst of them."""
        self._p.value = np.maximum(p, 0.0)
        return max(float(np.max(one.violation())) for one in self._constraints)

    def tangents(self, bounds: Polytope, p: FloatArray) -> Polytope:
        """The bounds with tangents as rows, at a mixture (M,) and a little on the way from it to each source.

        Mixtures within the constraints are within them. Those around it tell of a kink, and make up for what a cone
        solver leaves open of the mixture.
        """
        for at in (p, *((1 - AROUND) * p + AROUND * np.eye(len(p)))):
            for one in self._constraints:
                bounds = _with_tangents(bounds, one, self._p, at, "constraint")
        # What breaks a constraint by rounding does not contradict a bound.
        return replace(bounds, row_high=np.maximum(bounds.row_high, bounds.rows @ p))


def rows_and_cones(bounds: Polytope, functions: Sequence[Constraint]) -> tuple[Polytope, Cones | None]:
    """The bounds with every affine constraint of the user's own as rows, and the others.

    Raises
    ------
    SolveError
        If one is not convex. UsageError if a function returns no constraint.
    """
    if not functions:
        return bounds, None
    import cvxpy as cp

    origin, further = np.zeros(len(bounds.sources)), []
    p = cp.Variable(len(origin))
    ratios = {name: p[i] for i, name in enumerate(bounds.sources)}
    for number, write in enumerate(functions, 1):
        try:
            made = write(ratios)
        except KeyError as error:
            hint = did_you_mean(str(error.args[0]), bounds.sources)
            raise UsageError(f"a function of constraints asks for the ratio of {error.args[0]!r}", hint=hint) from error
        for one in made if isinstance(made, (list, tuple)) else [made]:
            if not isinstance(one, cp.Constraint):
                hint = f"return one constraint or a list, such as p[{bounds.sources[0]!r}] <= 0.5"
                raise UsageError(f"a function of constraints returned {described(made)}", hint=hint)
            known = _in_ratios(one, p) if _is_comparison(one) else one
            if _is_comparison(known) and known.expr.is_affine():
                bounds = _with_tangents(bounds, known, p, origin, f"constraint {number}")
            else:
                further.append(known)
    return bounds, Cones(p, further) if further else None


def _is_comparison(constraint: Any) -> bool:
    """Whether it is one of `<=`, `>=` or `==`, which have an expression that is at most, or is, zero."""
    return type(constraint).__name__ in ("Inequality", "Equality")


def _in_ratios(comparison: Any, p: Any) -> Any:
    """The same in units of ratio, whatever those that it is written in: its largest slope at the even mixture is 1."""
    p.value = np.full(p.size, 1 / p.size)
    slopes = comparison.expr.grad.get(p)
    unit = 0.0 if slopes is None else float(abs(slopes).max())
    expression = comparison.expr / (unit if unit > 0 else 1.0)
    return expression == 0 if type(comparison).__name__ == "Equality" else expression <= 0


def _with_tangents(bounds: Polytope, constraint: Any, p: Any, at: FloatArray, name: str) -> Polytope:
    """The bounds with the tangents of a comparison at a mixture (M,) as rows; without where there are none."""
    p.value = at
    slopes = constraint.expr.grad.get(p) if _is_comparison(constraint) else None
    if slopes is None:
        return bounds
    rows, equal = slopes.T.toarray(), type(constraint).__name__ == "Equality"
    for weights, limit in zip(rows, rows @ at - np.ravel(constraint.expr.value, order="F"), strict=True):
        bounds = bounds.with_row(name, weights, limit if equal else -np.inf, limit)
    return bounds
