"""Options that commands share, and the types of their values."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

import click

from shapleymix.errors import Location, ShapleyMixError, UsageError
from shapleymix.files import TABLES
from shapleymix.fitting.settings import LEVEL, SEED, Settings
from shapleymix_cli.completing import with_completion
from shapleymix_cli.console import Output
from shapleymix_cli.flags import flags_of, in_flags
from shapleymix_cli.forms import Command, recorded_command
from shapleymix_cli.own_laws import blaming
from shapleymix_cli.project import TAKEN, Taken, Takes


def command(*examples: str, project: Takes | None = None) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command: it gets its `Output` first, and its options by name.

    Parameters
    ----------
    project : mapping, optional
        The entries of a project file that it takes.
    """

    def make(function: Callable[..., None]) -> Command:
        @functools.wraps(function)
        def call(as_json: bool, quiet: bool, verbose: bool, **options: object) -> None:
            context = click.get_current_context()
            taken: Taken = context.meta.get(TAKEN, Taken())
            options.pop("project", None)
            typed, commands = context.find_root().obj or [], len(context.command_path.split()) - 1
            line, flags = recorded_command(taken.around(typed, commands)), flags_of(context.command)
            out = Output(as_json=as_json, quiet=quiet, verbose=verbose, command_line=line, flags=flags)
            out.note(taken.told())
            check_output(options)
            try:
                with blaming():
                    function(out, **options)
            except ShapleyMixError as error:
                raise in_flags(error, flags) from error

        settings = {"help_option_names": ["-h", "--help"]}
        made = click.command(cls=Command, context_settings=settings)(call)
        made.project = project
        made.params.extend([*([_project()] if made.project else []), *_common()])
        made.examples = examples
        with_completion(made.params)
        return made

    return make


def _project() -> click.Option:
    text = "Take what is not given from this project file; none for none.  [default: shapleymix.toml, if it is there]"
    return click.Option(["--project"], metavar="FILE", help=text)


def _common() -> list[click.Option]:
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="One JSON document on standard output."),
        click.Option(["-q", "--quiet"], is_flag=True, help="No notes, warnings or progress."),
        click.Option(["-v", "--verbose"], is_flag=True, help="Show more."),
    ]


class Size(click.ParamType):
    """A size above zero: `243M`, `100B`, `1e22`; with `many`, several with commas between."""

    name = "SIZE"

    def __init__(self, *, many: bool = False, zero: bool = False) -> None:
        self.many = many
        self.zero = zero

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "SIZE[,...]" if self.many else "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        parts = value.split(",") if self.many else [value]
        sizes = tuple(self._parse(part, _named(param)) for part in parts)
        return sizes if self.many else sizes[0]

    def _parse(self, text: str, option: str) -> float:
        from shapleymix.tables.sizes import parse_size

        try:
            size = parse_size(text)
        except UsageError as error:
            raise UsageError(f"{option}: {error.message}", hint=error.hint) from error
        if size <= 0 and not self.zero:
            raise UsageError(f"{option}: {text!r} is not a size above zero", hint="write it like 243M or 1.5e9")
        return size


class Number(click.ParamType):
    """A finite number between bounds, which belong to it unless `open_ends`."""

    name = "NUMBER"

    def __init__(self, low: float = -math.inf, high: float = math.inf, *, open_ends: bool = False) -> None:
        self.low, self.high, self.open_ends = low, high, open_ends

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        inside = self.low < number < self.high if self.open_ends else self.low <= number <= self.high
        if not (math.isfinite(number) and inside):
            raise UsageError(f"{_named(param)}: {value!r} is not a number{self._range()}")
        return number

    def _range(self) -> str:
        bounds = []
        if math.isfinite(self.low):
            bounds.append(f"{'above' if self.open_ends else 'at least'} {self.low:g}")
        if math.isfinite(self.high):
            bounds.append(f"{'below' if self.open_ends else 'at most'} {self.high:g}")
        return f" {' and '.join(bounds)}" if bounds else ""


class Count(click.ParamType):
    """A whole number of at least `low`."""

    name = "COUNT"

    def __init__(self, low: int = 0) -> None:
        self.low = low

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value))
        except ValueError:
            number = self.low - 1
        if number < self.low:
            raise UsageError(f"{_named(param)}: {value!r} is not a whole number of at least {self.low}")
        return number


def _named(param: click.Parameter | None) -> str:
    return param.opts[0] if param is not None else "the value"


Decorated = TypeVar("Decorated", bound=Callable[..., object])

SIZE = Size()
SIZES = Size(many=True)
SIZE_OR_ZERO = Size(zero=True)
COUNT = Count()
FRACTION = Number(0, 1, open_ends=True)
POSITIVE = Number(0, open_ends=True)

fit_file = click.argument("fit_path", metavar="FIT")
law_file = click.option("--law-file", metavar="my_law.py:MyLaw", help="The law of a fit of a law of your own.")
like = click.option(
    "--like", metavar="cs=pl,...", multiple=True, help="Take a source without runs to be like another; repeatable."
)
force = click.option("--force", is_flag=True, help="Overwrite the file of -o.")
seed = click.option("--seed", type=COUNT, default=SEED, show_default=True, help="Seed of every random draw.")
level = click.option("--level", type=FRACTION, default=LEVEL, show_default=True, help="Probability of the intervals.")
transfer = click.option("--transfer", metavar="MATRIX", help="Transfer matrix (a table of Shapley values).")
kind = click.option("--kind", type=click.Choice(["raw", "normalized"]), help="What the numbers of a wide matrix are.")
languages = click.option("--languages", metavar="TABLE", help="Languages table: families, available tokens.")
weights = click.option("--weights", metavar="WEIGHTS", help="unweighted, normalized, a languages table, or en=1,de=2.")
available = click.option("--available", metavar="en=5T,...", help="Unique tokens that are available (or --languages).")
strict = click.option("--strict", is_flag=True, help="Refuse points outside of what was fitted instead of warning.")
threads = click.option("--threads", type=Count(1), default=Settings.threads, show_default=True, help="Cores to use.")


def tasks(help: str) -> Callable[[Decorated], Decorated]:
    """`--downstream`, which a command words by what it does with scores, and `--task-weights`."""

    def add(function: Decorated) -> Decorated:
        return click.option("--downstream", metavar="FILE", help=help)(_task_weights(function))

    return add


_task_weights = click.option(
    "--task-weights",
    metavar="TASK=1,TASK/LANG=2",
    help="What tasks count for, in equal shares for their languages; others for nothing.  [every task alike]",
)


def estimation(function: Decorated) -> Decorated:
    """The options that say which rows count and what is minimised."""
    for option in reversed(_ESTIMATION):
        function = option(function)
    return function


_ESTIMATION = (
    click.option("--delta", type=POSITIVE, help="Huber's threshold on log residuals.  [default: the law's own]"),
    click.option("--least-squares", is_flag=True, help="Minimise squared log residuals instead of Huber's loss."),
    click.option(
        "--prior",
        type=Number(0),
        default=Settings.prior,
        show_default=True,
        help="Strength of the weak prior on learned transfer.",
    ),
    click.option(
        "--min-tokens",
        type=SIZE_OR_ZERO,
        default=Settings.min_tokens,
        help="Leave out runs that give a language fewer tokens.",
    ),
    click.option(
        "--min-own-tokens",
        type=SIZE_OR_ZERO,
        default=Settings.min_own_tokens,
        help="Leave out losses of languages with fewer tokens of their own.  [default: 0, but fit "
        "takes apart the runs without any where these are another regime]",
    ),
    click.option(
        "--drop-warmup", type=Number(0), default=0.0, metavar="SHARE", help="Leave out this first share of each run."
    ),
    click.option("--last-only", is_flag=True, help="Use the last checkpoint of each run alone."),
)


class _Estimation(TypedDict):
    prior: float
    min_tokens: float
    min_own_tokens: float | None
    drop_warmup: float
    last_only: bool


class EstimationOptions(_Estimation):
    """Those options as they are typed."""

    delta: float | None
    least_squares: bool


class EstimationKeywords(_Estimation):
    """Those options as the core takes them."""

    delta: float | None


def estimation_settings(given: EstimationOptions) -> EstimationKeywords:
    """Those options as the core takes them: plain least squares is an infinite threshold."""
    delta, plain = given["delta"], given["least_squares"]
    if plain and delta is not None:
        raise UsageError("--delta and --least-squares exclude each other")
    return {
        "prior": given["prior"],
        "min_tokens": given["min_tokens"],
        "min_own_tokens": given["min_own_tokens"],
        "drop_warmup": given["drop_warmup"],
        "last_only": given["last_only"],
        "delta": math.inf if plain else delta,
    }


def output(what: str) -> Callable[[Decorated], Decorated]:
    """The options `-o FILE` and `--force`."""

    def add(function: Decorated) -> Decorated:
        return click.option("-o", "--output", metavar="FILE", help=f"Write {what}.")(force(function))

    return add


def check_output(options: Mapping[str, object]) -> None:
    """Refuse a name of `-o` now that could not be written to after a long computation."""
    name = options.get("output")
    if not isinstance(name, str):
        return
    goal, place = Path(name), Location(file=name)
    if name == "-":
        raise UsageError("-o takes the name of a file", hint="use --json for the result on standard output")
    if goal.is_dir():
        raise UsageError("is a folder", location=place, hint="give -o the name of a file")
    if not goal.parent.is_dir():
        hint = "make it, or give -o a name in a folder that is there"
        raise UsageError("there is no such folder", location=Location(file=str(goal.parent)), hint=hint)
    refuse_input(name, _texts(options, "output"))
    if goal.exists() and not options.get("force"):
        raise UsageError("exists already", location=place, hint="choose another name, or overwrite it with --force")


def refuse_input(name: str, inputs: Sequence[str]) -> None:
    """Refuse a name of `-o` that is a file which was read."""
    if any(_same(Path(name), source) for source in inputs):
        raise UsageError("is an input as well", location=Location(file=name), hint="give -o another name")


def require_ending(name: str | None) -> None:
    """Refuse a name of `-o` whose ending names neither a table nor a document."""
    if name is not None and not name.lower().endswith((".json", *TABLES)):
        hint = "end the name in .json, .csv, .csv.gz, .parquet or .jsonl"
        raise UsageError("names no format to write", hint=hint, location=Location(file=name))


def require_document(name: str | None) -> None:
    """Refuse a name of `-o` that ends otherwise than a document's."""
    if name is not None and not name.lower().endswith(".json"):
        raise UsageError("is written as a document", hint="end the name in .json", location=Location(file=name))


def _texts(options: Mapping[str, object], leave_out: str) -> list[str]:
    """Whatever was given that may be the name of a file."""
    values = [value for name, value in options.items() if name != leave_out]
    flat = [item for value in values for item in (value if isinstance(value, tuple) else (value,))]
    return [item for item in flat if isinstance(item, str)]


def _same(goal: Path, source: str) -> bool:
    return goal.exists() and Path(source).exists() and goal.samefile(source)
