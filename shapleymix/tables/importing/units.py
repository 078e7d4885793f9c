"""The units in which logs are kept: losses as nats a token, whatever they were written in; ratios as parts of one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shapleymix.errors import UsageError, described, did_you_mean
from shapleymix.records import FloatArray
from shapleymix.tables.amounts import parse_choice, parse_pairs, parse_positive
from shapleymix.tables.sizes import parse_budget

LOSS_UNITS = {
    "nats": "nats per token",
    "bits": "bits per token",
    "bpb": "bits per byte",
    "perplexity": "the exponential of nats per token",
    "percent": "an error rate in percent",
}
RATIO_UNITS = {
    "fraction": "ratios of a row sum to 1",
    "percent": "ratios of a row sum to 100",
    "weights": "ratios of a row sum to anything, and are divided by it",
}
LN2 = math.log(2)

BytesPerToken = float | str | Mapping[str, float | str] | Sequence[str]
"""A number for all targets, or by target: a mapping, `en=4.2,de=5`, or several such texts."""


@dataclass(frozen=True)
class Units:
    """In what a table is written.

    Attributes
    ----------
    loss : str
        One of `LOSS_UNITS`.
    ratio : str
        One of `RATIO_UNITS`.
    bytes_per_token : float or dict, optional
        Mean bytes of a token of each target's validation text; for bits per byte.
    tokens_per_step : float
        What a number in the column of D counts.
    """

    loss: str = "nats"
    ratio: str = "fraction"
    bytes_per_token: float | Mapping[str, float] | None = None
    tokens_per_step: float = 1.0

    @classmethod
    def of(
        cls,
        unit: str | None = None,
        ratio_unit: str | None = None,
        bytes_per_token: object = None,
        tokens_per_step: float | str | None = None,
    ) -> Units:
        """Units as they are asked for.

        Raises
        ------
        UsageError
            If a word is unknown, bits per byte have no bytes a token, or other units have some.
        """
        loss = parse_choice(unit or "nats", tuple(LOSS_UNITS), "unit of losses")
        ratio = parse_choice(ratio_unit or "fraction", tuple(RATIO_UNITS), "unit of ratios")
        if bytes_per_token is not None and loss != "bpb":
            raise UsageError(f"bytes_per_token does nothing to losses in {loss}", hint="give unit=bpb, or leave it out")
        if bytes_per_token is None and loss == "bpb":
            hint = "give the mean bytes of a token of the validation text: bytes_per_token=4.2, or en=4.2,zh=3.1"
            raise UsageError("bits per byte are nats per token only with the bytes of a token", hint=hint)
        known = None if bytes_per_token is None else _bytes(bytes_per_token)
        steps = 1.0 if tokens_per_step is None else parse_budget(tokens_per_step, "tokens_per_step")
        return cls(loss, ratio, known, steps)

    @property
    def whole(self) -> float | None:
        """What the ratios of a row sum to; None where that may be anything."""
        return {"fraction": 1.0, "percent": 100.0}.get(self.ratio)

    @property
    def least(self) -> float:
        """Losses are above this, as they are written."""
        return 1.0 if self.loss == "perplexity" else 0.0

    def nats(self, losses: FloatArray, target: str) -> FloatArray:
        """Losses (R,) of a target as nats a token; those that are no losses, as they are."""
        if self.loss == "perplexity":
            return np.log(losses, out=losses.copy(), where=losses > 0)
        factor = {"bits": LN2, "bpb": LN2 * self._bytes_of(target), "percent": 0.01}.get(self.loss, 1.0)
        return losses * factor

    def _bytes_of(self, target: str) -> float:
        known = self.bytes_per_token
        if not isinstance(known, Mapping):
            return 1.0 if known is None else known
        if target not in known:
            hint = f"give each target its number, separated by commas: {target}=4.2"
            raise UsageError(f"bytes_per_token has no number for the target {target!r}", hint=hint)
        return known[target]

    def check_targets(self, targets: Sequence[str]) -> None:
        """Refuse bytes a token of what is no target."""
        if isinstance(self.bytes_per_token, Mapping):
            for name in self.bytes_per_token:
                if name not in targets:
                    raise UsageError(
                        f"bytes_per_token: {name!r} is not one of the targets", hint=did_you_mean(name, targets)
                    )

    def notices(self) -> tuple[str, ...]:
        """What became of the numbers."""
        told = []
        if self.loss in ("bits", "bpb", "perplexity"):
            told.append(f"losses were read as {LOSS_UNITS[self.loss]}, and are nats per token now")
        elif self.loss == "percent":
            told.append("losses were read as error rates in percent, and are fractions now, not nats")
        if self.ratio == "percent":
            told.append("ratios were read as percentages")
        elif self.ratio == "weights":
            told.append("ratios were divided by the sum of their row")
        if self.tokens_per_step != 1:
            told.append(f"D was read in steps of {self.tokens_per_step:.10g} tokens")
        return tuple(told)


def _bytes(given: object) -> float | dict[str, float]:
    """Bytes a token: one number, or numbers by target."""
    what = "bytes_per_token"
    if isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    if isinstance(given, (Mapping, list, tuple)) or (isinstance(given, str) and "=" in given):
        return parse_pairs(given, parse_positive, what)
    if isinstance(given, (str, int, float)):
        return parse_positive(given, what)
    raise UsageError(f"{what} is {described(given)}, expected a number", hint="give 4.2, or en=4.2,zh=3.1")
