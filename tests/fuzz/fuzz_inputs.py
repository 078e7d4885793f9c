"""Random command lines and damaged tables: answers, or one plain error, and never a fault of ours."""

import contextlib
import io
import json
import os
import random
import shlex
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from cli_tools import every_command
from hypothesis import strategies as st
from shapleymix_cli.main import commands

import shapleymix as sm
from shapleymix.errors import DataError

LINES, TABLES = 1500, 3000
FILES = ("runs.csv", "coalitions.csv", "irds_raw.csv", "languages.csv", "paths.csv", "scores.csv", "wandb.csv")
GIVEN = (*(f"example/{name}" for name in FILES), "fit.json", "mix.json", "sv.csv", "missing.csv", ".", "/dev/null")
TEXTS = (
    "", "0", "-1", "1", "3", "0.5", "1.5", "nan", "inf", "1e400", "243M", "2M", "100B", "1e-300", "40%", "en", "xx",
    "en=0.5", "en=0.5,de=0.5", "en=0.3,de=0.3,fr=0.4", "en=40%", "en=", "=1", "en=nan", "en=1,en=0", "en=1M,de=5M",
    "en+de<=0.3", "zh+ja<=0.001", "0.1<=en<=0.2", "en+xx<=0.3", "uniform", "natural", "temperature:2", "unimax:4",
    "unimax:x", "mono=en=1", "de+5M", "en-100k,zh+1M", "en:rest", "Germanic:rest", "Germanic>=60%", "learned-base",
    "additive,chinchilla", "normalized", "worst", "kl", "hf", "megatron", "é", "\x1b[31m", "\udcff", "a" * 300,
)  # fmt: skip
QUICK = {
    "fit": "--law learned-base --bootstrap 2 --folds 2",
    "compare": "--laws learned-base,chinchilla --folds 2",
    "learning-curve": "--law mariner --folds 2",
}
DRY = ("launch", "run")
LEFT_OUT = ("bootstrap", "folds", "samples", "output", "n", "random", "jobs")
"""Options that cost time, or are drawn below."""
CELLS = (
    "", " ", "0", "1", "-1", "nan", "inf", "-inf", "1e400", "1e-320", "2.5", "1,5", "3%", "x", "é", "NULL", "\x00", '"',
    "1e9", "24k", "True", "2024-01-01", "=1+1", "\u00a01",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example's tables, and what the first commands make of them; the current folder meanwhile."""
    goal, before = tmp_path_factory.mktemp("fuzz"), Path.cwd()
    os.chdir(goal)
    for line in (
        "example",
        "fit example/runs.csv --law learned-base --bootstrap 4 --folds 0 -o fit.json",
        "shapley example/coalitions.csv -o sv.csv",
        "optimize fit.json -N 97600 -D 2M -o mix.json",
    ):
        assert call(shlex.split(line))[0] == 0, line
    yield goal
    os.chdir(before)


def call(words: Sequence[str]) -> tuple[int, str, str]:
    """Run `shapleymix WORDS...`: exit code and both streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = commands.main(list(words), standalone_mode=False)
    return code, out.getvalue(), err.getvalue()


COMMANDS = {name: made for name, made in every_command().items() if not isinstance(made, click.Group)}
ARGUMENTS = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5)  # no argument holds a null byte
VALUES = st.one_of(st.sampled_from(TEXTS), st.sampled_from(GIVEN), ARGUMENTS)


@st.composite
def lines(draw: Any) -> list[str]:
    """Mostly one of the command's own examples, and then some of its options, with values that may fit."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    command = COMMANDS[name]
    own = [shlex.split(line)[1:] for line in getattr(command, "examples", ()) if line.startswith(f"shapleymix {name}")]
    words = (
        list(draw(st.sampled_from(own))) if own and draw(st.integers(0, 5)) else [*name.split(), *draw(some(VALUES))]
    )
    words += QUICK.get(name, "").split()
    for option in draw(some(st.sampled_from(command.params or [None]))):
        if isinstance(option, click.Option) and not option.is_eager and option.name not in LEFT_OUT:
            words.append(draw(st.sampled_from(option.opts)))
            choices = getattr(option.type, "choices", ())
            fitting = st.one_of(st.sampled_from([str(one) for one in choices]), VALUES) if choices else VALUES
            words += [] if option.is_flag else [draw(fitting)]
    words += draw(st.sampled_from([[], ["--json"], ["-o", "out.json", "--force"], ["-o", "no/such/out.csv"], ["-q"]]))
    return [*words, *["--dry-run"] * (name in DRY)]


def some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=3)


def check_line(words: list[str]) -> None:
    """Exit code 0, 1 or 2, a reason where it is not 0, and JSON that is JSON."""
    code, out, err = call(words)
    assert code in (0, 1, 2), f"exit code {code}"
    assert "Traceback" not in out + err, err[-500:]
    assert "internal fault" not in out + err, (out + err)[-500:]
    assert "\x1b" not in out + err, "a terminal escape reaches the screen"
    if "--json" in words and "--" not in words:
        document = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert (code == 0) == (set(document) != {"schema_version", "error"}), f"exit code {code} with {out[:200]}"
    elif code:
        assert "error" in err.lower(), f"exit code {code} without a reason"


def test_every_command_line_ends_as_it_should(campaign: Any, folder: Path) -> None:
    campaign(LINES, lines(), check_line)


def damaged(text: str, seed: int) -> bytes:
    """A table after one to three damages of cells, rows, columns, separators or bytes."""
    rng = random.Random(seed)
    rows = [line.split(",") for line in text.splitlines()]
    rows = rows[: rng.choice((1, 2, 5, len(rows)))] if rng.random() < 0.2 else rows
    separator = rng.choice((";", "\t", "|")) if rng.random() < 0.1 else ","
    for _ in range(rng.randint(1, 3)):
        row, column = rng.choice(rows), rng.randrange(len(rows[0]))
        column = min(column, len(row) - 1)
        kind = rng.choice(("cell", "cell", "cell", "drop", "longer", "twice", "header", "column"))
        if kind in ("cell", "header"):
            (row if kind == "cell" else rows[0])[column] = rng.choice((*CELLS, *rows[0]))
        elif kind == "drop":
            del row[column:]
            row += [""] * (not row)
        elif kind == "longer":
            row.append(rng.choice(CELLS))
        elif kind == "twice":
            rows.append(list(row))
        else:
            rows = [[cell for place, cell in enumerate(one) if place != column] or [""] for one in rows]
    data = "\n".join(separator.join(row) for row in rows).encode()
    if rng.random() < 0.15:
        place = rng.randrange(len(data) + 1)
        data = data[:place] + rng.choice((b"\xff", b"\x00", b'"', b"\r", b"\n\n", b"")) + data[place + 1 :]
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.05 else data


def test_a_damaged_table_is_a_log_or_a_fault_with_a_place(campaign: Any, tmp_path: Path) -> None:
    fixtures = Path(__file__).resolve().parents[2] / "fixtures"
    texts = [(fixtures / name).read_text() for name in ("multilingual5_runs.csv", "repetition_runs.csv")]

    def check(case: tuple[int, int]) -> None:
        path = tmp_path / "damaged.csv"
        path.write_bytes(damaged(texts[case[0]], case[1]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                log = sm.read_runs(path)
            except DataError as error:
                if "damaged.csv" not in str(error):
                    raise AssertionError(f"no place: {error}") from error
                return
        assert len(log) == len(log.p) == len(log.loss)
        assert abs(log.p.sum(axis=1) - 1).max() < 1e-9

    campaign(TABLES, st.tuples(st.integers(0, 1), st.integers(0, 2**32)), check)
