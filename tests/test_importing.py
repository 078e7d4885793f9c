"""Run logs from tables of other tools: the same log, whatever its names, shape and units were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shapleymix as sm
from shapleymix.errors import DataError, ShapleyMixError, UsageError

LANGS = ("en", "de", "zh")
LN2 = float(np.log(2))


def log() -> sm.RunLog:
    """Four runs of three languages, one with two checkpoints."""
    p = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.125, 0.375, 0.5], [0.0, 0.5, 0.5]])
    loss = np.array([[3.5, 3.25, 4.0], [3.0, 2.75, 3.5], [3.75, 2.5, 3.0], [4.5, 2.25, 3.125]])
    columns: dict[str, Any] = {"run": ["a", "a", "b", "c"], "N": [97600.0] * 4, "D": [1e6, 2e6, 2e6, 2e6]}
    columns |= {f"p_{name}": p[:, place] for place, name in enumerate(LANGS)}
    return sm.read_runs(columns | {f"loss_{name}": loss[:, place] for place, name in enumerate(LANGS)})


def same(found: sm.RunLog, wanted: sm.RunLog, *, runs: bool = True) -> bool:
    found = found.aligned(wanted.sources, wanted.targets)
    numbers = ("N", "D", "p", "loss")
    close = all(np.allclose(getattr(found, name), getattr(wanted, name), rtol=1e-12) for name in numbers)
    return close and (not runs or found.runs == wanted.runs)


LOSS_UNITS = {
    "nats": (lambda loss: loss, {}),
    "bits": (lambda loss: loss / LN2, {"unit": "bits"}),
    "bpb": (lambda loss: loss / LN2 / [4.5, 4.0, 3.0], {"unit": "bpb", "bytes_per_token": "en=4.5,de=4,zh=3"}),
    "perplexity": (np.exp, {"unit": "perplexity"}),
    "percent": (lambda loss: 100 * loss, {"unit": "percent"}),
}
RATIO_UNITS = {
    "fraction": (lambda p: p, {}),
    "percent": (lambda p: 100 * p, {"ratio_unit": "percent"}),
    "weights": (lambda p: p * np.array([[3.0], [8.0], [0.1], [1.0]]), {"ratio_unit": "weights"}),
}


def wide(p: np.ndarray, loss: np.ndarray, ratios: str, losses: str) -> dict[str, Any]:
    """A wide table under other names."""
    wanted = log()
    table: dict[str, Any] = {"Name": list(wanted.runs), "params": wanted.N, "tokens": wanted.D, "note": ["x"] * 4}
    table |= {ratios.replace("{lang}", name): p[:, place] for place, name in enumerate(LANGS)}
    return table | {losses.replace("{lang}", name): loss[:, place] for place, name in enumerate(LANGS)}


def long(p: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    """A tidy table, a row for each run and language; ratios of 0 are left out in no row."""
    wanted = log()
    rows = [(row, place) for row in range(4) for place in range(3)]
    return {
        "run": [wanted.runs[row] for row, _ in rows],
        "N": [wanted.N[row] for row, _ in rows],
        "D": [wanted.D[row] for row, _ in rows],
        "language": [LANGS[place] for _, place in rows],
        "ratio": [p[row, place] for row, place in rows],
        "loss": [loss[row, place] for row, place in rows],
    }


def numbers(p: np.ndarray, loss: np.ndarray) -> dict[str, Any]:
    """A row for each number."""
    table, rows = wide(p, loss, "w/{lang}", "eval/{lang}/loss"), []
    for row in range(4):
        names = [name for name in table if "/" in name]
        rows += [
            (table["Name"][row], table["params"][row], table["tokens"][row], name, table[name][row]) for name in names
        ]
    return dict(zip(("run", "N", "D", "metric", "value"), map(list, zip(*rows, strict=True)), strict=True))


NAMED = {"run": "Name", "N": "params", "D": "tokens"}
SHAPES: dict[str, Any] = {
    "slashes": (
        lambda p, loss: wide(p, loss, "w/{lang}", "eval/loss/{lang}"),
        {"map": NAMED | {"p": "w/{lang}", "loss": "eval/loss/{lang}"}},
    ),
    "suffixes": (
        lambda p, loss: wide(p, loss, "{lang}_share", "{lang}_loss"),
        {"map": ["run=Name", "N=params", "D=tokens", "p={lang}_share", "loss={lang}_loss"]},
    ),
    "one by one": (
        lambda p, loss: wide(p, loss, "ratio of {lang}", "{lang}"),
        {"map": NAMED | {"p": {name: f"ratio of {name}" for name in LANGS}, "loss": {name: name for name in LANGS}}},
    ),
    "two bare names": (
        lambda p, loss: wide(p, loss, "{lang}_p", "{lang}"),
        {"map": NAMED | {"p": "{lang}_p", "loss": "{lang}", "ignore": ["note"]}},
    ),
    "long": (long, {"long": True}),
    "long, named": (
        lambda p, loss: {
            {"language": "lc", "loss": "nll", "ratio": "w"}.get(k, k): v for k, v in long(p, loss).items()
        },
        {"long": True, "map": {"language": "lc", "loss": "nll", "p": "w"}},
    ),
    "a row a number": (
        numbers,
        {"long": True, "map": {"p": "w/{lang}", "loss": "eval/{lang}/loss"}},
    ),
}


@pytest.mark.parametrize("ratio", RATIO_UNITS)
@pytest.mark.parametrize("unit", LOSS_UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_in_every_unit(shape: str, unit: str, ratio: str, tmp_path: Path) -> None:
    """From memory and from files with either decimal mark."""
    wanted = log()
    (losses, loss_how), (ratios, ratio_how), (table, how) = LOSS_UNITS[unit], RATIO_UNITS[ratio], SHAPES[shape]
    columns = table(ratios(wanted.p), losses(wanted.loss))
    assert same(sm.read_runs(columns, **how, **loss_how, **ratio_how), wanted)
    path = tmp_path / "table.csv"
    pl.DataFrame(columns).write_csv(path, separator=";", decimal_comma=True)
    found = sm.read_runs(path, **how, **loss_how, **ratio_how)
    assert same(found, wanted)
    assert [file.file for file in found.files] == [str(path)]


def test_a_map_in_a_file_with_its_options_and_joins(tmp_path: Path) -> None:
    wanted = log()
    percent = wide(wanted.p * 100, wanted.loss / LN2, "{lang}", "{lang}")
    metrics = {"Name": percent["Name"], "steps": wanted.D / 1000} | {
        f"bits/{name}": wanted.loss[:, place] / LN2 for place, name in enumerate(("English", "German", "Chinese"))
    }
    rows = [0, 2, 3]
    ratios = {"Name": ["a", "b", "c"]} | {name: wanted.p[rows, place] * 100 for place, name in enumerate(LANGS)}
    pl.DataFrame(metrics).write_csv(tmp_path / "metrics.csv", separator="\t")
    pl.DataFrame(ratios).write_csv(tmp_path / "ratios.csv")
    (tmp_path / "map.toml").write_text(
        """
        run = "Name"
        N = "97.6k"
        D = "steps"
        tokens_per_step = 1000
        p = "ratios:{lang}"
        loss = "bits/{lang}"
        unit = "bits"
        ratio_unit = "percent"
        join = "ratios.csv"
        languages = { English = "en", German = "de", Chinese = "zh" }
        """
    )
    found = sm.read_runs(tmp_path / "metrics.csv", map=tmp_path / "map.toml")
    assert same(found, wanted)
    names = [Path(file.file).name for file in found.files]
    assert names == ["metrics.csv", "ratios.csv", "map.toml"]
    by_flag = sm.read_runs(tmp_path / "metrics.csv", map=[str(tmp_path / "map.toml"), "N=1M"], unit="nats")
    assert by_flag.N.tolist() == [1e6] * 4
    assert np.allclose(by_flag.loss, wanted.loss / LN2)


def test_faults_name_the_place_where_they_are_written(tmp_path: Path) -> None:
    """In the tool's own table: its column, its line, its file."""
    (tmp_path / "metrics.csv").write_text("Name;l/en;l/de\na;2,5;x\nb;-1;2,25\n")
    (tmp_path / "ratios.csv").write_text("run_id,en,de,N\nb,0.5,0.75,1M\na,0.5,0.5,1M\n")
    how: Any = {"map": {"run": "Name", "loss": "l/{lang}", "p": "ratios:{lang}", "D": 1e7}}
    with pytest.raises(DataError) as caught:
        sm.read_runs(tmp_path / "metrics.csv", join=tmp_path / "ratios.csv", **how)
    told = str(caught.value)
    assert "metrics.csv:2 [l/de]: loss_de is not a number: 'x'" in told
    assert "metrics.csv:3 [l/en]: loss_en = -1" in told
    assert "p_en + p_de = 1.25, expected 1" in told
    tidy = "run,N,D,language,ratio,loss\na,1M,10M,en,.5,2\na,1M,10M,de,.5,nan\nb,1M,10M,en,1,2\nb,2M,10M,de,0,2\n"
    (tmp_path / "tidy.csv").write_text(tidy)
    with pytest.raises(DataError, match=r"tidy.csv:5 \[N\]: N is '2M', and '1M' in line 4 of the same run"):
        sm.read_runs(tmp_path / "tidy.csv", long=True)
    (tmp_path / "tidy.csv").write_text(tidy.replace("2M", "1M"))
    with pytest.raises(DataError, match=r"tidy.csv:3 \[loss\]: loss_de is NaN"):
        sm.read_runs(tmp_path / "tidy.csv", long=True)


def test_a_long_table_leaves_out_ratios_of_zero(tmp_path: Path) -> None:
    """And a language that is only a target is no source."""
    tidy = "run,N,D,lang,p,loss\na,1M,10M,en,.5,2\na,1M,10M,de,.5,2\nb,1M,10M,en,1,2\na,1M,10M,fr,,3\nb,1M,10M,fr,,3\n"
    (tmp_path / "tidy.csv").write_text(tidy)
    found = sm.read_runs(tmp_path / "tidy.csv", long=True)
    assert found.sources == ("en", "de")
    assert found.p.tolist() == [[0.5, 0.5], [1, 0]]
    assert np.isnan(found.loss[1, 1])
    assert any("1 ratios of languages" in notice for notice in found.notices)


def test_ids_are_made_where_a_table_has_none() -> None:
    """Rows of one N, mixture and seed are checkpoints of one run, unless a D repeats."""
    table = log().columns()
    del table["run"]
    found = sm.read_runs(table)
    assert found.runs == ("run-1", "run-1", "run-2", "run-3")
    assert any("no ids of runs" in notice for notice in found.notices)
    twice = {name: [*column, column[0]] for name, column in table.items()}
    assert sm.read_runs(twice).runs == ("run-1", "run-1", "run-2", "run-3", "run-4")
    assert sm.read_runs({**table, "seed": [1, 2, 1, 1]}).runs == ("run-1", "run-2", "run-3", "run-4")
    assert sm.read_runs({"N": [1e6] * 2, "D": [1e7, 2e7], "loss": [3, 2]}).runs == ("run-1", "run-2")
    with pytest.raises(DataError, match="is the column 'Name' meant"):
        sm.read_runs({**table, "Name": ["a"] * 4})
    assert sm.read_runs({**table, "Runtime": [3] * 4}).runs == found.runs


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"unit": "bpb"}, "only with the bytes of a token"),
        ({"unit": "bits", "bytes_per_token": 4}, "bytes_per_token does nothing to losses in bits"),
        ({"unit": "bpb", "bytes_per_token": "en=4"}, "no number for the target 'de'"),
        ({"unit": "bpb", "bytes_per_token": "en=4,de=4,zh=4,fr=1"}, "'fr' is not one of the targets"),
        ({"unit": "bpb", "bytes_per_token": 0}, "is not above 0"),
        ({"unit": "bytes"}, "unknown unit of losses"),
        ({"ratio_unit": "%"}, "unknown unit of ratios"),
        ({"unit": 3}, "unit is an int"),
        ({"sep": ";;"}, "separates no columns"),
        ({"sep": "a"}, "separates no columns"),
        ({"decimal": ";"}, "is no decimal mark"),
        ({"map": {"rum": "Name"}}, "'rum' is no key of a map"),
        ({"map": ["run"]}, "cannot be read"),
        ({"map": ["run="]}, "is no KEY=VALUE"),
        ({"map": ["run=a", "run=b"]}, "run is given twice"),
        ({"map": ["p.en=a", "p={lang}"]}, "p is given twice"),
        ({"map": {"run": "{lang}"}}, "run has one column"),
        ({"map": {"run": ["a"]}}, "run is a list"),
        ({"map": {"run": "Name"}}, "has no column 'Name', which is to be run"),
        ({"map": {"loss": "l/{lang}"}}, "no column matches 'l/{lang}'"),
        ({"map": {"p": "p_en"}}, "is one column, expected one of each language"),
        ({"map": {"p": {"en": "nope"}}}, "has no column 'nope', which is to be p"),
        ({"map": {"languages": {"en": "x", "de": "x"}}}, "are both p_x"),
        ({"map": {"languages": {"en": "a,b"}}}, "contains ','"),
        ({"map": {"tokens_per_step": -1}}, "is not a size"),
        ({"map": 3}, "an int is no map"),
        ({"long": True}, "a long table needs"),
        ({"long": "yes"}, "expected true or false"),
        ({"join": {"id": ["a"]}}, "has no column 'run', by whose ids tables are joined"),
        ({"join": {"run": ["a", "b"]}}, "run 'c' is not in"),
        ({"join": {"run": ["a", "b", "c", "a"]}}, "repeats run 'a' of line 1"),
        ({"mapp": 1}, "has no keyword 'mapp'"),
        ({"unit": "perplexity", "map": {"loss": "p_{lang}", "p": "loss_{lang}"}}, "expected more than 1"),
    ],
)
def test_what_is_asked_wrongly(how: Any, message: str) -> None:
    with pytest.raises(ShapleyMixError) as caught:
        sm.read_runs(log().columns(), **how)
    assert message in str(caught.value)


def test_a_map_that_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('run = "a"\nloss\n')
    with pytest.raises(UsageError, match=r"map.toml:2: is no TOML"):
        sm.read_runs(log().columns(), map=tmp_path / "map.toml")
    (tmp_path / "map.toml").write_text('rnu = "a"\n')
    with pytest.raises(UsageError, match="'rnu' is no key of a map"):
        sm.read_runs(log().columns(), map=tmp_path / "map.toml")


def test_percentages_and_weights_are_told() -> None:
    table = log().columns()
    hundred = {name: np.asarray(column) * 100 if name.startswith("p_") else column for name, column in table.items()}
    with pytest.raises(DataError, match="are percentages: read them with ratio_unit=percent"):
        sm.read_runs(hundred)
    seven = {name: np.asarray(column) * 7 if name.startswith("p_") else column for name, column in table.items()}
    with pytest.raises(DataError, match="weights that sum to anything are read with ratio_unit=weights"):
        sm.read_runs(seven)
    assert same(sm.read_runs(seven, ratio_unit="weights"), log())
    with pytest.raises(DataError, match="= 700, expected 100"):
        sm.read_runs(
            {k: np.asarray(v) * 700 if k.startswith("p_") else v for k, v in table.items()}, ratio_unit="percent"
        )


def test_rows_that_are_no_runs() -> None:
    """A summary row without ratios gave a hint to write 0; a run without tokens none at all."""
    columns = {"run": ["a", "mean"], "N": [1e6] * 2, "p_en": [0.5, None], "p_de": [0.5, None], "loss": [3, 3]}
    with pytest.raises(DataError, match="has no ratios\n  hint: give them, or leave out a row that is no run"):
        sm.read_runs({**columns, "D": [1e7, 2e7]})
    with pytest.raises(DataError, match="D is empty\n  hint: fill it in, or leave out the row"):
        sm.read_runs({**columns, "D": [1e7, None], "p_en": [0.5] * 2, "p_de": [0.5] * 2})
