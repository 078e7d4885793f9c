"""What the term for repeated tokens, worth and harm, is worth: our runs of 1 to 32 epochs, and two published sets.

- our runs: every token taken for a fresh one, h and R* as believed, and as the runs tell them;
- Wikipedia at 124M parameters (arXiv 2606.07597): the best share at the longest horizon, from four other sets of runs;
  and the best epochs at sizes that were not fitted;
- C4 alone (Muennighoff et al. 2023): fitted to at most 2, 4, 8 or 16 epochs, asked for up to 9,000.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from _data import FIXTURES, SHARED
from _report import SMALL, finish, must, row, table

import shapleymix as sm
from shapleymix.errors import ShapleyMixWarning
from shapleymix.fitting.evidence import fold_masks
from shapleymix.fitting.held_out import predict_held_out
from shapleymix.fitting.settings import Settings
from shapleymix.fitting.study import Study, study_of
from shapleymix.laws import LAWS

LAW = LAWS["learned-base"]
FOLDS, REPLICATES = (2, 10) if SMALL else (8, 100)
RARE, OFTEN = 1.5, 6.0
"""Epochs of a run's most repeated source, up to which it counts as fresh, and beyond which as often repeated."""
WAYS = ("all fresh", "worth and harm as believed", "worth and harm as told")
HORIZON, TRAINED = 32, {30e6: 24.0, 124e6: 11.2, 345e6: 6.4, 757e6: 4.8}
"""Of the longest runs, epochs of the pool; and the best epochs that were trained, by size."""


def main() -> None:
    ours()
    if SHARED.exists() and not SMALL:
        wiki(sm.read_runs(SHARED / "repetition/wiki_124m.csv"))
        alone(sm.read_runs(SHARED / "repetition/c4_repeated.csv"))
    finish()


def ours() -> None:
    """Held-out errors of our own runs."""
    study = study_of(sm.read_runs(FIXTURES / "repetition_runs.csv"), None, None, Settings(bootstrap=0, folds=0), 0)
    log = study.log
    most = (log.p * log.D[:, None] / log.unique).max(axis=1)
    some = (most > RARE) & (most <= OFTEN)
    kinds = {"all runs": most > 0, "fresh": most <= RARE, "2 to 4 epochs": some, "8 to 32 epochs": most > OFTEN}
    table(f"{LAW.name}: held-out PE in %, {FOLDS} folds by mixture, {len(log)} runs", "tokens are", *kinds)
    error = {}
    for way in WAYS:
        found = predict_held_out(LAW, counted(study, way), fold_masks(log, FOLDS)).losses
        row(way, *(f"{100 * relative(log, found, rows):.2f}" for rows in kinds.values()))
        error[way] = relative(log, found, kinds["all runs"])
    must("PE with the term as a share of that without", error[WAYS[2]] / error[WAYS[0]], 0.9)


def counted(study: Study, way: str) -> Study:
    """The study with its repeated tokens counted in one of the ways."""
    if way == WAYS[0]:
        return replace(study, evidence=replace(study.evidence, unique=np.full(study.log.p.shape, np.nan)))
    repeated = study.evidence.usual if way == WAYS[1] else None
    return replace(study, evidence=replace(study.evidence, repeated=repeated))


def wiki(log: sm.RunLog) -> None:
    """The best share at the longest horizon, and the best epochs at other sizes."""
    place, pool = log.sources.index("wiki"), float(np.nanmax(log.unique))
    cut, horizon = log.unique[:, place] < 0.99 * pool, np.round(log.D / pool)
    longest = (horizon == HORIZON) & ~cut
    splits = {
        "2, 4 and 8 epochs of the pool": ~cut & (horizon <= 8),
        "up to 16": ~cut & (horizon <= 16),
        "all but 32": ~longest,
        "cut pools alone": cut,
    }
    table("Wikipedia, 124M: best share at 32 epochs of the pool (.35 trained)", "fitted to", "share", "90%", "PE, %")
    for name, rows in splits.items():
        fit = sm.fit(log.select(rows), bootstrap=REPLICATES)
        mix, test = sm.optimize(fit, 124e6, HORIZON * pool, available={"wiki": pool}), log.select(longest)
        losses = fit.predict(test.p, test.N, test.D, unique=test.unique).losses
        i = fit.sources.index("wiki")
        error = f"{100 * relative(test, losses, np.ones(len(test), dtype=bool)):.2f}"
        row(name, f"{mix.p[i]:.2f}", f"{mix.p_low[i]:.2f} .. {mix.p_high[i]:.2f}", error)
    table("fitted to 124M alone: best epochs of Wikipedia", "parameters", "said", "90%", "trained")
    fit = sm.fit(log, bootstrap=REPLICATES)
    for N, trained in TRAINED.items():
        mix = sm.optimize(fit, N, HORIZON * pool, available={"wiki": pool})
        low, said, high = (HORIZON * one[fit.sources.index("wiki")] for one in (mix.p_low, mix.p, mix.p_high))
        row(f"{N / 1e6:.0f}M", f"{said:.1f}", f"{low:.1f} .. {high:.1f}", f"{trained:g}")


def alone(log: sm.RunLog) -> None:
    """One source alone, far beyond the epochs that were fitted."""
    epochs, sane = log.D / log.unique[:, 0], log.loss[:, 0] < 9.5
    table("C4 alone", "fitted up to", "epochs", "runs", "PE, %", "mean error, %", "within 90%")
    for most in (2, 4, 8, 16):
        fit = sm.fit(log.select((epochs <= most + 0.001) & sane))
        for low, high in ((most, 16), (max(most, 16), 64), (64, np.inf)):
            test = log.select((epochs > low + 0.001) & (epochs <= high) & sane)
            if not len(test):
                continue
            said = fit.predict(test.p, test.N, test.D, unique=test.unique)
            within = np.mean((said.low <= test.loss) & (test.loss <= said.high))
            error = relative(test, said.losses, np.ones(len(test), dtype=bool))
            each = f"{100 * np.abs(said.losses / test.loss - 1).mean():.1f}"
            row(most, f"{low} to {high:g}", len(test), f"{100 * error:.1f}", each, f"{within:.0%}")
            must(f"C4 up to {most} epochs, asked for {low} to {high:g}: share inside", float(within), 0.8, ">=")


def relative(log: sm.RunLog, losses: np.ndarray, rows: np.ndarray) -> float:
    """Mean over targets of the mean absolute error over the mean loss."""
    errors = np.abs(losses - log.loss)
    return float((errors[rows].mean(axis=0) / log.loss[rows].mean(axis=0)).mean())


if __name__ == "__main__":
    warnings.simplefilter("ignore", ShapleyMixWarning)
    main()
