"""`optimize`: the best mixture at a budget, with its proof; several budgets, a trade-off curve, a compute budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.mixing.answers import ROUNDING, MixtureGrid, format_times
from shapleymix.tables.mixtures import ONCE
from shapleymix_cli.command_factory import command, option, output
from shapleymix_cli.console import Output, Part, Table, gains, intervals, predicted, score_or_loss, section, size
from shapleymix_cli.fits import Sizes, budget_of, fit_argument, law_file, like, sizes, tokens

HEADINGS = {
    "Question": (
        "N", "D", "flops", "frontier", "points", "unit", "weights", "monolingual", "objective", "downstream",
        "law_file", "like", "allow_unseen",
    ),
    "Data": ("languages", "available", "max_epochs", "min_tokens", "after", "trained"),
    "Bounds": (
        "caps", "floors", "fix", "groups", "keep_within", "kept", "near", "within", "distance", "anchor", "kl",
    ),
    "Comparison": ("compare_to", "what_if"),
}  # fmt: skip


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix optimize fit.json -N 97600 -D 2M -o mixture.json",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv --max-epochs 1 --what-if zh+1M",
    "shapleymix optimize fit.json -N 97600 -D 2M --caps zh=0.3 --groups 'en+de<=0.5' --compare-to en=0.5,ja=0.5",
    "shapleymix optimize fit.json -N 97600 -D 2M --frontier en:rest --points 5",
    "shapleymix optimize fit.json -N 25k,97600 -D 1M,2M --weights ja=5,en=1 -o grid.csv",
    options_from=lambda: (sm.problem,),
    without=("fit", "N", "D", "constraints"),
    headings=HEADINGS,
)
@fit_argument
@sizes
@tokens
@option("--flops NUMBER", "Find N, D and the mixture together under flops = 6 N D.")
@option("--frontier en:rest", "The trade-off curve between the mean losses of two sets.")
@option("--points COUNT", "Points of that curve.  [default: 9]")
@law_file
@like
@output("the mixture (.json), or its numbers as a table")
def optimize(
    out: Output, fit: sm.Fit, N: Sizes, D: Sizes, flops: float | None, frontier: str | None,
    points: int | None, **keywords: Any,
) -> None:  # fmt: skip
    """Find the mixture that minimises the weighted loss, and prove it.

    The proof is a lower bound: no mixture within the bounds is better by more than its gap. Intervals come from the
    fit's bootstrap replicates and the scatter of single runs.
    """
    if points is not None and frontier is None:
        raise UsageError("--points does nothing without --frontier", hint="give --frontier, or leave it out")
    if flops is not None:
        if N or D or frontier is not None:
            hint = "leave out -N, -D and --frontier, or --flops"
            raise UsageError("--flops finds N, D and one mixture itself", hint=hint)
        best: Any = sm.optimize_compute(fit, flops, **keywords)
        out.answer(best, lambda: mixture_view(best, out.verbose))
        return
    Ns, Ds = budget_of("-N", N, fit.N_range), budget_of("-D", D, fit.D_range)
    if len(Ns) * len(Ds) > 1:
        if frontier is not None:
            raise UsageError("--frontier takes one budget", hint="give one -N and one -D")
        grid = MixtureGrid(fit.law.name, sm.optimize_scales(fit, Ns, Ds, **keywords), out.provenance())
        out.answer(grid, lambda: grid_view(grid))
    elif frontier is not None:
        more = {} if points is None else {"points": points}
        curve = sm.frontier(fit, Ns[0], Ds[0], frontier, **more, **keywords)
        out.answer(curve, lambda: frontier_view(curve))
    else:
        found = sm.optimize(fit, Ns[0], Ds[0], **keywords)
        out.answer(found, lambda: mixture_view(found, out.verbose))


def grid_view(found: MixtureGrid) -> list[Part]:
    """A row for each budget: objective, proof and ratios."""
    entries = found.entries
    table = {"N": [one.N for one in entries], "D": [one.D for one in entries]}
    table["objective"] = [float(score_or_loss(one, one.objective)) for one in entries]
    table["gap"] = [one.gap for one in entries]
    table |= found.ratios
    first = entries[0]
    unit = "score" if first.measure == "error" else f"objective in {first.objective_unit}"
    return section(f"Optimal mixtures ({first.weights_origin.split(':')[0]}; {unit})", table, words=2)


def mixture_view(found: sm.Mixture, everything: bool) -> list[Part]:
    """The mixture, its objective and proof, what binding bounds cost, and what it gains over other mixtures."""
    noun, unit = "score" if found.measure == "error" else "loss", found.objective_unit
    N, D = _sized(found.N, found.N_low, found.N_high), _sized(found.D, found.D_low, found.D_high)
    begun = f", of which {size(found.read.sum())} are read" if found.read.any() else ""
    parts = [*section(f"Optimal mixture at N = {N}, D = {D}{begun}", _ratios(found)), "", *_proof(found, noun, unit)]
    if found.binding:
        parts += section(f"What binding bounds cost: {unit} saved if the bound is relaxed", _prices(found))
    if found.what_if:
        parts += section(f"With different data (gain: {unit} saved by the new optimum)", _what_if(found))
    if found.baselines:
        parts += section(f"Against other mixtures (gain: predicted improvement in {unit})", _rivals(found))
        parts += list(dict.fromkeys(f"{one.name}: {one.reason}." for one in found.baselines if one.reason))
        parts += [found.verdict] if found.verdict else []
    if everything:
        losses: dict[str, Any] = {"target": found.targets, noun: score_or_loss(found, found.losses).tolist()}
        losses |= intervals(found, found.losses_low, found.losses_high)
        parts += section(predicted(found), {**losses, "weight": found.weights.tolist()})
    return [*parts, "", found.conclusion]


def _sized(value: float, low: float, high: float) -> str:
    """A size, with its interval where it was chosen too."""
    return size(value) if low != low else f"{size(value)} ({size(low)} .. {size(high)})"


def _ratios(found: sm.Mixture) -> Table:
    """A row for each source, the largest first: its ratio and tokens, and its bounds and epochs where there are any.

    Of a begun run these are of the rest, before what was read and the ratios of the whole run, which bounds are of.
    Below them stand the sums of sources with one parent or family, such as `en/web` and `en/books`.
    """
    rest, begun = found.rest, bool(found.read.any())
    order = sorted(range(len(rest)), key=lambda place: -rest[place])
    columns: dict[str, list[Any]] = {"source": list(found.sources), "rest" if begun else "ratio": rest.tolist()}
    columns |= intervals(found, found.rest_of(found.p_low), found.rest_of(found.p_high), gain=True)
    columns["tokens"] = (rest * (found.D - found.read.sum())).tolist()
    columns |= {"read": found.read.tolist(), "whole run": found.p.tolist()} if begun else {}
    columns |= {"ratio of bytes": found.p_bytes.tolist()} if np.isfinite(found.p_bytes).all() else {}
    if (found.floors > 0).any():
        columns["floor"] = [value if value > 0 else None for value in found.floors.tolist()]
    if (found.caps < 1).any():
        columns["cap"] = [value if value < 1 else None for value in found.caps.tolist()]
    if any(value == value for value in found.epochs.tolist()):
        columns["epochs"] = found.epochs.tolist()
    if (found.epochs > ONCE).any():
        spread = intervals(found, found.epochs_low, found.epochs_high, gain=True)
        columns |= {f"{name} of epochs": ends for name, ends in spread.items()}
    rows = {name: [values[place] for place in order] for name, values in columns.items()}
    for parent, names in found.families.items():
        members = np.isin(found.sources, names)
        if not 1 < members.sum() < len(members):
            continue
        added = {"ratio", "rest", "tokens", "read", "whole run", "ratio of bytes"} & set(columns)
        sums = {name: np.array(columns[name])[members].sum() for name in added} | {"source": f"{parent}, in all"}
        rows = {name: [*values, sums.get(name)] for name, values in rows.items()}
    return Table(rows)


def _proof(found: sm.Mixture, noun: str, unit: str) -> list[Part]:
    """The objective with its interval, and the proof in one sentence."""
    value = f"{score_or_loss(found, found.objective):.4f}" + ("" if noun == "score" else f" {unit}")
    spread = intervals(found, [found.objective_low], [found.objective_high])
    interval_text = "".join(f", {name} {ends[0][0]:.4f} .. {ends[0][1]:.4f}" for name, ends in spread.items())
    mean = f"Objective ({found.objective_kind} {noun}, {found.weights_origin.split(':')[0]}): {value}{interval_text}"
    if found.gap != found.gap:
        return [mean, "No proof of optimality: this is the best mixture of a search."]
    most = "rounding" if found.relative_gap < ROUNDING else f"{found.gap:.1e} {unit}"
    return [mean, f"Proof: by the law no mixture within the bounds is better by more than {most}."]


def _prices(found: sm.Mixture) -> Table:
    """What the optimum saves where each binding bound gives way by a little."""
    prices = found.binding
    return Table({
        "source": [one.source for one in prices],
        "bound": [f"{one.side} {one.bound:.4f}" for one in prices],
        "by": [f"{size(one.change)} tokens" if one.unit == "tokens" else f"{one.change:.2g}" for one in prices],
        "saves": [one.saves for one in prices],
        **intervals(found, [one.saves_low for one in prices], [one.saves_high for one in prices], gain=True),
    }, words=2)  # fmt: skip


def _what_if(found: sm.Mixture) -> Table:
    """The gain of each change of the data, which is the law's own, and the ratio that moves most."""
    changes = found.what_if
    moved = [max(range(len(found.p)), key=lambda place: abs(one.p[place] - found.p[place])) for one in changes]
    pairs = zip(moved, changes, strict=True)
    moves = [f"{found.sources[at]} {found.p[at]:.3f} -> {one.p[at]:.3f}" for at, one in pairs]
    moves = [text if round(abs(one.p - found.p).max(), 3) else "none" for text, one in zip(moves, changes, strict=True)]
    return Table({"data": [one.name for one in changes], **gains(found, changes), "largest change": moves})


def _rivals(found: sm.Mixture) -> Table:
    """The gain over every other mixture."""
    rivals = found.baselines
    objectives = [None if one.reason else score_or_loss(found, one.objective) for one in rivals]
    table = {"mixture": [one.name for one in rivals], "objective": objectives, **gains(found, rivals)}
    if not all(np.isnan(one.times) for one in rivals):
        table["times D"] = [format_times(one.times) for one in rivals]  # that each would take to be as good
    if not all(one.within_bounds for one in rivals):
        table["within bounds"] = [one.within_bounds for one in rivals]
    return Table(table)


def frontier_view(found: sm.Frontier) -> list[Part]:
    """A row for each point: the two mean losses with their intervals, and the ratios."""
    first, second = ("+".join(side) for side in (found.first_targets, found.second_targets))
    table: dict[str, Sequence[object]] = {"point": [str(place + 1) for place in range(len(found.entries))]}
    for side, name in (("first", first), ("second", second)):
        table[name] = [getattr(one, side) for one in found.entries]
        spread = [(getattr(one, f"{side}_low"), getattr(one, f"{side}_high")) for one in found.entries]
        table |= {f"{name} interval": spread} if spread[0][0] == spread[0][0] else {}
    table |= found.ratios_of(np.array([one.p for one in found.entries]))
    worst = max(one.certificate.relative_gap for one in found.entries)
    most = "rounding" if worst < ROUNDING else f"{worst:.1e} of it"
    title = f"Mean losses ({found.unit}) of {first} against {second} at N = {size(found.N)}, D = {size(found.D)}"
    proof = f"Proof: no mixture improves a point's weighted sum of both losses by more than {most}."
    return [*section(title, table), proof]
