"""Logs as strangers leave them: names, forms, units and what stands beside the numbers, drawn and crossed.

The truth is a law's. What `--show` proposes, with its dots filled in, must read exactly that, and nothing beside it.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from shapleymix_io import read
from shapleymix_io.column_map import ColumnMap
from shapleymix_io.meaning import proposal
from shapleymix_io.reading import imported

import shapleymix as sm
from shapleymix.errors import DataError

STEPS, BATCH, LENGTH = (400, 800), 64, 1024
LABELS = [
    "en", "de", "sw", "hi", "ar", "fi", "mt", "ga", "web_text",
    "code", "books", "c4", "pubmed_central", "hacker_news",
]  # fmt: skip
RATIOS = ["mix_{}", "config.data.weights.{}", "{}_share", "w/{}", "q_{}", "datasets.{}.proportion", "train_the_pile_{}"]
LOSSES = ["eval/{}_loss", "val/{}/nll", "metrics.val_loss_{}", "{}-validation/CrossEntropyLoss", "y_{}", "ce.{}"]
NAMES = {
    "run": ["Name", "run_name", "experiment", "display_name"],
    "N": ["n_params", "params.non_embedding_params", "num_parameters", "model_size", "config.model.n_params"],
    "D": ["tokens", "throughput/total_tokens", "num_input_tokens_seen", "train/n_tokens", "d_tokens"],
}


@dataclass(frozen=True)
class Truth:
    """What a log holds: a row a run and step, and the names that it goes by."""

    runs: list[str]
    N: np.ndarray
    D: np.ndarray
    p: np.ndarray
    loss: np.ndarray
    sources: list[str]
    targets: list[str]
    names: dict[str, str]
    rng: np.random.Generator

    def columns(self, ratio: float = 1.0, loss: Callable[[np.ndarray], np.ndarray] = lambda one: one) -> dict[str, Any]:
        """The columns under the log's own names."""
        named = {self.names["run"]: self.runs, self.names["N"]: self.N, self.names["D"]: self.D}
        named |= {self.names["p"].format(one): ratio * self.p[:, k] for k, one in enumerate(self.sources)}
        return named | {self.names["loss"].format(one): loss(self.loss[:, k]) for k, one in enumerate(self.targets)}


def truth_of(seed: int) -> Truth:
    rng = np.random.default_rng(seed)
    labels = [str(one) for one in rng.permutation(LABELS)]
    M, runs = int(rng.integers(3, 8)), int(rng.integers(8, 20))
    targets = labels[:M] if rng.random() < 0.7 else labels[2 : M + 2]
    names = {key: str(rng.choice(some)) for key, some in {**NAMES, "p": RATIOS, "loss": LOSSES}.items()}
    p = rng.dirichlet(np.full(M, 0.8), runs) * (1 if rng.random() < 0.5 else 1.0)
    p[p < 0.02] = 0
    p = np.round(p / p.sum(axis=1, keepdims=True), 4)
    p[:, 0] += 1 - p.sum(axis=1)
    each, steps = np.repeat(np.arange(runs), len(STEPS)), np.tile(STEPS, runs)
    N, D = np.array([5e6, 1e7])[each % 2], steps * float(BATCH * LENGTH)
    transfer = rng.uniform(0.02, 0.3, (M, M)) + np.eye(M)
    theta = p[each] @ transfer
    loss = np.round(1.7 + 406 / N[:, None] ** 0.34 + 180 / (D[:, None] * theta) ** 0.28, 5)
    ids = [f"{'mix' if seed % 2 else 'p-'}{k:02d}" for k in each]
    return Truth(ids, N, D, p[each], loss, labels[:M], targets, names, rng)


def noise(truth: Truth) -> dict[str, Any]:
    """What stands beside the numbers: none of it is of a mixture or a loss."""
    rows, rng = len(truth.runs), truth.rng
    found = {"seed": truth.rng.integers(0, 99, 1)[0], "state": "finished", "_timestamp": 1.7e9, "lr": 6e-4}
    found = {name: [one] * rows for name, one in found.items()} | {"_runtime": rng.uniform(50, 900, rows)}
    found |= {"train/loss": truth.loss.mean(axis=1) - 0.05, "loss_scale": [1.0] * rows, "grad_norm": rng.random(rows)}
    found |= {
        "tokens_per_second": rng.uniform(1e4, 2e4, rows),
        "total_flos": 6 * truth.N * truth.D,
        "vocab_size": [50257] * rows,
    }
    found |= {"embedding_params": truth.N * 0 + 3_000_000}
    for one in truth.targets:
        found |= {
            f"eval/{one}_runtime": rng.uniform(2, 4, rows),
            f"eval/{one}_samples_per_second": rng.uniform(90, 99, rows),
        }
    return found | {truth.names["loss"].format("avg"): truth.loss.mean(axis=1)}


def check(truth: Truth, sources: list[Any], join: tuple[Any, ...] = (), fill: dict[str, str] | None = None) -> None:
    """The proposal, with its dots filled in, reads the truth."""
    entries = proposal(sources, None, join).entries
    known = {"N": "5M", "D": f"step*{BATCH * LENGTH}"} | (fill or {})
    filled = {key: known[key] if "..." in str(one) and key in known else one for key, one in entries.items()}
    log = sm.read_runs(imported(sources, ColumnMap.of(filled), join).sheet, losses="optional")
    ratio = {label: k for k, label in enumerate(truth.sources)}
    assert {*log.sources} == {*ratio}, entries
    assert {*log.targets} == {*truth.targets}, entries
    rows = {(run, D): k for k, (run, D) in enumerate(zip(truth.runs, truth.D.tolist(), strict=True))}
    order = [rows[key] for key in zip(log.runs, log.D.tolist(), strict=True)]
    assert sorted(order) == list(range(len(truth.runs))), entries
    log = log.align(truth.sources, truth.targets)
    np.testing.assert_allclose(log.p, truth.p[order], atol=1e-6)
    np.testing.assert_allclose(log.loss, truth.loss[order], rtol=1e-5)
    np.testing.assert_allclose(log.N, truth.N[order])


def wide(truth: Truth, folder: Path, ratio: float = 1.0, loss: Any = None) -> list[Any]:
    """A table with all that stands beside the numbers, in any order of columns."""
    columns = truth.columns(ratio, loss or (lambda one: one)) | noise(truth)
    if loss:
        columns = {name: one for name, one in columns.items() if "avg" not in name}
    order = truth.rng.permutation(len(columns))
    pl.DataFrame({list(columns)[k]: list(columns.values())[k] for k in order}).write_csv(folder / "runs.csv")
    return [folder / "runs.csv"]


def perplexities(truth: Truth, folder: Path) -> list[Any]:
    names = {**truth.names, "loss": "eval/{}_perplexity"}
    return wide(Truth(**{**vars(truth), "names": names}), folder, 100.0, np.exp)


def dictionaries(truth: Truth, folder: Path) -> list[Any]:
    """The settings and the results as the texts of dictionaries in two cells."""
    rows = range(len(truth.runs))
    config = [
        str({"n_params": float(truth.N[k]), "mix": dict(zip(truth.sources, truth.p[k].tolist(), strict=True))})
        for k in rows
    ]
    done = [
        json.dumps(
            {"tokens": float(truth.D[k]), **{f"{one}_loss": truth.loss[k, at] for at, one in enumerate(truth.targets)}}
        )
        for k in rows
    ]
    pl.DataFrame({"name": truth.runs, "config": config, "summary": done}).write_csv(folder / "project.csv")
    return [folder / "project.csv"]


def folders(truth: Truth, folder: Path) -> list[Any]:
    """A log a run, with settings beside it: the run is the folder."""
    for run in dict.fromkeys(truth.runs):
        rows = [k for k, one in enumerate(truth.runs) if one == run]
        place = folder / "logs" / run / "version_0"
        place.mkdir(parents=True)
        mixture = ", ".join(f"{one}: {float(truth.p[rows[0], at])!r}" for at, one in enumerate(truth.sources))
        (place / "hparams.yaml").write_text(
            f"params: {truth.N[rows[0]]:.0f}\nmixture: {{{mixture}}}\nshape: !!python/tuple [1, 2]\n"
        )
        log = {
            "step": [int(truth.D[k]) // (BATCH * LENGTH) for k in rows],
            "train_loss": [3.0 + 1 / (k + 1) for k in rows],
        }
        log |= {f"val_loss/{one}": truth.loss[rows, at] for at, one in enumerate(truth.targets)}
        pl.DataFrame(log).write_csv(place / "metrics.csv")
    return [folder / "logs"]


TABLES: dict[str, Callable[[Truth, Path], list[Any]]] = {
    "wide": wide, "percent": lambda truth, folder: wide(truth, folder, 100.0), "perplexities": perplexities,
    "dictionaries": dictionaries, "folders": folders,
}  # fmt: skip


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("seed", range(8))
def test_what_is_proposed_reads_the_truth(seed: int, form: str, tmp_path: Path) -> None:
    truth = truth_of(seed)
    check(truth, TABLES[form](truth, tmp_path))


def design_of(truth: Truth) -> pl.DataFrame:
    """A table of one's own, whose ids have a name of their own."""
    first = [truth.runs.index(run) for run in dict.fromkeys(truth.runs)]
    known = {"mixture_id": [truth.runs[k] for k in first], "N": truth.N[first]}
    return pl.DataFrame(known | {f"p_{one}": truth.p[first, at] for at, one in enumerate(truth.sources)})


def charts(truth: Truth, folder: Path) -> list[Any]:
    """Weights & Biases' export of a chart, a file a target: a column a run, with its least and most."""
    runs = list(dict.fromkeys(truth.runs))
    for at, one in enumerate(truth.targets):
        chart: dict[str, Any] = {"Step": STEPS}
        for run in runs:
            values = truth.loss[[k for k, name in enumerate(truth.runs) if name == run], at]
            chart |= {f"{run} - eval/{one}_loss{end}": values for end in ("", "__MIN", "__MAX")}
        pl.DataFrame(chart).write_csv(folder / f"chart_{at}.csv")
    return [folder / f"chart_{at}.csv" for at in range(len(truth.targets))]


def logs(truth: Truth, folder: Path, line: str) -> list[Any]:
    """What a trainer prints, after a first line that begins as JSON does."""
    files = []
    for run in dict.fromkeys(truth.runs):
        text = ["[2026-05-01 03:56:11,123] [INFO] [launch.py:133] nnodes=1", f"  seq_length ............... {LENGTH}"]
        for k in [k for k, name in enumerate(truth.runs) if name == run]:
            step = int(truth.D[k]) // (BATCH * LENGTH)
            text.append(
                f" iteration {step:8d}/ 800 | consumed samples: {step * BATCH:9d} | lm loss: 3.1E+00 | grad norm: 0.1 |"
            )
            text += [
                line.format(name=one, step=step, loss=truth.loss[k, at], ppl=math.exp(truth.loss[k, at]))
                for at, one in enumerate(truth.targets)
            ]
        files.append(folder / run / "train.log")
        files[-1].parent.mkdir()
        files[-1].write_text("\n".join(text) + "\n")
    return files


LINES = {
    "megatron": "validation-{name} loss at iteration {step} | lm loss value: {loss:.6E} | lm loss PPL: {ppl:.6E} | ",
    "bloom": "[default7]:valid-{name} loss at iteration {step} | lm loss value: {loss:.6E} | ",
    "brackets": "0: validation loss at iteration {step} [{name}] | lm loss value: {loss:.6E} |",
    "titan": "[rank0]:[titan] - root - INFO - \x1b[31mvalidate {name} step: {step:2}  loss:  {loss:.5f}  tps: 9,311",
}


@pytest.mark.parametrize("form", ["charts", *LINES])
@pytest.mark.parametrize("seed", range(3))
def test_logs_are_joined_to_a_table_whose_ids_have_another_name(seed: int, form: str, tmp_path: Path) -> None:
    truth = truth_of(seed)
    design_of(truth).write_csv(tmp_path / "design.csv")
    sources = charts(truth, tmp_path) if form == "charts" else logs(truth, tmp_path, LINES[form])
    for join in (tmp_path / "design.csv", f"{tmp_path}/design.csv:mixture_id=run"):
        check(
            truth, sources, (join,), {"D": f"Step*{BATCH * LENGTH}" if form == "charts" else f"step*{BATCH * LENGTH}"}
        )


def test_a_long_table_says_its_language(tmp_path: Path) -> None:
    truth = truth_of(3)
    shared = [(at, truth.targets.index(one)) for at, one in enumerate(truth.sources) if one in truth.targets]
    rows = [
        (truth.runs[k], truth.N[k], truth.D[k], truth.sources[i], truth.p[k, i], truth.loss[k, j])
        for k in range(len(truth.runs))
        for i, j in shared
    ]
    names = ("run_name", "n_params", "tokens", "domain", "weight", "loss")
    pl.DataFrame(rows, names, orient="row").write_csv(tmp_path / "long.csv")
    assert len(shared) == len(truth.sources)
    check(truth, [tmp_path / "long.csv"])


def test_phases_with_their_fractions() -> None:
    """`phase_0_fraction` is no language; the tokens of a phase are its fraction of all."""
    truth = truth_of(2)
    second = 0.5 * truth.p + 0.5 / len(truth.sources)
    columns = {
        "run": truth.runs, "params": truth.N, "tokens": truth.D, "phase_0_fraction": 0.75, "phase_1_fraction": 0.25,
    }  # fmt: skip
    columns |= {
        f"phase_{n}_{one}": p[:, at] for n, p in enumerate((truth.p, second)) for at, one in enumerate(truth.sources)
    }
    frame = pl.DataFrame(columns | {f"eval/{one}/loss": truth.loss[:, at] for at, one in enumerate(truth.targets)})
    found = proposal([frame])
    log = sm.read_runs(read(frame, found.entries)).align(truth.sources, truth.targets)
    np.testing.assert_allclose(log.D, truth.D)
    np.testing.assert_allclose(log.p, 0.75 * truth.p + 0.25 * second, atol=1e-6)


def test_what_no_name_says_is_left_out_or_refused_never_read(tmp_path: Path) -> None:
    """Without a map: a scale and a twin are said, throughput is no mixture, two values of one loss are refused."""
    truth = truth_of(1)
    log = {"run": truth.runs, "N": truth.N, "D": truth.D} | {
        f"loss_{one}": truth.loss[:, at] for at, one in enumerate(truth.targets)
    }
    p = {f"p_{one}": truth.p[:, at] for at, one in enumerate(truth.sources)}
    beside = {
        "loss_scale": 1.0,
        "loss_ema": truth.loss[:, 0] + 0.07,
        "tokens_per_sec": truth.rng.uniform(1e3, 2e3, len(truth.runs)),
    }
    found = imported([pl.DataFrame(log | p | beside)], ColumnMap.of(None))
    assert {one.removeprefix("loss_") for one in found.frame.columns if one.startswith("loss_")} == {*truth.targets}
    assert all(any(name in notice for notice in found.notices) for name in ("loss_scale", "loss_ema"))
    with pytest.raises(DataError, match="p="):
        read(pl.DataFrame(log | beside))
    twice = LINES["megatron"].format(name="en", step=1, loss=3.0, ppl=9.0)
    (tmp_path / "a.log").write_text(f"{twice}\n{twice.replace('3.0', '4.0')}\n")
    with pytest.raises(DataError) as caught:
        read(tmp_path / "a.log")
    assert caught.value.location.line == 2


def test_rows_of_means_and_faults_of_lines(tmp_path: Path) -> None:
    """A mean below the rows is left out; a repeated run, percent and commas are told at the file's own lines."""
    rows = ["en-1,1M,10M,.5,.5,3,4", "en-2,1M,10M,.25,.75,3.5,3.75", "en-3,1M,10M,.75,.25,2.75,4.5"]
    head = "run,N,D,p_en,p_de,loss_en,loss_de"
    (tmp_path / "t.csv").write_text("\n".join([head, *rows, "mean,1M,10M,.5,.5,3.0833,4.0833"]))
    assert imported([tmp_path / "t.csv"], ColumnMap.of(None)).frame["run"].to_list() == ["en-1", "en-2", "en-3"]
    crashed = "x,1M,10M,.5,.5,,"
    for text, line in (([head, crashed, *rows, rows[1]], 6), ([head, *(one.replace(".", ",") for one in rows)], 2)):
        (tmp_path / "t.csv").write_text("\n".join(text))
        with pytest.raises(DataError) as caught:
            sm.read_runs(imported([tmp_path / "t.csv"], ColumnMap.of(None)).sheet)
        assert caught.value.location.line == line


def written(text: str, file: Path) -> Path:
    """A file with that text."""
    file.write_text(text)
    return file


def test_json_of_pandas_and_of_runs_with_their_checkpoints(tmp_path: Path) -> None:
    """A frame's columns by row, an object by run, and objects whose arrays are rows, also one object a line."""
    truth = truth_of(0)
    known = {"run": truth.runs, "N": truth.N, "D": truth.D}
    p = {f"p_{one}": truth.p[:, at] for at, one in enumerate(truth.sources)}
    frame = pl.DataFrame(known | p | {f"loss_{one}": truth.loss[:, at] for at, one in enumerate(truth.targets)})
    rows = frame.to_dicts()
    held = ["run", "N", *p]
    runs = [
        {name: group[0][name] for name in held}
        | {"evals": [{k: v for k, v in row.items() if k not in held} for row in group]}
        for group in ([row for row in rows if row["run"] == run] for run in dict.fromkeys(truth.runs))
    ]
    columns = {name: {str(at): row[name] for at, row in enumerate(rows)} for name in frame.columns}
    texts = [
        json.dumps(columns), json.dumps(runs, indent=1), "\n".join(map(json.dumps, runs)),
        json.dumps({one.pop("run"): one for one in runs}),
    ]  # fmt: skip
    for at, text in enumerate(texts):
        found = read(written(text, tmp_path / f"{at}.json"))
        assert found.select(frame.columns).sort("run", "D").equals(frame.sort("run", "D")), at


def test_steps_that_are_counted_from_0_are_tokens_of_one_more(tmp_path: Path) -> None:
    truth = truth_of(4)
    steps = truth.D / (BATCH * LENGTH) - 1
    known = {"run": truth.runs, "n_params": truth.N, "step": steps}
    p = {f"mix_{one}": truth.p[:, at] for at, one in enumerate(truth.sources)}
    losses = {f"eval/{one}/loss": truth.loss[:, at] for at, one in enumerate(truth.targets)}
    frame = pl.DataFrame(known | p | losses)
    found = proposal([frame])
    assert str(found.entries["D"]).startswith("(step+1)*")
    columns = {key: one for key, one in found.entries.items() if key != "D"}
    log = read(frame, columns | {"D": f"(step+1)*{BATCH * LENGTH}"})
    np.testing.assert_allclose(log["D"], truth.D)
    told = imported([frame], ColumnMap.of(columns | {"D": f"step*{BATCH * LENGTH}"})).notices
    assert any("+1" in notice for notice in told)


@pytest.mark.parametrize(
    "text",
    [
        "Step,a - loss__MIN,a - loss__MAX\n1,2,3\n",  # ranges without their curves
        "run,N,D,p_en,p_de,loss_en,loss_de\na,1M,10M,50,50,3,4\nb,1M,10M,25,75,3.5,3.75\n",  # percent
    ],
)
def test_what_is_no_curve_or_no_ratio_is_one_plain_error(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(written(text, tmp_path / "t.csv"))
    assert len(caught.value.faults) <= 1


def test_a_file_that_holds_several_mixtures_is_no_run(tmp_path: Path) -> None:
    head = "N,D,p_en,p_de,loss_en,loss_de"
    files = [written(f"{head}\n1M,10M,.5,.5,3,4\n1M,20M,.{k},.{10 - k},3,4\n", tmp_path / f"{k}.csv") for k in (3, 4)]
    with pytest.raises(DataError) as caught:
        read(files)
    assert caught.value.location.file == str(files[0])
