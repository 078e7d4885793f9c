"""What the first pass shows of a model, before anything is booked: how it uses each of its parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FirstPass:
    """What is known of one model.

    Attributes
    ----------
    per_language : set of str
        Parameters that are used in calls that are not covered, so that their gradients take a pass a language.
    same_rows : dict of str to str
        The first parameter that is given the same rows of inputs.
    turned : dict of str to bool
        Whether a matrix has its inputs in front.
    uses : dict of str to set
        In which ways a parameter is used.
    unordered : bool
        Whether rows of a linear layer that is not trained are in another order than sequences.
    is_over : bool
        Whether it is: what is met from now on is not learnt.
    """

    per_language: set[str] = field(default_factory=set)
    same_rows: dict[str, str] = field(default_factory=dict)
    turned: dict[str, bool] = field(default_factory=dict)
    uses: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)
    unordered: bool = False
    is_over: bool = False

    @property
    def listed(self) -> str:
        """The parameters that take a pass a language, those of alike layers once."""
        return ", ".join(sorted({re.sub(r"\.\d+\.", ".*.", name) for name in self.per_language}))

    def forget(self) -> None:
        """Begin again with nothing known."""
        self.per_language, self.same_rows, self.turned, self.uses, self.unordered = set(), {}, {}, {}, False

    def has_shown(self, func: Any, bare: bool, names: Sequence[str]) -> bool:
        """Whether it has shown this use of parameters, or none: of other sequences there may by chance be as many as
        there are heads or positions."""
        own = (func, bare, *names)
        if not self.is_over:
            for name in names:
                self.uses.setdefault(name, set()).add(own)
        return all(own in self.uses.get(name, (own,)) for name in names)

    def learn(self, name: str, first: str | None, flipped: bool) -> None:
        """Learn which parameter was the first to take the same rows, if any, and whether inputs are in front."""
        if not self.is_over:
            self.turned[name] = flipped and self.turned.get(name, True)
            if first is not None:
                self.same_rows.setdefault(name, first)
