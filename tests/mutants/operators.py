"""Which changes are made to the code: cosmic-ray's operators that suit numerical code, and three of our own.

cosmic-ray swaps operators, numbers and words of the language. Faults of numerical code hide in the functions that it
calls (a mean for a sum, a floor for a rounding) and in terms that are missing, so these are added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cosmic_ray.plugins
import parso
from cosmic_ray.operators.operator import Operator

SWAPS = {
    "mean": "sum",
    "sum": "mean",
    "rint": "floor",
    "round": "floor",
    "floor": "ceil",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
    "cumsum": "cumprod",
    "sqrt": "abs",
    "abs": "negative",
    "median": "mean",
}


class SwapFunction(Operator):
    """A function of numpy, or a method of its arrays, for another that takes the same arguments."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Names after a dot that have a counterpart."""
        if node.type == "name" and node.value in SWAPS:
            before = node.get_previous_leaf()
            if before is not None and before.value == ".":
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The counterpart."""
        node.value = SWAPS[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the operator has no test of its own in cosmic-ray."""
        return ()


class DropAugmented(Operator):
    """`total += term` does nothing."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Augmented assignments."""
        if node.type == "expr_stmt" and node.children[1].type == "operator" and node.children[1].value[-1] == "=":
            if node.children[1].value != "=":
                yield node.start_pos, node.end_pos
        elif node.type == "expr_stmt" and node.children[1].type == "augassign":
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """`pass` in its place."""
        made = parso.parse("pass").children[0]
        made.get_first_leaf().prefix = node.get_first_leaf().prefix
        return made

    @classmethod
    def examples(cls) -> tuple[()]:
        """None, as above."""
        return ()


class DropTerm(Operator):
    """`a + b` and `a - b` lose their last term."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Sums, but not those of texts."""
        if node.type == "arith_expr" and not any(leaf.type in ("string", "fstring") for leaf in node.children):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """All terms but the last."""
        del node.children[-2:]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None, as above."""
        return ()


FROM_COSMIC_RAY = (
    *(f"ReplaceBinaryOperator_{a}_{b}" for a, b in (
        ("Add", "Sub"), ("Sub", "Add"), ("Mul", "Div"), ("Div", "Mul"), ("Pow", "Mul"), ("Mod", "Div"),
        ("FloorDiv", "Mul"), ("BitAnd", "BitOr"), ("BitOr", "BitAnd"), ("LShift", "RShift"), ("RShift", "LShift"),
    )),
    *(f"ReplaceComparisonOperator_{a}_{b}" for a, b in (
        ("Lt", "LtE"), ("LtE", "Lt"), ("Gt", "GtE"), ("GtE", "Gt"), ("Lt", "Gt"), ("Gt", "Lt"), ("LtE", "GtE"),
        ("GtE", "LtE"), ("Eq", "NotEq"), ("NotEq", "Eq"), ("Is", "IsNot"), ("IsNot", "Is"),
    )),
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Not", "ReplaceUnaryOperator_Delete_Invert", "ZeroIterationForLoop",
)  # fmt: skip


def every_operator() -> dict[str, Operator]:
    """All operators by name."""
    theirs = {name: cosmic_ray.plugins.get_operator(f"core/{name}")() for name in FROM_COSMIC_RAY}
    return theirs | {"SwapFunction": SwapFunction(), "DropAugmented": DropAugmented(), "DropTerm": DropTerm()}
