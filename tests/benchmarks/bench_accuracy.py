"""Held-out error of every law on every log: by grouped cross-validation, and against the number of runs.

Prints the results' tables and draws its figure. `--quick` takes one draw; `--only curves --logs olmix --laws
learned-base,mariner` asks for less.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import _curves
from _data import FIXTURES, five_languages, regmix, shared_logs, slimpajama
from _report import finish, must, row, table

import shapleymix as sm
from shapleymix.laws import BLACK_BOXES

LIMITS = {"regmix": 1.25, "5mix": 0.65, "redpajama": 0.59, "slimpajama": 0.47}
"""Mean PE in per cent that the default law must reach: an earlier law of ours did, with no base."""
QUICK_DRAWS = 1


def main() -> None:
    asked = options().parse_args()
    if asked.only != "curves":
        tables()
    if asked.only != "tables":
        curves(asked)
    finish()


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("tables", "curves"))
    parser.add_argument("--quick", action="store_true", help="one draw a number of runs")
    parser.add_argument("--laws", default=",".join(_curves.LAWS), help="of the curves")
    parser.add_argument("--logs", default=",".join(_curves.SIZES), help="of the curves")
    parser.add_argument("--figure", type=Path, help="where the curves are drawn (.svg or .png)")
    return parser


def curves(asked: argparse.Namespace) -> None:
    """Tables of PE against runs, their figure, and what the default law must reach."""
    laws = _curves.laws_here(asked.laws.split(","))
    found = _curves.Curves(QUICK_DRAWS if asked.quick else _curves.DRAWS)
    for name, log in _curves.curve_logs(asked.logs.split(",")).items():
        found.add(name, log, laws)
    table("CPU seconds for all fits of the curves", "law", "seconds")
    for law, seconds in found.seconds.items():
        row(law, f"{seconds:.0f}")
    if asked.figure is not None:
        _curves.draw_figure(found, asked.figure)
    ours = _curves.DEFAULT
    if ours not in laws or asked.quick:
        return
    for name, by_law in found.error.items():
        for size, error in by_law[ours].items():
            must(f"{name}, {size} runs: {ours}, % (the best other)", error, found.best(name, size, ours), "<=")


def tables() -> None:
    logs = {
        "regmix": regmix(),
        "5mix": shared_logs("mixlaws_5mix_*.csv"),
        "redpajama": shared_logs("mixlaws_redpajama_*.csv"),
        "slimpajama": slimpajama(),
    }
    for name, log in logs.items():
        if log is not None:
            found = show(name, sm.compare(log, laws_for(log)))
            if log.N.min() < log.N.max():
                left = mean_error(sm.compare(log, [_curves.DEFAULT], leave_largest_N=True))
                print(f"\nlargest size left out, {_curves.DEFAULT}: mean PE {left:.2f}%")
            must(
                f"{name}, {_curves.DEFAULT}: mean held-out PE, %", round(found[_curves.DEFAULT], 2), LIMITS[name], "<="
            )
    coalitions = sm.read_runs(FIXTURES / "multilingual5_coalitions.csv")
    irds = sm.read_transfer(Path(FIXTURES, "multilingual5_irds_raw.csv")).calibrated()
    languages = sm.read_languages(FIXTURES / "multilingual5_languages.csv")
    for name, matrix in (("exact SV", sm.shapley_values(coalitions)), ("IRDS, calibrated", irds)):
        show(f"multilingual5, N = 97,600, {name}", sm.compare(five_languages(), None, matrix, languages))


def mean_error(comparison: sm.Comparison) -> float:
    """Mean PE of the only law, in per cent."""
    scores = comparison.entries[0].scores
    return float("nan") if scores is None else 100 * scores.mean["PE"]


def laws_for(log: sm.RunLog) -> list[str]:
    """Every law that needs no other table, and the black boxes."""
    laws = [name for name, law in sm.LAWS.items() if "transfer" not in law.needs and "families" not in law.needs]
    return laws + _curves.laws_here(list(BLACK_BOXES))


def show(name: str, comparison: sm.Comparison) -> dict[str, float]:
    """Print one comparison; mean PE of each law in per cent."""
    title = f"{name}: {comparison.design}, {comparison.rows} rows"
    table(title, "law", "numbers per target", "held-out PE, %", "standard error", "R2", "Spearman")
    found = {}
    for entry in comparison.entries:
        if entry.scores is None:
            row(entry.law, entry.parameters, entry.error, "", "", "")
            continue
        mean = entry.scores.mean
        found[entry.law] = 100 * mean["PE"]
        size = "-" if entry.parameters >= 10**6 else entry.parameters
        error = 100 * entry.standard_error
        row(entry.law, size, f"{found[entry.law]:.2f}", f"{error:.2f}", f"{mean['R2']:.3f}", f"{mean['spearman']:.3f}")
    print(f"\nlaw auto: {comparison.preferred()}; lowest error: {comparison.best()}")
    return found


if __name__ == "__main__":
    main()
