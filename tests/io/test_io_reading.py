"""Other tools' tables as run logs: the same log, whatever its names, shape and units were; and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from shapleymix_io import read
from shapleymix_io.column_map import ColumnMap, write_entries
from shapleymix_io.meaning import proposal
from shapleymix_io.reading import imported

import shapleymix as sm
from shapleymix.errors import DataError, ShapleyMixError, UsageError

LANGS = ("en", "de", "zh")
LN2 = float(np.log(2))
P = np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.125, 0.375, 0.5], [0.0, 0.5, 0.5]])
LOSS = np.array([[3.5, 3.25, 4.0], [3.0, 2.75, 3.5], [3.75, 2.5, 3.0], [4.5, 2.25, 3.125]])
RUNS, N, D = ["a", "a", "b", "c"], [97600.0] * 4, [1e6, 2e6, 2e6, 2e6]
LOSS_UNITS: dict[str, Any] = {
    "nats": (lambda loss: loss, {}),
    "bits": (lambda loss: loss / LN2, {"unit": "bits"}),
    "bpb": (lambda loss: loss / LN2 / [4.5, 4, 3], {"unit": "bpb", "bytes_per_token": {"en": 4.5, "de": 4, "zh": 3}}),
    "perplexity": (np.exp, {"unit": "perplexity"}),
}
RATIO_UNITS: dict[str, Any] = {
    "fraction": (lambda p: p, {}),
    "percent": (lambda p: 100 * p, {"ratio_unit": "percent"}),
    "weights": (lambda p: p * np.array([[3.0], [8.0], [0.1], [1.0]]), {"ratio_unit": "weights"}),
}


def wide(p: np.ndarray, loss: np.ndarray, ratios: str, losses: str) -> pl.DataFrame:
    """A row for each checkpoint, under other names."""
    table: dict[str, Any] = {"Name": RUNS, "params": N, "tokens": D, "note": ["x"] * 4}
    table |= {ratios.replace("{lang}", name): p[:, place] for place, name in enumerate(LANGS)}
    return pl.DataFrame(table | {losses.replace("{lang}", name): loss[:, place] for place, name in enumerate(LANGS)})


def long(p: np.ndarray, loss: np.ndarray) -> pl.DataFrame:
    """A row for each checkpoint and language."""
    rows = [(row, place) for row in range(4) for place in range(3)]
    names = ("run", "N", "D", "lc", "w", "nll")
    cells = [(RUNS[row], N[row], D[row], LANGS[at], float(p[row, at]), float(loss[row, at])) for row, at in rows]
    return pl.DataFrame(cells, schema=names, orient="row")


def numbers(p: np.ndarray, loss: np.ndarray) -> pl.DataFrame:
    """A row for each number."""
    index = ["Name", "params", "tokens", "note"]
    return wide(p, loss, "w/{lang}", "eval/{lang}/loss").unpivot(index=index, variable_name="metric")


NAMED = {"run": "Name", "N": "params", "D": "tokens"}
SHAPES: dict[str, Any] = {
    "slashes": (
        lambda p, loss: wide(p, loss, "w/{lang}", "eval/loss/{lang}"),
        {**NAMED, "p": "w/{lang}", "loss": "eval/loss/{lang}"},
    ),
    "one by one": (
        lambda p, loss: wide(p, loss, "ratio of {lang}", "{lang}"),
        NAMED | {"p": {name: f"ratio of {name}" for name in LANGS}, "loss": {name: name for name in LANGS}},
    ),
    "two bare names": (
        lambda p, loss: wide(p, loss, "{lang}_p", "{lang}"),
        NAMED | {"p": "{lang}_p", "loss": "{lang}", "ignore": ["note"]},
    ),
    "phases": (
        lambda p, loss: wide(p, loss, "first/{lang}", "loss_{lang}").with_columns(
            pl.col("^first/.*$").name.replace("first", "second"), half=pl.col("tokens") / 2
        ),
        {"run": "Name", "N": "params", "D1": "half", "D2": "half", "p1": "first/{lang}", "p2": "second/{lang}"},
    ),
    "long": (long, {"language": "lc", "loss": "nll", "p": "w"}),
    "a row a number": (numbers, NAMED | {"name": "metric", "p": "w/{lang}", "loss": "eval/{lang}/loss"}),
}


@pytest.mark.parametrize("ratio", RATIO_UNITS)
@pytest.mark.parametrize("unit", LOSS_UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_in_every_unit(shape: str, unit: str, ratio: str, tmp_path: Path) -> None:
    """From memory and from files; what is read is what the core takes."""
    (losses, loss_how), (ratios, ratio_how), (table, how) = LOSS_UNITS[unit], RATIO_UNITS[ratio], SHAPES[shape]
    frame, map = table(ratios(P), losses(LOSS)), {**how, **loss_how, **ratio_how}
    frame.write_csv(tmp_path / "table.csv", separator=";")
    frame.write_parquet(tmp_path / "table.parquet")
    frame.write_ndjson(tmp_path / "table.jsonl")
    for source in (frame, *(tmp_path / f"table.{ending}" for ending in ("csv", "parquet", "jsonl"))):
        log = sm.read_runs(read(source, map)).align(LANGS, LANGS)
        assert (log.runs, log.N.tolist(), log.D.tolist()) == (tuple(RUNS), N, D)
        np.testing.assert_allclose(log.p, P, rtol=1e-12)
        np.testing.assert_allclose(log.loss, LOSS, rtol=1e-12)


def test_a_map_of_a_joined_table_with_factors(tmp_path: Path) -> None:
    metrics = {"Name": RUNS, "steps": [one / 1000 for one in D]}
    metrics |= {f"bits/{name}": LOSS[:, at] / LN2 for at, name in enumerate(("English", "German", "Chinese"))}
    pl.DataFrame(metrics).write_csv(tmp_path / "metrics.csv", separator="\t")
    ratios = {"Name": ["a", "b", "c"], "size_m": [0.0976] * 3}
    ratios |= {name: P[[0, 2, 3], at] * 100 for at, name in enumerate(LANGS)}
    pl.DataFrame(ratios).write_csv(tmp_path / "ratios.csv")
    map: dict[str, Any] = {"run": "Name", "N": "size_m*1M", "D": "steps*1000", "p": "ratios:{lang}"}
    map |= {"loss": "bits/{lang}", "unit": "bits", "ratio_unit": "percent", "ignore": ["ratios:size_m"]}
    map |= {"languages": {"English": "en", "German": "de", "Chinese": "zh"}}
    found = imported([tmp_path / "metrics.csv"], ColumnMap.of(map), [tmp_path / "ratios.csv"])
    assert any(f"bits, {LOSS.min() / LN2:.4g} to {LOSS.max() / LN2:.4g}" in one for one in found.notices)
    log = sm.read_runs(found.frame)
    assert (log.sources, log.targets) == (LANGS, LANGS)
    np.testing.assert_allclose(log.loss, LOSS)
    np.testing.assert_allclose(log.N, N)
    assert [Path(one.file).name for one in found.files] == ["metrics.csv", "ratios.csv"]
    by_flag = read(
        tmp_path / "metrics.csv", write_entries({**map, "N": "1M", "unit": "nats"}), join=tmp_path / "ratios.csv"
    )
    assert by_flag["N"].to_list() == [1e6] * 4
    np.testing.assert_allclose(by_flag["loss_en"], LOSS[:, 0] / LN2)


def test_faults_name_the_place_where_they_are_written(tmp_path: Path) -> None:
    """In the tool's own table: its file, its line, its column."""
    (tmp_path / "metrics.csv").write_text("Name;l/en;l/de\na;2.5;x\nb;-1;2.25\n")
    (tmp_path / "ratios.csv").write_text("run_id,en,de,N\nb,0.5,0.75,1M\na,0.5,0.5,many\n")
    map = {"run": "Name", "loss": "l/{lang}", "p": {"en": "en", "de": "ratios:de"}, "D": 1e7}
    with pytest.raises(DataError) as caught:
        read(tmp_path / "metrics.csv", map, join=tmp_path / "ratios.csv")
    where = [one.location for one in caught.value.faults]
    places = {(Path(str(one.file)).name, one.line, one.column) for one in where}
    assert places >= {("metrics.csv", 2, "l/de"), ("ratios.csv", 3, "N"), ("metrics.csv", 3, None)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("run,N,D,p_en,loss_en\na,1M,1B,1,2\nb,1M,1B,1\n", 3), ("run,N,N,p_en,loss_en\na,1M,1B,1,2\n", 1),
        ('{"run": "a"}\n[1]\n', 2), ('{"run": "a"}\n{"run" "b"}\n', 2),
        ("run,N,D,language,p,loss\na,1M,1B,en,1,2\na,1M,1B,en,1,2\n", 2),
    ],
)  # fmt: skip
def test_a_broken_table_is_told_with_its_line(text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(text)
    map = {"language": "language", "p": "p", "loss": "loss"} if "language" in text else {}
    with pytest.raises(DataError) as caught:
        read(tmp_path / "table.csv", map)
    assert caught.value.location.line == line


def test_rows_without_a_loss_are_left_out_and_counted(tmp_path: Path) -> None:
    """A run that crashed before its first loss, and one whose loss is no number."""
    rows = "a,finished,1M,1B,1,2\nb,crashed,1M,1B,1,\nc,failed,,,1,NaN\nd,killed,1M,1B,1,3\n"
    (tmp_path / "t.csv").write_text(f"Name,State,params,tokens,w_en,l/en\n{rows}")
    map = {"run": "Name", "N": "params", "D": "tokens", "p": "w_{lang}", "loss": "l/{lang}"}
    found = imported([tmp_path / "t.csv"], ColumnMap.of(map))
    assert found.frame["run"].to_list() == ["a", "d"]
    assert any("2 of 4 rows" in one for one in found.notices)


def test_a_long_table_leaves_out_ratios_of_zero(tmp_path: Path) -> None:
    """And a language that is only a target is no source."""
    text = "run,N,D,lang,p,loss\na,1M,10M,en,.5,2\na,1M,10M,de,.5,2\nb,1M,10M,en,1,2\na,1M,10M,fr,,3\nb,1M,10M,fr,,3\n"
    (tmp_path / "tidy.csv").write_text(text)
    log = sm.read_runs(read(tmp_path / "tidy.csv", ["language=lang", "p=p", "loss=loss"]))
    assert (log.sources, set(log.targets)) == (("en", "de"), {"en", "de", "fr"})
    assert log.p.tolist() == [[0.5, 0.5], [1, 0]]


TABLE = pl.DataFrame(
    {"run": RUNS, "N": N, "D": D, "p_en": [1.0] * 4, "l_en": [3.0] * 4, "l_avg": [3.0] * 4, "_step": [9] * 4}
)
OWN = {"loss": {"en": "l_en"}}


@pytest.mark.parametrize(
    ("map", "kind", "told"),
    [
        ({"rum": "Name"}, UsageError, "run"), (["run="], UsageError, "KEY=VALUE"),
        (["run=a", "run=b"], UsageError, "twice"), (["map.toml"], UsageError, "KEY=VALUE"),
        ({"run": ["a"]}, UsageError, "list"), ({"languages": "en"}, UsageError, "languages"),
        ({"unit": "bytes"}, UsageError, "perplexity"), ({"bytes_per_token": 4, **OWN}, UsageError, "bpb"),
        ({"unit": "bpb", "bytes_per_token": {"de": 4}, **OWN}, UsageError, "en"),
        ({"run": "Name", **OWN}, DataError, "Name"), ({"loss": "m_{lang}"}, DataError, "m_{lang}"),
        ({"p": "p_en", **OWN}, DataError, "{lang}"), ({"loss": "l_{lang}"}, DataError, "ignore=l_avg"),
        ({"loss": "l_{lang}", "ignore": "l_avg", "D": "_step"}, DataError, "*512k"),
        ({"loss": "l_{lang}", "ignore": "l_avg", "N": "N*many"}, DataError, "N"),
        ({"loss": "l_{lang}", "languages": {"avg": "en"}}, DataError, "one name"),
        ({"p": {"en": 0.5}, **OWN}, DataError, "ratio_unit"), ({"run": "run"}, DataError, "loss"),
    ],
)  # fmt: skip
def test_what_is_asked_wrongly(map: Any, kind: type[ShapleyMixError], told: str) -> None:
    with pytest.raises(kind) as caught:
        read(TABLE, map)
    assert told in str(caught.value)


def test_a_language_that_is_called_as_an_average_is_one_where_the_map_says_so() -> None:
    assert {"loss_en", "loss_avg"} <= {*read(TABLE, {"loss": "l_{lang}", "languages": {"avg": "avg"}}).columns}
    assert "loss_all" in read(TABLE.select("run", "N", "D", "p_en", loss="l_en")).columns


@pytest.mark.parametrize(
    "join", [{"id": ["a"]}, {"run": ["a", "b"], "x": [1, 2]}, {"run": ["a", "b", "c", "a"], "x": [1, 2, 3, 4]}]
)
def test_a_table_that_cannot_be_joined(join: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="run"):
        read(TABLE, OWN, join=pl.DataFrame(join))


SHOWN = {
    "slashes": ("w_{lang}", "eval/loss/{lang}"), "suffixes": ("{lang}_share", "{lang}_loss"),
    "before and after": ("mix.{lang}.weight", "val_{lang}_nll"), "perplexity": ("p.{lang}", "ppl/{lang}"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_first_map_reads_the_table(name: str) -> None:
    """As texts and as a mapping, it makes the log; `config.model.d` = 64 is no D, and an average no language."""
    ratios, losses = SHOWN[name]
    frame = wide(P * 100, np.exp(LOSS) if "ppl" in losses else LOSS, ratios, losses)
    frame = frame.with_columns(pl.lit(64).alias("config.model.d"), pl.lit(12).alias("config.n"))
    frame = frame.with_columns(pl.lit(3.0).alias(losses.replace("{lang}", "mean")), pl.Series("train/lr", D), lr=3e-3)
    found = proposal([frame])
    wanted = {"N": "params", "D": "tokens", "run": "Name", "learning_rate": "lr"}
    assert {name: found.entries[name] for name in wanted} == wanted
    assert (set(found.columns), found.missing) == (set(frame.columns), ())
    for map in (write_entries(found.entries), found.entries):
        log = sm.read_runs(read(frame, map)).align(LANGS, LANGS)
        np.testing.assert_allclose(log.p, P)
        np.testing.assert_allclose(log.loss, LOSS)


def test_settings_within_a_cell_are_columns(tmp_path: Path) -> None:
    """Of Parquet as of JSON: `config.mix.en`."""
    config = {"n": 1e6, "mix": {"en": 0.25, "de": 0.75}}
    rows = [{"run": one, "config": config, "D": 1e9, "l": {"en": 3.0}} for one in "ab"]
    pl.DataFrame(rows).write_parquet(tmp_path / "runs.parquet")
    (tmp_path / "runs.json").write_text(json.dumps(rows))
    for name in ("runs.parquet", "runs.json"):
        log = sm.read_runs(read(tmp_path / name, {"N": "config.n", "p": "config.mix.{lang}", "loss": "l.{lang}"}))
        assert (log.p.tolist(), log.N.tolist()) == ([[0.25, 0.75]] * 2, [1e6] * 2)


def test_what_is_missing_is_to_be_filled_in() -> None:
    table = pl.DataFrame({"Name": ["a"], "_step": [9], "l/en": [3.0], "d": [64]})
    found = proposal([table], ["loss=l/{lang}"])
    assert set(found.missing) == {"N", "p"}
    assert (found.entries["D"], found.entries["loss"]) == ("_step*...", "l/{lang}")
    assert "N=..." in write_entries(found.entries)
