"""Held-out error of every law on every log, by grouped cross-validation. Prints the README's table."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from _data import FIXTURES, five_languages, regmix, shared_logs, slimpajama
from _report import finish, must, row, table

import shapleymix as sm

LIMITS = {  # mean PE in per cent that a first attempt reached
    "regmix": {"learned": 1.80, "learned-concave": 1.35},
    "5mix": {"learned": 0.95, "learned-concave": 0.72},
    "redpajama": {"learned": 0.90, "learned-concave": 0.70},
    "slimpajama": {"learned": 0.62, "learned-concave": 0.53},
}

DELTA = {("regmix", "learned"): " with delta 0.02"}


def main() -> None:
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
                left = mean_error(sm.compare(log, ["learned-own"], leave_largest_N=True))
                print(f"\nlargest size left out, learned-own: mean PE {left:.2f}%")
            if name == "regmix":  # its runs are noisier than delta = 1e-3 assumes: the table has the default's 1.81
                found["learned"] = mean_error(sm.compare(log, ["learned"], delta=0.02))
            for law, limit in LIMITS[name].items():
                must(
                    f"{name}, {law}{DELTA.get((name, law), '')}: mean held-out PE, %",
                    round(found[law], 2),
                    limit,
                    "<=",
                )
    coalitions = sm.read_runs(FIXTURES / "multilingual5_coalitions.csv")
    irds = sm.read_transfer(Path(FIXTURES, "multilingual5_irds_raw.csv")).calibrated()
    languages = sm.read_languages(FIXTURES / "multilingual5_languages.csv")
    for name, matrix in (("exact SV", sm.shapley_values(coalitions)), ("IRDS, calibrated", irds)):
        show(f"multilingual5, N = 97,600, {name}", sm.compare(five_languages(), None, matrix, languages))
    finish()


def mean_error(comparison: sm.Comparison) -> float:
    """Mean PE of the only law, in per cent."""
    scores = comparison.entries[0].scores
    return float("nan") if scores is None else 100 * scores.mean["PE"]


def laws_for(log: sm.RunLog) -> list[str]:
    """Every law that needs no other table, and the black box where LightGBM is there."""
    laws = [name for name, law in sm.LAWS.items() if "transfer" not in law.needs and "families" not in law.needs]
    return laws + (["gbm"] if importlib.util.find_spec("lightgbm") else [])


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
    print(f"\nlaw auto: {comparison.simplest()}; lowest error: {comparison.best()}")
    return found


if __name__ == "__main__":
    main()
