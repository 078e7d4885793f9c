"""`fit`, `compare`, `learning-curve`, `evaluate`, `predict` and `downstream`: laws, and what they say of mixtures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import product
from typing import Any

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.fitting.comparison import USUAL
from shapleymix_cli.command_factory import argument, command, option, output
from shapleymix_cli.console import (
    Heading,
    Output,
    Part,
    Table,
    gains,
    intervals,
    percent,
    predicted,
    score_or_loss,
    section,
    significant,
    size,
)  # fmt: skip
from shapleymix_cli.inputs import holds, law_of, load, read_log

SEARCH = ("log", "starts", "prior", "delta")
"""Parameters of fits that are none of the command line."""
OF_COMPARISONS = ("weights", "objective", "downstream")
"""Options of `predict` for mixtures at one budget."""
log_argument = argument("log", "LOG...")
fit_argument = argument("fit", "FIT")
law_file = option("--law-file my_law.py:MyLaw", "The file of the law, if it is one of your own.")
like = option(
    "--like cs=pl,...",
    "Take a language without runs to be like another, or cs=text:DIR as its text says.",
    multiple=True,
)
sizes = option("-N SIZE,...", "Model sizes.  [default: the one that was fitted]")
tokens = option("-D SIZE,...", "Tokens.  [default: those that were fitted]")
Sizes = tuple[float, ...] | None


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix fit example/runs.csv --law shapley-tempered --transfer sv.csv --folds 3 --bootstrap 50 -o other.json",
    options_from=lambda: (sm.fit,),
    without=SEARCH,
)
@log_argument
@output("the fit, for predict, evaluate and optimize (.json)")
def fit(out: Output, log: sm.RunLog, **keywords: Any) -> None:
    """Fit a law of the loss in N, D and the mixture.

    The default, `--law auto`, takes the law learned-base; `compare` tells whether another is better. Several
    logs are fitted together: coalition runs at a small size inform the transfer at a large one. A law of your own is
    named as my_law.py:MyLaw.
    """
    found = sm.fit(log, **keywords, progress=out.progress)
    out.answer(found, lambda: fit_view(found, out.verbose), log.notices)


def fit_view(found: sm.Fit, everything: bool) -> list[Part]:
    """The law, how it was chosen, how well it predicts, its parameters, and the budgets that it was fitted to."""
    parts: list[Part] = [Heading(f"Law {found.law.name}: {found.law.assumption}")]
    own = " with the target's language" if found.absent is not None else ""
    kind = "the runs that were fitted" if found.held_out is None else f"held-out mixtures{own}"
    parts += section(f"Error on {kind} ({found.rows:,} rows)", scores_table(found.held_out or found.fitted_scores))
    parts += section("Parameters (-v shows all, with intervals)", _parameters(found, everything))
    N, D = (" to ".join(dict.fromkeys(map(size, span.tolist()))) for span in (found.N_range, found.D_range))
    repeats = [] if found.repetition is None else found.repetition.lines(found.sources)
    together = ", which change together" if found.coverage.together else ""
    assumed = f" Assumed, since the runs do not tell: {', '.join(found.held)}." if found.held else ""
    return [*parts, "", f"Fitted at N = {N}, D = {D}{together}.{assumed}", *repeats]


def _parameters(found: sm.Fit, everything: bool) -> Table:
    """A row for each target; or for each number, with its interval."""
    columns: Any = found.columns()
    if everything:
        return Table(columns, words=3)
    rows = list(zip(*(columns[name] for name in ("symbol", "source", "target", "value")), strict=True))
    alone = {(symbol, target): significant(value) for symbol, source, target, value in rows if not source}
    symbols = dict.fromkeys(symbol for symbol, target in alone if target in found.targets)
    each = {name: [alone.get((name, target), "-") for target in found.targets] for name in symbols}
    return Table({"target": found.targets, **each})


def scores_table(scores: Any) -> Table:
    """A row for each target, and the mean."""
    names = {"PE": "PE", "R2": "R2", "spearman": "Spearman", "coverage": "coverage"}
    shown = {text: [*getattr(scores, name).tolist(), scores.mean[name]] for name, text in names.items()}
    kept = {name: values for name, values in shown.items() if any(value == value for value in values)}
    return Table({"target": [*scores.targets, "mean"], **kept})


@command(
    "shapleymix compare example/runs.csv --laws exponential,learned-base,chinchilla --folds 3",
    options_from=lambda: (sm.compare,),
    without=SEARCH,
)
@log_argument
@option("--laws LAW,...", "Laws by name, or my_law.py:Name; by default all that the inputs allow.")
@output("the comparison, for plot and report (.json), or as a table")
def compare(out: Output, log: sm.RunLog, laws: str | None, **keywords: Any) -> None:
    """Score laws on runs that they were not fitted to, the same for all."""
    chosen = None if laws is None else [law_of(out, name.strip()) for name in laws.split(",")]
    found = sm.compare(log, chosen, **keywords, progress=out.progress)
    law = found.preferred()
    why = "no other is better by more than chance" if law in USUAL else "it errs least"
    advice = f"Fit {law} (--law {law}): {why}."
    out.answer(found, lambda: [*comparison_view(found), advice], log.notices)


def comparison_view(found: sm.Comparison) -> list[Part]:
    """The laws, the best first, each with the probability that it has a lower error than the best."""
    columns: dict[str, Any] = dict(found.columns())
    scored = [place for place, one in enumerate(found.entries) if one.scores is not None]
    ranked = sorted(scored, key=lambda place: columns["PE"][place])
    names = {"law": "law", "held-out PE": "PE", "SE": "standard_error", "R2": "R2", "Spearman": "spearman"}
    names |= {"defined": "coverage"} if any(found.entries[place].coverage < 1 for place in scored) else {}
    table: dict[str, list[Any]] = {text: [columns[name][place] for place in ranked] for text, name in names.items()}
    first, *others = map(scored.index, ranked)
    table["P(better)"] = [None, *found.better[others, first]]
    failed = [f"{one.law} could not be fitted: {one.error}" for one in found.entries if one.error]
    return [*section(f"Held out: {found.design}, {found.rows:,} rows (P(better): than the first)", table), *failed]


@command(
    "shapleymix learning-curve example/runs.csv --law mariner --folds 3",
    options_from=lambda: (sm.learning_curve,),
    only=("law", "transfer", "languages", "level", "seed", "folds", "min_own_tokens"),
)
@log_argument
@output("the curve, for plot (.json), or as a table")
def learning_curve(out: Output, log: sm.RunLog, **keywords: Any) -> None:
    """Show how a law's held-out error falls with the number of mixtures, and where more of them would bring it."""
    found = sm.learning_curve(log, **keywords, progress=out.progress)
    spread = [f"{percent(low, 2)} .. {percent(high, 2)}" for low, high in zip(found.low, found.high, strict=True)]
    ahead = {"mixtures": found.ahead.tolist(), "held-out PE": found.expected.tolist()}
    title = (
        f"Error of law {found.law} by the curve through its fits to fewer mixtures; the first row is for all of today's"
    )
    out.answer(found, lambda: section(title, {**ahead, f"{percent(found.level)} interval": spread}), log.notices)


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix evaluate fit.json example/coalitions.csv",
    options_from=lambda: (sm.evaluate,),
    only=("level",),
)
@fit_argument
@argument("runs", "LOG...")
@law_file
def evaluate(out: Output, fit: sm.Fit, runs: list[str], **keywords: Any) -> None:
    """Score a fit on runs that it has not seen: error, R2, rank correlation, and the coverage of its intervals.

    PE is the mean absolute error over the mean loss. Rows of weight 0 do not count; where the log's `split` holds rows
    out, these alone do.
    """
    log = read_log(out, runs)
    if log.digest and log.digest == fit.provenance.get("log_sha256") and "held-out" not in (log.split or ()):
        out.warn(["this log was used for the fit, so these errors are not held-out"])
    found = sm.evaluate(fit, log, **keywords)
    title = f"On {found.rows:,} rows; coverage of {percent(found.level)} intervals"
    out.answer(found, lambda: section(title, scores_table(found.scores)))


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix predict fit.json --mixture en=0.5,de=50% -N 97600 -D 2M",
    "shapleymix predict fit.json --mixture uniform --mixture plan=en=0.4,de=0.3,ja=0.3 -N 97600 -D 2M",
    "shapleymix predict fit.json example/runs.csv -o predictions.csv",
    options_from=lambda: (sm.compare_mixtures,),
    only=("unit", "weights", "objective", "languages", "available", "downstream", "level"),
)
@fit_argument
@argument("table", "[TABLE]")
@option(
    "--mixture [NAME=]MIX", "en=0.5,de=50%, a saved mixture, natural, unimax:4, text:DIR; repeatable.", multiple=True
)
@sizes
@tokens
@law_file
@like
@output("the predictions (.json), or as a table")
def predict(
    out: Output, fit: sm.Fit, table: str | None, mixture: list[str], N: Sizes, D: Sizes, **keywords: Any
) -> None:
    """Predict losses: of each --mixture at each -N and -D, or of the rows of a TABLE (run, N, D, p_<source>).

    What the first mixture that `optimize` saved was found for (N, D, unique tokens, weights, objective) holds where it
    is not given. Several at one -N and -D are compared with the first: what each gains in the objective, and the
    probability that it is better. With --downstream the numbers are scores on tasks.
    """
    from shapleymix.tables.mixtures import rivals_of

    if (table is None) == (not mixture) and (fit.sources or table or mixture):
        raise UsageError("give a table of points or --mixture, one of them", hint="see `shapleymix predict --help`")
    named = {
        name: load(out, sm.Mixture, given) if isinstance(given, str) and holds(given, sm.Mixture) else given
        for name, given in rivals_of(mixture).items()
    }
    saved = next((one for one in named.values() if isinstance(one, sm.Mixture)), None)
    if saved is not None:
        N, D = N or (saved.N,), D or (saved.D,)
        if not {"available", "languages"} & set(keywords):
            keywords["available"] = saved.tokens_at_hand
    compared = [f"--{name}" for name in OF_COMPARISONS if name in keywords]
    if table is not None:
        if unread := [*compared, *["-N"] * bool(N), *["-D"] * bool(D)]:
            raise UsageError(f"{unread[0]} is not of a table", hint="leave it out, or give --mixture")
        found: Any = fit.predict(read_log(out, [table], losses="optional"), **keywords)
    else:
        Ns, Ds = budget_of("-N", N, fit.N_range), budget_of("-D", D, fit.D_range)
        if named and len(Ns) * len(Ds) == 1 and (len(named) > 1 or compared):
            found = sm.compare_mixtures(fit, named, Ns[0], Ds[0], **(question_of(saved, fit, keywords) | keywords))
            out.answer(found, lambda: candidates_view(found))
            return
        if compared:
            raise UsageError(f"{compared[0]} takes mixtures at one budget", hint="give one -N and one -D")
        names, Ns, Ds = zip(*product(named or [""], Ns, Ds), strict=True)
        known = ([named[name] for name in names], names) if named else ([], None)  # or the law knows N and D alone
        found = fit.predict(known[0], Ns, Ds, runs=known[1], **keywords)
    out.answer(found, lambda: prediction_view(found))


def question_of(saved: sm.Mixture | None, fit: sm.Fit, given: Mapping[str, Any]) -> dict[str, Any]:
    """The objective for which a mixture was found, and the weights of its losses, where these can be meant."""
    if saved is None or (saved.measure == "error") != ("downstream" in given):
        return {}
    weighted = saved.targets == fit.targets and not saved.weights_origin.startswith("unweighted")
    weights = {"weights": dict(zip(saved.targets, saved.weights.tolist(), strict=True))} if weighted else {}
    return {"objective": saved.objective_kind, **weights}


def budget_of(flag: str, given: Sizes, fitted: Any) -> tuple[float, ...]:
    """The sizes that were given; where the log held only one, that one.

    Raises
    ------
    UsageError
        If none is given and the fit covers several.
    """
    low, high = fitted.tolist()
    if not given and low != high:
        raise UsageError(f"missing option {flag}", hint=f"the fit covers {flag[1:]} from {size(low)} to {size(high)}")
    return given or (low,)


def prediction_view(found: sm.Prediction) -> list[Part]:
    """A row for each point and target."""
    columns: Any = found.columns()
    alone = f" of {found.runs[0]} at N = {size(found.N[0])}, D = {size(found.D[0])}"
    named = {name: list(columns[name]) for name in ("run", "N", "D")} if len(found.runs) > 1 else {}
    losses = {"loss": columns["loss"], **intervals(found, found.low.ravel(), found.high.ravel())}
    shown = {**named, "target": columns["target"], **losses}
    return section(f"{predicted(found)}{'' if named else alone}", shown, words=len(named) + 1)


def candidates_view(found: sm.Candidates) -> list[Part]:
    """The objective of each mixture and its gain over the first, then what each predicts for every target."""
    noun, entries = "score" if found.measure == "error" else "loss", found.entries
    names, objectives = [one.name for one in entries], [score_or_loss(found, one.objective) for one in entries]
    gained = {name: ["", *column] for name, column in gains(found, entries[1:]).items()}
    points = [(place, one) for place in range(len(found.targets)) for one in entries]
    rows = {
        "target": [found.targets[place] for place, _ in points],
        "mixture": [one.name for _, one in points],
        noun: [score_or_loss(found, one.losses[place]) for place, one in points],
        **intervals(found, *([getattr(one, end)[place] for place, one in points] for end in ("low", "high"))),
    }
    title = f"Against {names[0]} at N = {size(found.N)}, D = {size(found.D)} ({found.weights_origin.split(':')[0]}"
    title += ")" if found.measure == "error" else f"; {found.objective_unit})"
    compared = section(title, {"mixture": names, f"{found.objective_kind} {noun}": objectives, **gained})
    return [*compared, *filter(None, [found.verdict]), *section(predicted(found), rows, words=2)]


@command(
    "shapleymix downstream example/runs.csv --scores example/scores.csv --chance 0.25 -o downstream.json",
    options_from=lambda: (sm.calibrate_scores,),
    without=("log", "scores"),
)
@log_argument
@option("--scores FILE", "A table run,task,target,score[,D][,chance], or lm-eval's output folder.", required=True)
@option("--metric NAME", "Which number of lm-eval's tasks.", default="acc")
@output("the calibration, for --downstream (.json), or as a table")
def downstream(out: Output, log: sm.RunLog, scores: str, metric: str, **keywords: Any) -> None:
    """Relate scores on tasks to losses: s = a g(l) + b for each task and language.

    Of the transforms g the one is taken that predicts left-out mixtures best.
    """
    found = sm.calibrate_scores(log, _scores(out, scores, metric), **keywords)
    names = {"held-out error": "held_out", "held-out R2": "held_out_R2", "R2": "R2", "Pearson r": "pearson"}
    columns = {text: [getattr(one, name) for one in found.calibrations] for text, name in names.items()}
    table = {"task": found.labels, "transform": [one.transform for one in found.calibrations], **columns}
    out.answer(found, lambda: section("Scores by losses", table, words=2), log.notices)


def _scores(out: Output, place: str, metric: str) -> Any:
    """A table of scores as it is; those of lm-eval's folder as a table."""
    if not os.path.isdir(place):
        return place
    from shapleymix_io.stores import read_scores

    table = read_scores(place, metric)
    for one in table.files:
        out.used(one.file, one.sha256)
    return table.frame.select(table.columns)
