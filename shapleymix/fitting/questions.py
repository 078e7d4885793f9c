"""Logs that can be fitted and should be questioned: losses or budgets in other units, a mean among the targets,
single corrupted losses, and checkpoints that are no final losses.

Each question is a sentence that names the place, what was found, and what to do; nothing is left out for it.
Legend: R rows, K targets.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shapleymix.records import BoolArray, FloatArray, IntArray
from shapleymix.tables.runs import RunLog

HIGHEST_LOSS = 15.0  # nats per token; an untrained model of a vocabulary of 250,000 has 12.4
LOWEST_LOSS = 0.3  # nats; text has about .6 nats a byte under the best models
BITS = 1.0 / np.log(2.0)  # in a nat
FEWEST = 1e4  # tokens or parameters of any run worth its row
TOKENS_PER_PARAMETER = (0.02, 1e5)  # of any run; published ones have 0.036 (Chinchilla's shortest) to 15,000
SAME_UNIT = 0.1  # share by which the loss of an untrained model may differ from the logarithm of the vocabulary
DRIFT, DRIFT_ERRORS = 2e-3, 3.0  # residuals that move by both, log loss and standard errors, along the runs drift
SAME_MEAN = 2e-4  # share by which a column may differ from the mean of the others, for rounding
ROBUST_SCALES, SMALLEST_FAULT = 8.0, 0.05  # a residual beyond both is questioned
LISTED = 3


def questions_of_log(log: RunLog, used: BoolArray) -> tuple[str, ...]:
    """What is odd about the rows themselves; `used` (R, K) says which losses a fit takes.

    Checkpoints are counted here; what they do to a fit, `questions_of_fit` says.
    """
    return (*_units_of_losses(log, used), *_mean_column(log, used), *_units_of_budgets(log), *_checkpoints(log))


def questions_of_fit(log: RunLog, residual: FloatArray, used: BoolArray) -> tuple[str, ...]:
    """What is odd about the residuals (R, K) of a fit: log of measured over fitted loss."""
    used = used & np.isfinite(residual)
    return (*_corrupted(log, residual, used), *_drift(log, residual, used))


def trajectories(log: RunLog) -> IntArray:
    """(R,) integers, equal where two rows are checkpoints of one training run."""
    keys = [f"{size:.17g} {run}" for run, size in zip(log.runs, log.N.tolist(), strict=True)]
    return np.unique(np.array(keys, dtype=object), return_inverse=True)[1].ravel()


def progress(log: RunLog) -> FloatArray:
    """(R,) share of its run's last D that each row has seen; 1 for runs with one row."""
    run = trajectories(log)
    last = np.zeros(int(run.max(initial=-1)) + 1)
    np.maximum.at(last, run, log.D)
    return log.D / np.maximum(last, 1e-300)[run]


def _units_of_losses(log: RunLog, used: BoolArray) -> Iterator[str]:
    high = {name: log.loss[use, j].max() for j, (name, use) in enumerate(zip(log.targets, used.T, strict=True))}
    large = [f"{name} up to {top:.4g}" for name, top in high.items() if top > HIGHEST_LOSS]
    if large:
        yield (
            f"losses above {HIGHEST_LOSS:g} nats per token ({_listed(large)}): are these perplexities? "
            "The loss is their natural logarithm"
        )
    small = [f"{name} at most {top:.4g}" for name, top in high.items() if top < LOWEST_LOSS]
    if small:
        yield (
            f"all losses are below {LOWEST_LOSS:g} nats per token ({_listed(small)}), less than text allows even of a "
            "byte: are they in another unit? Bits times 0.693 are nats"
        )


def questions_of_vocabulary(log: RunLog, known: BoolArray, vocabulary: float) -> tuple[str, ...]:
    """Losses that are too high for nats, by the loss `ln V` of a model that takes every token for equally likely.

    Parameters
    ----------
    log : RunLog
        All rows, also of untrained models.
    known : bool array (R, K)
        Losses of models that have seen the target's own language; others can exceed `ln V`.
    vocabulary : float
        V, the number of tokens in the vocabulary.
    """
    limit = float(np.log(vocabulary))
    untrained = log.loss[~log.trained & ~np.isnan(log.loss).all(axis=1)]
    in_bits = len(untrained) > 0 and abs(np.nanmedian(untrained) / (BITS * limit) - 1) < SAME_UNIT
    above = {
        name: log.loss[use, j].max(initial=0.0) for j, (name, use) in enumerate(zip(log.targets, known.T, strict=True))
    }
    high = [f"{name} up to {top:.4g}" for name, top in above.items() if top > limit]
    if in_bits:
        found = f"an untrained model has {np.nanmedian(untrained):.4g}, the logarithm of the vocabulary to base 2"
    elif high:
        found = f"losses of trained models exceed the {limit:.4g} nats of a model that knows nothing ({_listed(high)})"
    else:
        return ()
    return (f"{found}: are the losses bits per token, or is the vocabulary larger? Bits times 0.693 are nats",)


def _mean_column(log: RunLog, used: BoolArray) -> Iterator[str]:
    """A target that is the mean of the others in every row counts them twice."""
    K = len(log.targets)
    rows = log.loss[used.all(axis=1)]
    if K < 3 or len(rows) < 2:
        return
    others = (rows.sum(axis=1, keepdims=True) - rows) / (K - 1)
    spread = rows.max(axis=1) - rows.min(axis=1)
    means = (np.abs(rows - others) <= SAME_MEAN * others).all(axis=0)
    if (spread <= 10 * SAME_MEAN * rows.mean(axis=1)).all():
        return  # all targets are alike: none is the mean of the others
    for name in np.array(log.targets)[means].tolist():
        yield (
            f"loss_{name} is the mean of the other losses in every row, and is fitted and weighed as one more target: "
            f"drop the column, or give it weight 0"
        )


def _units_of_budgets(log: RunLog) -> Iterator[str]:
    """Numbers that are small by themselves, else one budget that is small for the other."""
    small = [name for name, values in (("D", log.D), ("N", log.N)) if values.max() < FEWEST]
    yield from (_small_budget(log, name, "") for name in small)
    ratio, (low, high) = log.D / log.N, TOKENS_PER_PARAMETER
    if not small and ratio.max() < low:
        yield _small_budget(log, "D", f", at most {ratio.max():.2g} tokens for each parameter")
    if not small and ratio.min() > high:
        yield _small_budget(log, "N", f", at least {ratio.min():.2g} tokens for each parameter")


def _small_budget(log: RunLog, name: str, why: str) -> str:
    values, unit = (log.D, "tokens") if name == "D" else (log.N, "parameters")
    shown = " to ".join(dict.fromkeys(f"{value:g}" for value in (values.min(), values.max())))
    return (
        f"{name} is {shown}{why}: are these thousands, millions or billions? {name} counts {unit}, written 1e9 or 1B, "
        "and a law fitted in other units is asked for other budgets"
    )


def _checkpoints(log: RunLog) -> Iterator[str]:
    several = int((progress(log) < 1.0).sum())
    if several:
        runs = len(np.unique(trajectories(log)))
        yield (
            f"{several} of {len(log)} rows are checkpoints of runs that went on ({runs} runs): under a learning rate "
            "that decays they are no final losses, and early ones still warm up"
        )


def _corrupted(log: RunLog, residual: FloatArray, used: BoolArray) -> Iterator[str]:
    """Losses so far from the fit that a slip of the pen is likelier than noise, the farthest first."""
    shown = np.where(used, residual, np.nan)
    size = np.abs(shown - np.nanmedian(shown, axis=0))
    scale = 1.4826 * np.nanmedian(size, axis=0)
    far = used & (np.nan_to_num(size) > np.maximum(ROBUST_SCALES * scale, SMALLEST_FAULT))
    rows, targets = np.nonzero(far)
    if not len(rows):
        return
    order = np.argsort(-size[rows, targets], kind="stable")
    named = [
        f"{log.runs[row]} at D = {log.D[row]:g}: {log.targets[target]} {log.loss[row, target]:.4g}, fitted "
        f"{log.loss[row, target] / np.exp(residual[row, target]):.4g}"
        for row, target in zip(rows[order].tolist(), targets[order].tolist(), strict=True)
    ]
    yield (
        f"{len(rows)} of {int(used.sum())} losses lie far from the law, beyond {ROBUST_SCALES:g} times the usual "
        f"residual: {_listed(named)}. Check these rows"
    )


def _drift(log: RunLog, residual: FloatArray, used: BoolArray) -> Iterator[str]:
    """How residuals move from the first to the last quarter of what is used of each run, where they move at all."""
    share, run = progress(log), trajectories(log)
    counts = used.sum(axis=1)
    rows = counts > 0
    mean = np.where(used, residual, 0.0).sum(axis=1) / np.maximum(counts, 1)
    runs = int(run.max(initial=-1)) + 1
    first = np.full(runs, 1.0)
    np.minimum.at(first, run[rows], share[rows])
    place = (share - first[run]) / np.maximum(1.0 - first[run], 1e-300)
    several = rows & (first[run] < 1.0)
    centre = _mean_of(mean, rows, run, runs)
    early, late = (_mean_of(mean, several & part, run, runs) - centre for part in (place <= 0.25, place > 0.75))
    moved = (late - early)[~np.isnan(late - early)]
    if len(moved) < 2 or abs(moved.mean()) < max(DRIFT, DRIFT_ERRORS * moved.std() / np.sqrt(len(moved))):
        return
    yield (
        f"along each run the residuals go from {np.nanmean(early):+.2%} in the first quarter of its checkpoints to "
        f"{np.nanmean(late):+.2%} in the last: under a learning rate that decays they are no final losses. For those, "
        "fit the last of each run alone (last_only); else leave early ones out (drop_warmup) and compare the held-out "
        "error"
    )


def _mean_of(values: FloatArray, rows: BoolArray, run: IntArray, runs: int) -> FloatArray:
    """The mean of some rows of each run; NaN where it has none."""
    count = np.bincount(run[rows], minlength=runs)
    return np.where(count > 0, np.bincount(run[rows], values[rows], minlength=runs) / np.maximum(count, 1), np.nan)


def _listed(parts: list[str]) -> str:
    more = f" and {len(parts) - LISTED} more" if len(parts) > LISTED else ""
    return "; ".join(parts[:LISTED]) + more
