"""Shapley values: time, memory, the ratio to shapiq, the error of sampled values at equal budgets; those of text.

The text is that of the runs: a folder with a `.txt.gz` of each language, `corpus` beside the shared data. Without it
the tables of text are left out.
"""

from __future__ import annotations

import gzip
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy: threads only get into the way of matrices this small

import numpy as np
import polars as pl
from _data import FIXTURES, SHARED, five_languages
from _report import SMALL, finish, must, row, seconds, table
from scipy.stats import spearmanr

import shapleymix as sm
from shapleymix.game.coalitions import coalition_game
from shapleymix.game.exact import exact_shapley, masks_of, members_of
from shapleymix.game.kriging import estimate_shapley, sample_coalitions
from shapleymix.tables.run_reading import read_runs

SEEDS = 2 if SMALL else 24
TEXT = SHARED.parent / "corpus"
GAMES = {
    "study, N = 23,712": ("study/game-tiny.csv", "study/irds/tiny-0-every.csv"),
    "study, N = 97,600": ("study/game-mini.csv", "study/irds/mini-0-every.csv"),
    "five languages, N = 23,712": ("multilingual5_coalitions.csv", "multilingual5_irds_raw.csv"),
}
"""Trained games of bytes: all coalitions, and the in-run values of one run."""
FURTHER = {
    "N = 389,760": ("study/game-midi.csv", 0),
    "2,048 tokens": ("study/game-bpe-asia.csv", 2048),
    "4,096 tokens": ("study/game-bpe-europe.csv", 4096),
}
"""Trained games without in-run values: of a larger model, and of a tokenizer's ids, whose size is given."""
WAYS = ((1, "1M"),) if SMALL else ((0, "1M"), (1, "100k"), (1, "300k"), (1, "1M"), (2, "1M"), (3, "1M"))
"""Orders and tokens of the models of text."""
NEW_TO = {} if SMALL else {"five languages, game": "multilingual5_coalitions.csv", "runs": "multilingual5_runs.csv"}
"""Further logs from which one language after another is left out."""
FIRST = {"all alike": None, "ja 5, en 3": "ja=5,en=3,de=.5,es=.5,zh=.5,ko=.5"}
"""Weights of the first mixtures."""
Estimator = Callable[[np.ndarray, int, int], np.ndarray]
"""(payoffs, coalitions to evaluate besides the empty and the grand one, seed) -> values (K, T)."""


def main() -> None:
    measure_large(8 if SMALL else 20)
    if find_spec("shapiq"):
        measure_ratio(8 if SMALL else 14)
    measure_sampled()
    if TEXT.is_dir():
        measure_text()
        measure_text_as_a_matrix()
        measure_languages_without_runs()
        measure_atlas()
        measure_first_mixtures()
        measure_many_languages(6 if SMALL else 100)
    finish()


def measure_large(players: int) -> None:
    """As many targets, in a process of their own; memory is its peak, the payoffs included."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spent, gigabytes, residual = pool.apply(large, (players,))
    table(f"Exact values, {players} players, {players} targets", "seconds", "peak GB", "efficiency residual")
    row(spent, gigabytes, residual)
    must("K = 20, T = 20: seconds", spent, 3.0)
    must("K = 20, T = 20: peak GB", gigabytes, 2.0)
    must("K = 20, T = 20: efficiency residual", residual, 1e-12)


def large(players: int) -> tuple[float, float, float]:
    """Seconds, gigabytes, and how far the values are from the whole."""
    v = np.random.default_rng(0).random((2**players, players))
    start = time.perf_counter()
    values = exact_shapley(v)
    spent = time.perf_counter() - start
    residual = float(abs(values.sum(axis=0) - v[-1] + v[0]).max())
    return spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, residual


def measure_ratio(players: int) -> None:
    """The same table of payoffs for both. shapiq enumerates coalitions and looks each payoff up; then it sums."""
    from shapiq.game_theory.exact import ExactComputer

    payoffs = np.random.default_rng(1).random(2**players)
    bits = 1 << np.arange(players)
    ours = min(seconds(lambda: exact_shapley(payoffs[:, None])) for _ in range(5))
    start = time.perf_counter()
    computer = ExactComputer(lambda members: payoffs[members @ bits], players)
    computer.game_values  # noqa: B018  enumerates coalitions and looks payoffs up
    looked_up = time.perf_counter()
    values = computer("SV", order=1)
    end = time.perf_counter()
    gap = np.abs([values[(i,)] for i in range(players)] - exact_shapley(payoffs[:, None])[:, 0]).max()
    table(f"Exact values, {players} players, one target", "", "ms", "ratio")
    row("shapleymix", ours * 1e3, 1)
    for name, spent in (("whole", end - start), ("payoffs already looked up", end - looked_up)):
        row(f"shapiq, {name}", spent * 1e3, spent / ours)
        must(f"K = {players}: shapiq / ours, {name}", spent / ours, 20.0, ">=")
    must(f"K = {players}: largest difference from shapiq", float(gap), 1e-12)


def measure_sampled() -> None:
    """Mean squared error over players, targets and seeds, at equal numbers of evaluations."""
    log = read_runs(FIXTURES / "multilingual5_coalitions.csv")
    compare("Five languages, measured payoffs", coalition_game(log).payoffs, (12, 16, 20))
    for title, triples in (("pairwise interactions", 0), ("pairwise and 30 triple interactions", 30)):
        compare(f"12 players, random {title}", random_game(12, triples), (60,) if SMALL else (60, 120, 240))


def compare(title: str, payoffs: np.ndarray, budgets: tuple[int, ...]) -> None:
    exact = exact_shapley(payoffs)
    table(title, "mean squared error", *(f"{budget} coalitions" for budget in budgets))
    errors: dict[str, list[float]] = {}
    for name, estimate in estimators(len(exact)).items():
        squares = [[(estimate(payoffs, n, seed) - exact) ** 2 for seed in range(SEEDS)] for n in budgets]
        errors[name] = [float(np.mean(each)) for each in squares]
        row(name, *errors[name])
    for place, budget in enumerate(budgets if len(errors) > 1 else ()):
        ours, *others = (found[place] for found in errors.values())
        must(f"{title}, {budget}: squared error / best of shapiq", ours / max(min(others), 1e-20), 1.0)


def estimators(players: int) -> dict[str, Estimator]:
    """Ours first, then those of shapiq where it is installed."""

    def own(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
        held = sample_coalitions(players, budget, np.random.default_rng(seed))
        return estimate_shapley(held, payoffs[masks_of(held)]).values

    found: dict[str, Estimator] = {"shapleymix smooth": own}
    if not find_spec("shapiq"):
        return found
    from shapiq import approximator

    paired = {"pairing_trick": True}
    makers = {
        "KernelSHAP": (approximator.KernelSHAP, {}),
        "KernelSHAP, paired": (approximator.KernelSHAP, paired),
        "kADD-SHAP (order 2), paired": (approximator.kADDSHAP, {"max_order": 2} | paired),
        "SVARM": (approximator.SVARM, {}),
        "permutations": (approximator.PermutationSamplingSV, {}),
    }
    return found | {f"shapiq {name}": shapiq_of(players, *one) for name, one in makers.items()}


def shapiq_of(players: int, kind: Callable, options: dict) -> Estimator:
    """One target at a time, as shapiq has it; its budget counts the empty and the grand coalition, too."""
    bits = 1 << np.arange(players)

    def estimate(payoffs: np.ndarray, budget: int, seed: int) -> np.ndarray:
        columns = []
        for v in payoffs.T:
            maker = kind(players, random_state=seed, **options)
            found = maker.approximate(budget + 2, lambda held, v=v: v[np.atleast_2d(held).astype(int) @ bits])
            columns.append([found[(i,)] for i in range(players)])
        return np.array(columns).T

    return estimate


def measure_text() -> None:
    """Agreement with exact values of trained models: all of it off the diagonal, where a language helps another."""
    columns = ("normalised, Pearson", "values, Pearson", "right sign, %", "seconds")
    for title, (game, in_run) in GAMES.items():
        exact = sm.shapley_values(FIXTURES / game)
        table(f"Values of text against exact ones, {title}", "", *columns)
        agreement("in-run", exact, sm.read_transfer(FIXTURES / in_run).calibrate())
        for order, D in WAYS:
            start = time.perf_counter()
            matrix = sm.text_shapley(TEXT, sources=exact.sources, order=order, D=D)
            name, spent = f"text, order {order}, D = {D}", time.perf_counter() - start
            found = agreement(name, exact, matrix, spent)
            if (order, D) == (1, "1M"):
                must(f"{title}: Pearson off the diagonal, {name}", found, 0.97, ">=")
    for title, (game, size) in {} if SMALL else FURTHER.items():
        exact = sm.shapley_values(FIXTURES / game)
        table(f"Values of text against exact ones, {title}", "", *columns)
        for order, D in ((0, "300k"), (1, "100k"), (1, "300k"), (1, "1M"), (2, "300k"), (2, "1M")):
            start = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                tokenizer = train_tokenizer(exact.sources, size, f"{folder}/bpe.json") if size else "bytes"
                matrix = sm.text_shapley(TEXT, sources=exact.sources, order=order, D=D, tokenizer=tokenizer)
            found = agreement(f"text, order {order}, D = {D}", exact, matrix, time.perf_counter() - start)
            if order == 1 and ("300k" if size else "1M") == D:  # as the runs read
                must(f"{title}: Pearson off the diagonal, order 1, D = {D}", found, 0.95, ">=")
            told = matrix.calibrate(exact.sv.sum(axis=0))  # what the run of the uniform mixture alone tells
            agreement(f"text, order {order}, D = {D}, calibrated", exact, told)


def train_tokenizer(languages: Sequence[str], size: int, path: str) -> str:
    """Byte pairs of the first million characters of each language, as the runs of the games were trained on."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=["<end>"], initial_alphabet=letters)
    texts = (gzip.decompress((TEXT / f"{name}.txt.gz").read_bytes()).decode()[:1_000_000] for name in languages)
    made.train_from_iterator((text[at : at + 5000] for text in texts for at in range(0, len(text), 5000)), trainer)
    made.save(path)
    return path


def agreement(name: str, exact: sm.TransferMatrix, matrix: sm.TransferMatrix, spent: float | str = "") -> float:
    """Print a row, and give the Pearson correlation of normalised values off the diagonal."""
    found, off = exact.compare(matrix), exact.off_diagonal
    same = np.sign(exact.sv) == np.sign(matrix.align(exact.sources, exact.targets).sv)
    raw = found.raw.pearson_off_diagonal if found.raw else np.nan
    row(name, found.pearson_off_diagonal, raw, 100 * float(same[off].mean()), spent)
    return found.pearson_off_diagonal


def measure_text_as_a_matrix() -> None:
    """ShapleyLaw with each matrix, on mixtures that were not fitted."""
    laws = ("shapley",) if SMALL else ("shapley", "shapley-tempered", "shapley-concave")
    table("Held-out PE of the law's forms on the five languages, %", "matrix", *laws)
    log = five_languages()
    matrices = {
        "exact": sm.shapley_values(FIXTURES / "multilingual5_coalitions.csv"),
        "in-run": sm.read_transfer(FIXTURES / "multilingual5_irds_raw.csv").calibrate(),
        **{f"text, order {one}": sm.text_shapley(TEXT, sources=log.sources, order=one) for one in (1, 3)},
    }
    for name, matrix in matrices.items():
        entries = sm.compare(log, laws, matrix).entries
        row(name, *(100 * one.scores.mean["PE"] if one.scores else np.nan for one in entries))


def measure_languages_without_runs() -> None:
    """Errors on runs with a language by a fit to those without it, which takes its effect from what `sm.like` offers.

    On losses of the other languages, the mean over them; its own loss is another question.
    """
    by_game: dict[str, dict[str, list[float]]] = {}
    for title, path in {"study, game": "study/game-tiny.csv", **NEW_TO}.items():
        log = sm.read_runs(FIXTURES / path)
        log = log.select(log.D > 0)
        found = by_game.setdefault(title, {})
        for place, new in enumerate(log.sources[: 1 if SMALL else None]):
            there, others = log.p[:, place] > 0, [name for name in log.sources if name != new]
            fit, left = sm.fit(log.select(~there), "learned-base", bootstrap=20 if SMALL else 100), log.select(there)
            each = [error_without(sm.like(fit, f"{new}={name}"), left, new) for name in others]
            text = sm.text_shapley(TEXT, sources=(*others, new)).sv
            found.setdefault("the text's nearest", []).append(each[int((text + text.T)[-1, :-1].argmax())])
            found.setdefault("another language, in the mean", []).append(float(np.mean(each)))
            found.setdefault("the best other language, by what is to be told", []).append(min(each))
            told = sm.like(fit, f"{new}=text:{TEXT}")
            found.setdefault("its own row of the text's matrix", []).append(error_without(told, left, new))
            found.setdefault("inside the 90% intervals of that, %", []).append(share_inside(told, left, new))
    table("PE of losses of runs with a language that no fitted run held, %", "its effect is that of", *by_game)
    for name in next(iter(by_game.values())):
        row(name, *(float(np.mean(found[name])) for found in by_game.values()))


def error_without(fit: sm.Fit, log: sm.RunLog, new: str) -> float:
    """PE of a log's losses, but for those of one language, %."""
    others = [place for place, name in enumerate(log.targets) if name != new]
    predicted = np.stack([fit.at(*budget).mean(p[None])[0] for p, *budget in zip(log.p, log.N, log.D, strict=True)])
    return 100 * float(np.abs(predicted / log.loss - 1)[:, others].mean())


def share_inside(fit: sm.Fit, log: sm.RunLog, new: str) -> float:
    """The share of the same losses that intervals hold, %."""
    others, told = [name != new for name in log.targets], fit.predict(log.p, log.N, log.D)
    return 100 * float(((told.low <= log.loss) & (log.loss <= told.high))[:, others].mean())


def measure_atlas() -> None:
    """The pairs that ATLAS measured at 2B parameters, of the languages whose whole texts are at hand."""
    path = SHARED / "extra" / "atlas_bts_38x38.csv"
    if not path.is_file():
        return
    texts = {file.name.partition(".")[0] for file in TEXT.glob("*.txt.gz")}
    cells = pl.read_csv(path).filter(pl.col("measured") == 1)
    pairs = [(source, target, bts) for source, target, bts, _ in cells.rows() if {source, target} <= texts]
    languages = sorted({source for source, *_ in pairs})
    bts = np.array([one for *_, one in pairs])
    kin = {"de": "Germanic", "en": "Germanic", "es": "Romance", "fr": "Romance"}
    same = {"same script": dict.fromkeys(kin, "Latin"), "same family": kin}
    guesses = {
        name: np.array([float(kind.get(one, one) == kind.get(other, other)) for one, other, _ in pairs])
        for name, kind in same.items()
    }
    guesses["script and family"] = sum(guesses.values(), np.zeros(len(pairs)))
    for order in (1,) if SMALL else (0, 1, 2):
        matrix = sm.text_shapley(TEXT, sources=languages, order=order)
        places = [(matrix.sources.index(one), matrix.targets.index(other)) for one, other, _ in pairs]
        for name, values in (("values", matrix.sv), ("normalised", matrix.nsv)):
            guesses[f"text, order {order}, {name}"] = np.array([values[place] for place in places])
    rows_of = [[at for at, pair in enumerate(pairs) if pair[1] == target] for target in languages]
    table(f"ATLAS's measured pairs, {len(pairs)} of 72: Spearman", "", "all pairs", "within targets")
    for name, guess in guesses.items():
        within = [spearman(guess[rows], bts[rows]) for rows in rows_of if np.ptp(guess[rows]) > 0]
        row(name, spearman(guess, bts), float(np.mean(within)))


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    return float(spearmanr(one, other).statistic)


def measure_first_mixtures() -> None:
    """The objective of mixtures that need no run, by the law fitted to all runs of the study, at its largest size."""
    log = sm.read_runs(FIXTURES / "study" / "log.csv")
    fit = sm.fit(log.select(log.groups % 4 == 0) if SMALL else log, bootstrap=0, folds=0)
    table("First mixtures: mean loss at the study's largest size, by the default law", "mixture", *FIRST)
    found: dict[str, list[float]] = {}
    for weights in FIRST.values():
        asked = {"N": 389_760, "D": "1M"}
        weighted = {"weights": weights or "unweighted"}
        shares = (
            dict.fromkeys(fit.sources, 1.0) if weights is None else dict(one.split("=") for one in weights.split(","))
        )
        total = sum(map(float, shares.values()))
        rivals = {"uniform": "uniform", "as the weights": {name: float(one) / total for name, one in shares.items()}}
        for order in (1,) if SMALL else (0, 1, 2):
            matrix = sm.text_shapley(TEXT, sources=fit.sources, order=order, weights=weights)
            rivals[f"text, order {order}"] = matrix.provenance["mixture"]
        rivals["the law's optimum"] = sm.optimize(fit, **asked, **weighted).mixture
        for entry in sm.compare_mixtures(fit, rivals, **asked, **weighted).entries:
            found.setdefault(entry.name, []).append(entry.objective)
    for name, objectives in found.items():
        row(name, *(f"{one:.4f}" for one in objectives))


def measure_many_languages(count: int) -> None:
    """Languages beyond those at hand are these with half of their bytes relabelled."""
    draw, texts = np.random.default_rng(0), {}
    files = sorted(TEXT.glob("*.txt.gz"))
    for place in range(count):
        tokens = np.frombuffer(gzip.decompress(files[place % len(files)].read_bytes()), np.uint8)
        labels = np.arange(256)
        if place >= len(files):
            moved = draw.choice(255, 128, replace=False) + 1
            labels[moved] = draw.permutation(moved)
        texts[f"l{place}"] = labels[tokens].astype(np.uint8)
    spent = seconds(lambda: sm.text_shapley(texts))
    table("Values of text, many languages", "languages", "seconds", "peak GB")
    row(count, spent, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    must(f"{count} languages: seconds", spent, 120.0)


def random_game(players: int, triples: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    held = members_of(np.arange(2**players), players).astype(float)
    pairs = np.triu(generator.normal(scale=0.3, size=(players, players)), 1)
    payoffs = held @ generator.normal(size=players) + np.einsum("si,ij,sj->s", held, pairs, held)
    for _ in range(triples):
        trio = generator.choice(players, 3, replace=False)
        payoffs += generator.normal(scale=0.5) * held[:, trio].prod(axis=1)
    return payoffs[:, None]


if __name__ == "__main__":
    main()
