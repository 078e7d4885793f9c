"""Optimal mixtures on the screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shapleymix.fitting.measures import measure_of
from shapleymix.mixing.engine.search import STARTS
from shapleymix.mixing.grids import verdicts_over
from shapleymix.mixing.mixtures import Mixture
from shapleymix.mixing.prices import round_tokens
from shapleymix.records import FloatArray
from shapleymix_cli.views.measures import ends, printed
from shapleymix_cli.views.numbers import MISSING, count, each, fixed, interval, percent, significant, size
from shapleymix_cli.views.tables import Part, heading, table

ROUNDING = 1e-15
AT_BOUND = 1e-9
SHOWN_COST = 5e-5
"""Nats that repetition costs from which on it is told."""
MOST_COLUMNS = 12
"""Ratios, and losses, of a budget that are shown without `-v`."""
MOST_ROWS = 30
"""Rows of a table that are shown without `-v`."""


def mixture_view(found: Mixture, law: str, verbose: bool) -> list[Part]:
    """The mixture, its proof, what it predicts, what its caps cost, and whom it beats."""
    parts: list[Part] = [
        *_verdicts([found]),
        heading(_title(found, law)),
        *_ratios(found, verbose),
        "",
        *_proof(found, law),
    ]
    parts += [
        "",
        heading(measure_of(found.measure).heading),
        *_losses(found, verbose),
        "",
        *_prices(found, verbose),
        *_what_ifs(found),
        *_rivals(found),
    ]
    return [*parts, *([f"Weights {found.weights_origin}."] if verbose else [])]


def scales_view(found: Sequence[Mixture], law: str, verbose: bool) -> list[Part]:
    """Two rows per budget, numbers and their intervals: first the mixture and its proof, then losses, then gains."""
    first = found[0]
    shown, hidden = _largest(np.array([one.p for one in found]), verbose)
    measure = measure_of(first.measure)
    headers = [f"{first.objective_kind} {measure.noun}", "relative gap", *(first.sources[i] for i in shown)]
    rows = [
        (
            [printed(measure, one.objective, 4), _relative(one), *each(one.p[shown])],
            [ends(measure, one.objective_low, one.objective_high), "", *_intervals(one.p_low, one.p_high, shown)],
        )
        for one in found
    ]
    return [
        *_verdicts(found),
        *_by_budget(f"Optimal mixtures under law {law} ({first.weights_origin})", found, headers, rows),
        *_more(hidden, "source"),
        *_unproved(found, law),
        *_losses_by_budget(found, verbose),
        *_gains_by_budget(found),
        *_elsewhere(found),
    ]


def _verdicts(found: Sequence[Mixture]) -> list[Part]:
    """First of all, over which rivals nothing can be told to be gained, and at which budgets."""
    lines = verdicts_over(found)
    return [*(f"{line[0].upper()}{line[1:]}." for line in lines), ""] if lines else []


def _losses_by_budget(found: Sequence[Mixture], verbose: bool) -> list[Part]:
    """The predicted loss of every target at every budget; of many, of those of the highest loss."""
    losses, measure = np.nan_to_num(np.array([one.losses for one in found]), nan=np.inf), measure_of(found[0].measure)
    shown, hidden = _largest(losses, verbose)
    rows = [
        (
            [printed(measure, one.losses[i]) for i in shown],
            [ends(measure, one.losses_low[i], one.losses_high[i]) for i in shown],
        )
        for one in found
    ]
    targets = [found[0].targets[i] for i in shown]
    return ["", *_by_budget(measure.heading, found, targets, rows), *_more(hidden, measure.of)]


def _gains_by_budget(found: Sequence[Mixture]) -> list[Part]:
    """What each optimum saves against the rivals that every budget has."""
    everywhere = set.intersection(*({rival.name for rival in one.baselines} for one in found))
    names = [rival.name for rival in found[0].baselines if rival.name in everywhere]
    rivals = [[rival for rival in one.baselines if rival.name in everywhere] for one in found]
    rows = [
        ([_gain(one.gain) for one in row], [interval(one.gain_low, one.gain_high, _gain) for one in row])
        for row in rivals
    ]
    title = f"{measure_of(found[0].measure).gained.capitalize()} by the optimum over other mixtures"
    return ["", *_by_budget(title, found, names, rows)] if names else []


def _by_budget(
    title: str, found: Sequence[Mixture], headers: Sequence[str], rows: Sequence[tuple[list[str], list[str]]]
) -> list[Part]:
    """A table with N and D on the left, and below each row its intervals where there are any."""
    lines: list[list[str]] = []
    for one, (values, spread) in zip(found, rows, strict=True):
        lines.append([size(one.N), size(one.D), *values])
        lines += [["", "", *spread]] if any(spread) else []
    below = f"; {percent(found[0].level, 0)} intervals below" if len(lines) > len(rows) else ""
    return [heading(f"{title}{below}"), table(["N", "D", *headers], lines, left=2)]


def _largest(values: FloatArray, verbose: bool) -> tuple[list[int], int]:
    """Columns (R, C) to show, those that are largest anywhere, in their order; and how many are left out."""
    order = np.argsort(-values.max(axis=0), kind="stable").tolist()
    shown = sorted(order if verbose else order[:MOST_COLUMNS])
    return shown, len(order) - len(shown)


def _intervals(low: FloatArray, high: FloatArray, shown: Sequence[int]) -> list[str]:
    return [interval(low[i], high[i]) for i in shown]


def _more(hidden: int, noun: str) -> list[Part]:
    return [f"... and {count(hidden, noun)} more: -v, --json and -o show all"] if hidden else []


def _relative(found: Mixture) -> str:
    return _small(found.relative_gap) if np.isfinite(found.relative_gap) else "no proof"


def _elsewhere(found: Sequence[Mixture]) -> list[Part]:
    """What is not shown of a grid."""
    kinds = [("shadow prices", any(one.binding for one in found)), ("what-ifs", any(one.what_if for one in found))]
    named = " and ".join(name for name, there in kinds if there)
    return ["", f"{named.capitalize()} of each budget are in --json and -o."] if named else []


def _title(found: Mixture, law: str) -> str:
    kind = "Optimal mixture" if found.method == "exact" else f"Mixture by method {found.method}"
    kind = f"Cautious mixture, against {found.cautious}," if found.cautious else kind
    return f"{kind} at N = {size(found.N)}, D = {size(found.D)} under law {law}"


def _ratios(found: Mixture, verbose: bool) -> list[Part]:
    """One row per source: ratio, interval, tokens, cap and epochs where there are any.

    Of many sources, the largest and those at a bound are shown.
    """
    capped, known = bool((found.caps < 1).any()), bool(np.isfinite(found.epochs).any())
    floored, spread = bool((found.floors > 0).any()), bool(np.isfinite(found.p_low).any())
    headers = ["source", "ratio", *_when(spread, f"{percent(found.level, 0)} interval"), "tokens"]
    headers += [*_when(floored, "floor"), *_when(capped, "cap"), *_when(known, "epochs")]
    worths = np.zeros(len(found.p)) if found.token_worths is None else np.nan_to_num(found.token_worths)
    dear = bool((worths > 0).any())
    headers += _when(dear, f"{size(round_tokens(found.D))} more save")
    rows = [
        [
            name,
            fixed(found.p[i], 4),
            *_when(spread, interval(found.p_low[i], found.p_high[i])),
            size(found.p[i] * found.D),
            *_when(floored, fixed(found.floors[i], 4)),
            *_when(capped, fixed(found.caps[i], 4) if found.caps[i] < 1 else MISSING),
            *_when(known, fixed(found.epochs[i], 2)),
            *_when(dear, significant(worths[i], 3) if worths[i] > 0 else MISSING),
        ]
        for i, name in enumerate(found.sources)
    ]
    at_bound = (found.p >= found.caps - AT_BOUND) | ((found.floors > 0) & (found.p <= found.floors + AT_BOUND))
    return _shortened(headers, rows, np.where(at_bound, 1.0, 0.0) + found.p, "source", verbose)


def _shortened(headers: Sequence[str], rows: list[list[str]], rank: FloatArray, noun: str, verbose: bool) -> list[Part]:
    """The table, or its highest-ranking rows in their order and how many are not shown."""
    if verbose or len(rows) <= MOST_ROWS:
        return [table(headers, rows)]
    kept = sorted(np.argsort(-rank, kind="stable")[:MOST_ROWS].tolist())
    more = f"... and {count(len(rows) - MOST_ROWS, noun)} more: -v, --json and -o show all"
    shown = [rows[row] for row in kept]
    return [table(headers, shown), more]


def _when(condition: bool, cell: str) -> list[str]:
    return [cell] if condition else []


def _unproved(found: Sequence[Mixture], law: str) -> list[Part]:
    """Why there is no proof, and why numbers have no intervals; nothing where there are both."""
    told: list[Part] = []
    if any(np.isnan(one.gap) for one in found):
        told.append(f"No proof: law {law} is not convex; best of {STARTS:,} random starts.")
    if all(one.replicates == 0 for one in found):
        scattered = any(np.isfinite(one.objective_low) for one in found)
        lost = "ratios; those of the objective and gains hold how held-out runs scatter, no more"
        what = lost if scattered else "ratios, objective and gains"
        told.append(f"No intervals of {what}: the fit of law {law} has no bootstrap replicates.")
    return told


def _proof(found: Mixture, law: str) -> list[Part]:
    """The objective and what the certificate says of it."""
    measure = measure_of(found.measure)
    spread = ends(measure, found.objective_low, found.objective_high)
    kind = measure.objective(found.objective_kind, found.weights)
    within = f", {percent(found.level, 0)} interval {spread}" if spread else ""
    value = printed(measure, found.objective, 4) if measure.flipped else measure.amount(fixed(found.objective, 4))
    lines: list[Part] = [f"Objective ({kind}, {found.weights_origin.split(':')[0]}): {value}{within}"]
    if found.kl > 0:
        penalty = measure.amount(fixed(found.penalty, 4))
        lines.append(f"Penalty (KL to the anchor, weight {significant(found.kl)}): {penalty} more")
    if found.repetition_cost >= SHOWN_COST:
        lines.append(f"Repeated tokens cost {measure.amount(fixed(found.repetition_cost, 4))}, against unlimited data.")
    if not np.isfinite(found.objective):
        lines.append("No proof: where the law gives more than an untrained model's loss, its optimum says nothing.")
    elif np.isfinite(found.gap):
        bound = f"{measure.amount(_small(found.gap))} ({_small(found.relative_gap)} of the objective)"
        bound = "rounding (1e-15 of the objective)" if found.relative_gap < ROUNDING else bound
        lines.append(f"Certificate: no mixture within the bounds is better by more than {bound}.")
    lines += [*_unproved([found], law), *_caution(found)]
    if found.method != "exact" and np.isfinite(found.excess):
        excess = measure.amount(_small(found.excess) if abs(found.excess) < 5e-5 else fixed(found.excess, 4))
        lines.append(f"The exact optimum is lower by {excess}, at L1 distance {fixed(found.distance, 4)}.")
    return lines


def _caution(found: Mixture) -> list[Part]:
    """What a cautious mixture other than its baseline is the best of, and that this is not proved."""
    rival = next((one for one in found.baselines if one.name == found.cautious), None)
    if rival is None or np.array_equal(rival.p, found.p):
        return []
    least = measure_of(found.measure).amount(fixed(rival.gain_low, 4))
    bound = f"at least {least} with {percent(0.5 + found.level / 2, 0)} probability"
    return [f"Its gain over {rival.name} is {bound}: the most that was found on the way to the optimum, not proved."]


def _losses(found: Mixture, verbose: bool) -> list[Part]:
    """One row per target; of many, those of the highest loss."""
    costs = np.zeros(len(found.targets)) if found.repetition is None else found.repetition
    dear = bool((costs >= SHOWN_COST).any())
    rows = zip(found.targets, found.losses, found.losses_low, found.losses_high, found.weights, costs, strict=True)
    measure = measure_of(found.measure)
    cells = [
        [name, printed(measure, loss), ends(measure, low, high), significant(weight), *_when(dear, fixed(cost, 4))]
        for name, loss, low, high, weight, cost in rows
    ]
    headers = [measure.of, measure.noun, f"{percent(found.level, 0)} interval", "weight", *_when(dear, "by repetition")]
    return _shortened(headers, cells, np.nan_to_num(found.losses, nan=np.inf), measure.of, verbose)


def _prices(found: Mixture, verbose: bool) -> list[Part]:
    """What the bounds that bind would save if they gave way, and how far that reaches."""
    if not found.binding:
        return []
    rows = [
        [
            price.source,
            f"{price.side} {fixed(price.bound, 4)}",
            significant(price.per_percent, 3),
            f"{significant(price.per_unit, 3)} per {size(price.unit)}",
            "" if np.isnan(price.half_at) else fixed(price.half_at, 4),
            "" if np.isnan(price.free_at) else fixed(price.free_at, 4),
        ]
        for price in found.binding
    ]
    headers = ["source", "bound", "per 1% of D", "per tokens", "half of it at", "nothing at"]
    worth = np.array([price.per_percent for price in found.binding])
    shown = _shortened(headers, rows, worth, "language", verbose)
    return [heading(f"Shadow prices: {measure_of(found.measure).gained} where a bound gives way"), *shown, ""]


CHANGED = 3
"""How many ratios of another optimum are shown: those that moved most."""


def _what_ifs(found: Mixture) -> list[Part]:
    """The gain of each change of the data at hand, and which ratios move most."""
    if not found.what_if:
        return []
    spread, measure = any(np.isfinite(other.gain_low) for other in found.what_if), measure_of(found.measure)
    headers = [
        "data",
        "objective",
        "gain",
        *_when(spread, f"{percent(found.level, 0)} interval"),
        "ratios, now and then",
    ]
    rows = [
        [
            other.name,
            other.reason or printed(measure, other.objective, 4),
            fixed(other.gain, 4),
            *_when(spread, interval(other.gain_low, other.gain_high, _gain)),
            _moves(found, other.p),
        ]
        for other in found.what_if
    ]
    brings = "brings" if measure.flipped else f"saves, in {measure.unit}"
    return [heading(f"With other data at hand (gain: what the optimum then {brings})"), table(headers, rows), ""]


def _moves(found: Mixture, p: FloatArray) -> str:
    """The ratios that differ most, before and after."""
    largest = np.argsort(-np.abs(p - found.p), kind="stable")[:CHANGED]
    moved = [f"{found.sources[i]} {found.p[i]:.3f} -> {p[i]:.3f}" for i in largest if abs(p[i] - found.p[i]) >= 5e-4]
    return ", ".join(moved) or "as they are"


def _rivals(found: Mixture) -> list[Part]:
    """The gain over every baseline."""
    spread, measure = any(np.isfinite(rival.gain_low) for rival in found.baselines), measure_of(found.measure)
    outside = any(not rival.within_bounds for rival in found.baselines)
    headers = ["mixture", "objective", "promised", "gain", *_when(spread, f"{percent(found.level, 0)} interval")]
    headers += [*_when(spread, "P(better)"), *_when(outside, "within bounds")]
    rows = [
        [
            rival.name,
            rival.reason or printed(measure, rival.objective, 4),
            fixed(rival.promised, 4),
            fixed(rival.gain, 4),
            *_when(spread, interval(rival.gain_low, rival.gain_high, _gain)),
            *_when(spread, percent(rival.probability, 0)),
            *_when(outside, "yes" if rival.within_bounds else "no"),
        ]
        for rival in found.baselines
    ]
    title = f"Against other mixtures (gain: {measure.brings}, less the luck of the choice in what is promised)"
    return [heading(title), table(headers, rows)]


def _gain(value: float) -> str:
    return fixed(value, 4)


def _small(value: float) -> str:
    """A gap; below what doubles can tell, that limit."""
    return "< 1e-15" if 0 <= value < ROUNDING else f"{value:.1e}"
