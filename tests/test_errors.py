"""Errors read like a compiler's: place, what, next step."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest
from shapleymix_cli.flags import flags_of, in_flags

from shapleymix import errors
from shapleymix.errors import DataError, Fault, Location, ShapleyMixError, did_you_mean
from shapleymix.sweeping import layout, templates


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Location(), ""),
        (Location("runs.csv"), "runs.csv"),
        (Location("runs.csv", 5), "runs.csv:5"),
        (Location("runs.csv", 5, "p_en"), "runs.csv:5 [p_en]"),
        (Location(column="p_en"), "p_en"),
    ],
)
def test_places(place, text):
    assert str(place) == text


def test_one_fault_reads_in_one_line_and_a_hint():
    error = DataError("p_en + p_de = 1.2, expected 1", location=Location("runs.csv", 5), hint="divide by the sum")
    assert str(error) == "runs.csv:5: p_en + p_de = 1.2, expected 1\n  hint: divide by the sum"
    assert isinstance(error, ValueError)
    assert error.faults == ()


def test_many_faults_are_counted_and_a_hint_is_said_once_in_a_row():
    faults = [Fault(f"fault {n}", Location("a.csv", n), hint="mend it" if n < 10 else None) for n in range(1, 26)]
    error = DataError.of(faults, "a.csv")
    lines = str(error).splitlines()
    assert lines[0] == "a.csv has 25 faults:"
    assert lines[-1] == "... and 5 more"
    assert sum(line.startswith("a.csv:") for line in lines) == 20
    assert lines.count("  hint: mend it") == 1
    assert error.location == Location("a.csv", 1)
    assert len(error.faults) == 25


def test_one_fault_among_many_is_one_message():
    error = DataError.of([Fault("bad", Location("a.csv", 2), "x", "mend")])
    assert (error.message, error.hint, error.location, error.faults) == ("bad", "mend", Location("a.csv", 2), ())
    assert type(error) is DataError


def test_codes_are_unique_and_only_usage_exits_with_two():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ShapleyMixError)]
    codes = [kind.code for kind in kinds]
    assert len(kinds) == 10
    assert len(set(codes)) == len(codes)
    assert [kind.__name__ for kind in kinds if kind.exit_code != 1] == ["UsageError", "MixedError"]
    assert issubclass(errors.InfeasibleError, errors.SolveError)


def test_did_you_mean():
    assert did_you_mean("shaply", ["learned-base", "shapley"]) == "did you mean 'shapley'?"
    assert did_you_mean("xyz", ["learned-base", "shapley"]) == "known: learned-base, shapley"
    assert did_you_mean("xyz", []) is None
    assert did_you_mean("q", [f"language-{n}" for n in range(40)]).count("language") == 30  # type: ignore[union-attr]


def _texts(path: Path) -> list[str]:
    """String literals of a file but for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in alone]
    return [node.value for node in nodes if isinstance(node.value, str)]


def test_the_core_tells_nobody_about_dashes():
    """Python callers were told to say --kind raw; the command line writes keywords of hints as its own options."""
    core = Path(errors.__file__).parent
    dashes = re.compile(r"(^|[\s(`'])--?[a-zA-Z]")
    told = ("-inf", "-fold cross-validation grouped by mixture", templates.DEFAULT, layout.SUFFIX)
    told += ("-l", "exp(-l)", "-title")  # transforms of a loss, and part of an element's name
    told += ("Megatron-LM (--data-args-path)", "the file is for --per-split-data-args-path")  # Megatron's own words
    told += ("give the --output_path of lm-eval, or a table run,task,target,score",)  # lm-eval's
    told += ("--allow-unseen", "No other law was compared with it here (shapleymix compare LOG -o laws.json).")
    # what a page says to whom it is shown, who types commands
    found = [(path.name, text) for path in core.rglob("*.py") for text in _texts(path) if dashes.search(text)]
    assert [(name, text) for name, text in found if text not in told] == []


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("give one (transfer=); or not", "give one (--transfer); or not"),
        ("say which: kind=raw or kind=normalized", "say which: --kind raw or --kind normalized"),
        ("normalised ones (kind='normalized')", "normalised ones (--kind normalized)"),
        ("there (sampled=True)", "there (--sampled)"),
        ("write it like en=0.3", "write it like en=0.3"),
        ("caps=0.3,floors=0.1", "--cap 0.3,--floor 0.1"),
        (None, None),
    ],
)
def test_the_command_line_writes_keywords_of_hints_as_its_options(hint, told):
    flags = {"transfer": "--transfer", "kind": "--kind", "sampled": "--sampled", "caps": "--cap", "floors": "--floor"}
    command = click.Command("x", params=[click.Option([flag, name]) for name, flag in flags.items()])
    fault = Fault("f", hint=hint)
    typed = in_flags(errors.DataError("wrong", hint=hint, faults=[fault]), flags_of(command))
    assert isinstance(typed, errors.DataError)
    assert (typed.hint, typed.faults[0].hint) == (told, told)
