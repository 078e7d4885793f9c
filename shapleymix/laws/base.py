"""What all laws share: how symbols are declared, derivatives, bounds, masks, replicates, units and JSON.

The rest of the program knows a symbol by what is declared here, never by its name: what a weak prior pulls on, which
symbols a log with one size cannot tell, which may vanish, what a starting grid crosses.

A law is a frozen dataclass whose fields are the paper's symbols. A field "per target" has shape
(..., K), a field "per source and target" (..., M, K); leading axes are replicates. The equation stands in `pieces`,
which are convex in the mixture, or in `__call__` for a law that has none; target j's loss depends on column j of every
symbol and on nothing else. That and the symbols are all that a law must state: its derivative is taken through the
pieces, or by differences, unless it gives its own `expansion`; the search begins where the symbols say; and a law
without pieces is optimised by a general search.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar, cast

import numpy as np

from shapleymix.errors import FitError, ShapleyMixError, UsageError, described
from shapleymix.files import Json
from shapleymix.laws.pieces import MATRICES, Pieces, over_sources
from shapleymix.records import BoolArray, FloatArray, Record
from shapleymix.tables.languages import Languages, Parents, paths_of
from shapleymix.tables.transfer import TransferMatrix

Axes = Literal["K", "MK"]
Budget = Literal["N", "D"]
Role = Literal["linear", "exponent", "coefficients", "shape", "given"]
"""What a symbol is to those who do not know its law.

- linear: the loss is linear in it and zero is allowed (E, A, B): starting values solve for it exactly;
- exponent: of N or D (alpha, beta);
- coefficients: one value for each source and target, which a weak prior holds where the log does not tell;
- shape: any other fitted symbol;
- given: it comes with the inputs and is never fitted.
"""


@dataclass(frozen=True)
class Belief:
    """What is believed of a symbol before any run: a centre and a spread, in the units of the search.

    Both broadcast to (K,), or to (M, K) for a symbol of that kind; an infinite spread believes nothing. Sources with
    one number of `siblings` (M, K) are believed to be alike, too: what parts their values from their mean is pulled to
    zero by `kin` times the precision that the spread has.
    """

    center: FloatArray | float
    spread: FloatArray | float
    siblings: FloatArray | None = None
    kin: float = 0.0


Knobs = Mapping[str, float]
"""Numbers by name that say what is believed, chosen by cross-validation."""

EXPONENTS = (0.1, 0.25, 0.45, 0.8)
SHAPES = (0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Parameter:
    """One symbol of a law; see `fitted` for the fields.

    A fitted symbol is searched over as `log(value)` where it is positive, and as the value itself where it is real.
    """

    name: str
    axes: Axes
    role: Role
    positive: bool = True
    low: float = 0.0
    high: float = np.inf
    budget: Budget | None = None
    usual: float | None = None
    start: tuple[float, ...] = ()

    @property
    def is_fitted(self) -> bool:
        """Whether a fit determines the symbol."""
        return self.role != "given"

    @property
    def starts(self) -> FloatArray:
        """Values from which a search begins, where the law itself names none."""
        listed = self.start or (EXPONENTS if self.role == "exponent" else SHAPES if self.positive else (-1.0, 0.0, 1.0))
        return np.unique(np.clip(listed, self.low, self.high))

    def encode(self, value: FloatArray) -> FloatArray:
        """From the value to what is searched over."""
        return np.log(np.maximum(value, self.low)) if self.positive else value

    def decode(self, searched: FloatArray) -> FloatArray:
        """From what is searched over to the value."""
        return np.exp(searched) if self.positive else searched


def fitted(
    axes: Axes = "K",
    *,
    role: Role = "shape",
    low: float = 1e-6,
    high: float = 1e12,
    positive: bool = True,
    budget: Budget | None = None,
    usual: float | None = None,
    start: tuple[float, ...] = (),
) -> FloatArray:
    """Declare a symbol that the fit determines.

    Parameters
    ----------
    axes : {"K", "MK"}
        One value for each target, or one for each source and target.
    role : str
        `"linear"`: the loss is linear in it and zero is allowed (E, A, B); then the axes are "K". `"exponent"`: of N or
        D. `"coefficients"`: one for each source and target, held by a weak prior where the log does not tell.
        `"shape"`: any other.
    low, high : float
        Bounds of the search. A linear symbol at `low` counts as zero.
    positive : bool
        Searched over by its logarithm, or (a real symbol) as it is.
    budget : {"N", "D"}, optional
        The budget that must vary for the symbol to be fitted: with one value of it in the log, the symbol is 0.
    usual : float, optional
        The value at which an exponent is held where the log has two values of its budget.
    start : tuple of float
        Where the search begins, crossed with the other symbols' values; not needed for linear symbols, nor for those
        that the law's `starts` gives.
    """
    if role == "linear" and (axes != "K" or not positive):
        raise TypeError("a linear symbol has one value for each target, and none is negative")
    known = Parameter("", axes, role, positive, low, high, budget, usual, start)
    return cast(FloatArray, field(metadata={"parameter": known}))


def given(axes: Axes = "MK") -> FloatArray:
    """Declare a symbol that comes with the inputs (see `Law.givens`) and is never fitted."""
    return cast(FloatArray, field(metadata={"parameter": Parameter("", axes, "given")}))


def over_runs(value: FloatArray) -> FloatArray:
    """Insert the run axis: (..., K) becomes (..., 1, K)."""
    return value[..., None, :]


Reply = TypeVar("Reply")
PACKAGE = Path(__file__).parents[1]
ABSURD = 1e100
"""What is beyond is no loss, and its square is near the end of floating point."""

STEP = 1e-5  # of a central difference, in a symbol's logarithm
TINY = 1e-100  # of a complex step, whose derivative has no rounding to fear
SMALLEST_LOSS, LARGEST_LOSS = 1e-300, 1e300


@dataclass(frozen=True)
class Inputs:
    """What a law may be given besides the losses: labels, a transfer matrix, a languages table, what runs there are.

    `parents` says whose part a source is, `in_runs` (M,) which sources some run holds (None: all), and `least` are the
    smallest N and D of the fitted runs, in the units of the search.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    transfer: TransferMatrix | None = None
    languages: Languages | None = None
    parents: Parents = field(default_factory=dict)
    in_runs: BoolArray | None = None
    least: tuple[float, float] = (1.0, 1.0)

    @property
    def paths(self) -> tuple[str, ...]:
        """(M,) whose part each source is."""
        return paths_of(self.sources, self.parents, self.targets)


@dataclass(frozen=True)
class Observations:
    """What a law may learn from: p (R, M), N and D (R,) in the units of the search, log losses and weights (R, K).

    A loss that was not measured, or a run left out, has weight zero; its log loss is finite and means nothing.
    """

    p: FloatArray
    N: FloatArray
    D: FloatArray
    log_loss: FloatArray
    weight: FloatArray


@dataclass(frozen=True)
class Law(Record):
    """Base of all parametric laws; see the module's text for axes, and `shapleymix.laws` for how to add one."""

    name: ClassVar[str]
    reference: ClassVar[str] = ""
    assumption: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()  # of "mixture", "one mixture", "transfer", "families"
    takes_repetition: ClassVar[bool] = True  # whether the equation takes effective ratios, which sum to less than one
    knobs: ClassVar[Mapping[str, tuple[float, ...]]] = {}  # what `beliefs` takes: values to try, the usual one first
    threshold: ClassVar[float] = 1e-3  # Huber's, on log residuals, where the user names none
    relative: ClassVar[bool] = False  # fitted to N / N0 and D / D0, and turned back to plain units by `rescale`

    def to_document(self) -> dict[str, Json]:
        """As JSON. A class needs a kind of its own, or it would be read back as its parent."""
        if "kind" not in type(self).__dict__:
            hint = f"state kind = 'law/{self.name}' in its class"
            raise UsageError(f"law {type(self).__name__} has no kind of its own to be stored under", hint=hint)
        return super().to_document()

    def __call__(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Predicted losses in nats per token, shape (..., R, K), for p (R, M), N (R,), D (R,); NaN where undefined."""
        pieces = self.pieces(N, D)
        if pieces is None:
            raise NotImplementedError(f"law {self.name!r} states neither its pieces nor its losses")
        loss = pieces.of_sources(p.shape[-1]).losses(p)
        return np.where(np.isinf(loss), np.nan, loss)

    def pieces(self, N: FloatArray | float, D: FloatArray | float) -> Pieces | None:
        """The equation as convex pieces in the mixture, for scalars N and D, or with a run axis for arrays (R,).

        None for a law that has no such pieces, and states `__call__` instead.
        """
        return None

    def at(self, N: FloatArray | float, D: FloatArray | float) -> tuple[Self, FloatArray, FloatArray]:
        """The law and the budgets as an equation takes them: where these have a run axis, symbols (..., 1, K)."""
        N, D = np.asarray(N, dtype=np.float64), np.asarray(D, dtype=np.float64)
        if not N.ndim:
            return self, N, D
        along = self.map(lambda known, value: value[..., None, :] if known.axes == "K" else value[..., None, :, :])
        return along, N[..., None], D[..., None]

    def losses(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """What the equation gives, as doubles of shape (..., R, K).

        Raises
        ------
        FitError
            If the law raises an error, or gives anything else; it is named.
        """
        with np.errstate(all="ignore"):
            answer = ask(self.name, lambda: self(p, N, D))
        return as_losses(self.name, answer, (*self.batch(), p.shape[-2], self.targets_count()))

    def expansion(self, p: FloatArray, N: FloatArray, D: FloatArray) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Log loss (..., R, K), and its derivative by the logarithm of each fitted symbol (by a real symbol itself).

        Shapes: (..., R, K) for symbols per target, (..., R, M, K) for symbols per source and target. Where the law is
        undefined the numbers are finite and mean nothing. The default goes through the pieces: their fields are
        differentiated by a complex step, which is exact, and the loss by the fields. A law without pieces is
        differenced, two evaluations an unknown; a law that is fitted often states its own, several times faster.
        """
        found = self.pieces(N, D)
        if found is None:
            log_loss = self._log_loss(p, N, D)
            return log_loss, {known.name: self._difference(known, p, N, D) for known in self.symbols_to_fit()}
        loss, partials = found.of_sources(p.shape[-1]).partials(p)
        loss = np.clip(loss, SMALLEST_LOSS, LARGEST_LOSS)
        by_log = {name: by / (loss if name not in MATRICES else loss[..., None, :]) for name, by in partials.items()}
        return np.log(loss), {known.name: self._through(known, by_log, p, N, D) for known in self.symbols_to_fit()}

    @classmethod
    def starts(cls, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Starting values that depend on the data, each with a leading axis of S starts: (S, K) or (S, M, K).

        Symbols that are not among them start from `Parameter.starts`; linear symbols are solved for.
        """
        return {}

    @classmethod
    def givens(cls, inputs: Inputs) -> dict[str, FloatArray]:
        """The symbols that come with the inputs."""
        return {}

    @classmethod
    def beliefs(cls, knobs: Knobs, givens: Mapping[str, FloatArray]) -> dict[str, Belief]:
        """What is believed of fitted symbols before any run, at given values of the knobs; nothing of the others.

        A law that believes something of every coefficient needs no more runs than two.
        """
        return {}

    @classmethod
    def require(cls, inputs: Inputs) -> None:
        """Refuse a log that the law cannot be fitted to, whatever its losses are.

        Raises
        ------
        UsageError
            If the law needs ratios and the log has none, or is fitted in relative units without a way back.
        """
        if cls.relative and cls.rescale is Law.rescale:
            raise UsageError(f"law {cls.name!r} is fitted in relative units", hint="state `rescale` in its class")
        if "mixture" in cls.needs and not inputs.sources:
            hint = "give p_<source> columns, or fit a law without a mixture, such as 'chinchilla'"
            raise UsageError(f"law {cls.name!r} needs ratios, and the log has none", hint=hint)

    def is_defined(self, p: FloatArray) -> BoolArray:
        """Where the law gives a finite loss, shape (..., R, K)."""
        return np.isfinite(self.losses(p, *np.ones((2, len(p)))))

    @classmethod
    @cache
    def parameters(cls) -> tuple[Parameter, ...]:
        """All symbols, in declared order."""
        declared = [one for one in fields(cls) if "parameter" in one.metadata]
        return tuple(replace(one.metadata["parameter"], name=one.name) for one in declared)

    @classmethod
    def symbols_to_fit(cls) -> tuple[Parameter, ...]:
        """The symbols that a fit determines."""
        return tuple(parameter for parameter in cls.parameters() if parameter.is_fitted)

    @classmethod
    def of_budget(cls, budget: Budget) -> tuple[str, ...]:
        """Names of the symbols that cannot be fitted without variation in N, or in D."""
        return tuple(known.name for known in cls.symbols_to_fit() if known.budget == budget)

    def idle(self) -> dict[str, BoolArray]:
        """Symbols per target on which nothing hangs for some targets, with those (K,); nobody is shown them there."""
        return {}

    def targets_count(self) -> int:
        """K."""
        return np.shape(getattr(self, self.parameters()[0].name))[-1]

    def batch(self) -> tuple[int, ...]:
        """The axes before those of sources and targets, of replicates; given symbols have none."""
        shapes = (np.shape(getattr(self, known.name))[: -len(known.axes)] for known in self.parameters())
        return max(shapes, key=len, default=())

    @classmethod
    def shapes(cls) -> Mapping[str, str]:
        return {known.name: f"*{known.axes}" for known in cls.parameters()}

    def rescale(self, N0: float, D0: float) -> Self:
        """The same law for N and D in plain units, when it was fitted to N / N0 and D / D0 (see `relative`)."""
        return self

    def in_gauge(self) -> Self:
        """The same law in its standard scale, where fitted symbols are known up to one."""
        return self

    def swap(self, **symbols: FloatArray) -> Self:
        """The law with some symbols changed."""
        return replace(self, **symbols)

    def map(self, change: Callable[[Parameter, FloatArray], FloatArray]) -> Self:
        """A law whose every symbol is `change(parameter, value)`."""
        return self.swap(**{known.name: change(known, getattr(self, known.name)) for known in self.parameters()})

    def _through(
        self, known: Parameter, by_field: dict[str, FloatArray], p: FloatArray, N: FloatArray, D: FloatArray
    ) -> FloatArray:
        """The derivative by what the search moves of one symbol, from those by the fields of the pieces.

        A coefficient that does more than act on its own source's fields is differenced.
        """
        value = np.asarray(getattr(self, known.name))
        step = value if known.positive else np.ones(value.shape)
        moved = self.swap(**{known.name: cast(FloatArray, value + 1j * TINY * step)}).pieces(N, D)
        moves = {name: np.imag(getattr(moved, name)) / TINY for name in by_field}
        moves = {name: move for name, move in moves.items() if np.any(move)}
        if known.axes == "MK" and not moves.keys() <= MATRICES:
            return self._difference(known, p, N, D)
        total = np.zeros(by_field["phi" if known.axes == "MK" else "floor"].shape)
        for name, move in moves.items():
            part = by_field[name] * move
            total = total + (over_sources(part) if name in MATRICES and known.axes == "K" else part)
        return total

    def _log_loss(self, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Log loss; 0 where undefined, and finite where the loss is not positive or overflows."""
        loss = self.losses(p, N, D)
        return np.log(np.where(np.isnan(loss), 1.0, np.clip(loss, SMALLEST_LOSS, LARGEST_LOSS)))

    def _difference(self, known: Parameter, p: FloatArray, N: FloatArray, D: FloatArray) -> FloatArray:
        """Central differences of the log loss by what the search moves, all targets of a row at once."""
        searched = known.encode(np.asarray(getattr(self, known.name)))

        def log_loss_at(shift: FloatArray) -> FloatArray:
            return self.swap(**{known.name: known.decode(searched + shift)})._log_loss(p, N, D)

        def slope(step: FloatArray) -> FloatArray:
            return (log_loss_at(step) - log_loss_at(-step)) / (2 * STEP)

        if known.axes == "K":
            return slope(np.array(STEP))
        return np.stack([slope(row) for row in STEP * np.eye(p.shape[1])[:, :, None]], axis=-2)


def require_transfer(inputs: Inputs, law: str) -> TransferMatrix:
    """The transfer matrix in the log's own order of labels, or an error that says how to get one."""
    if inputs.transfer is None:
        hint = "give one (transfer); Shapley values of coalition runs are one"
        raise UsageError(f"law {law!r} needs a transfer matrix", hint=hint)
    return inputs.transfer.align(inputs.sources, inputs.targets)


def ask(name: str, question: Callable[[], Reply]) -> Reply:
    """The answer to a question that someone else's code is asked.

    Raises
    ------
    FitError
        If that code raises an error that is not ours, with its words, file and line.
    """
    try:
        return question()
    except ShapleyMixError:
        raise
    except Exception as error:
        message = f"law {name!r} raised {type(error).__name__}{_place(error)}: {error}"
        raise FitError(message, hint="mend the law's code") from error


def _place(error: Exception) -> str:
    """Where the asked code, the first that is not this package's, left its own file last."""
    calls = traceback.extract_tb(error.__traceback__)[1:]
    theirs = [call for call in calls if not Path(call.filename).is_relative_to(PACKAGE)] or calls
    lines = [call.lineno for call in theirs if call.filename == theirs[0].filename]
    return f" at {theirs[0].filename}:{lines[-1]}" if lines else ""


def as_losses(name: str, answer: object, shape: tuple[int, ...]) -> FloatArray:
    """An answer as doubles of the shape that was asked for.

    Raises
    ------
    FitError
        If it holds no numbers, or has another shape.
    """
    hint = f"it must return real numbers of shape {shape}: runs, then targets in the log's order, after any replicates"
    try:
        found = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FitError(f"law {name!r} predicts {described(answer)}, not losses", hint=hint) from error
    if found.shape != shape:
        raise FitError(f"law {name!r} predicts losses of shape {found.shape}, expected {shape}", hint=hint)
    return found
