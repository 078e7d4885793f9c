"""Random command lines: exit code 0, 1 or 2, a reason where it is not 0, and JSON that is JSON."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click
from campaign import Campaign
from hypothesis import strategies as st
from shapleymix_cli.main import COMMANDS, commands
from workshop import BUDGET, checked, folder

CAMPAIGN = Campaign("command lines")
COUNT = 1200
FILES = (
    "runs.csv", "coalitions.csv", "sv.csv", "irds_raw.csv", "languages.csv", "paths.csv", "fit.json", "sv-fit.json",
    "mix.json", "missing.csv", ".", "/dev/null",
)  # fmt: skip
TEXTS = (
    "", "0", "-1", "1", "2", "0.5", "1.5", "nan", "inf", "1e400", "243M", "2M", "100B", "1e-300", "40%", "en", "xx",
    "en=0.5", "en=0.5,de=0.5", "en=0.3,de=0.3,fr=0.4", "en=2,de=1", "en=40%", "en=", "=1", "en=nan", "en=1,en=0",
    "en=1M,de=5M", "en+de<=0.3", "en+de>=0.6", "zh+ja<=0.001", "en+de=0.5", "0.1<=en<=0.2", "en+xx<=0.3", "en<=-1",
    "uniform", "natural", "temperature:2", "unimax:4", "temperature:0", "unimax:x", "mono=en=1", "learned-base",
    "shapley", "additive", "exponential", "auto", "gbm", "learned-base,shapley", "normalized", "unweighted", "é",
    "\x1b[31m", "\udcff", "a" * 300,
)  # fmt: skip
MEANT = {
    "what_if": ("de+5M", "en-100k,zh+1M", "zh+1e6", "xx+1M", "de-50B", "de+", "en+0"),
    "frontier": ("en:rest", "en+de:zh+ja", "Germanic:rest", "en:en", "rest:rest", "en:", "en"),
    "points": ("2", "3", "5", "1", "100"),
    "near": ("uniform", "natural", "mix.json", "en=1", "en=0.3,de=0.3,fr=0.4"),
    "within": ("0.1", "10%", "0", "2", "3", "1e-12"),
    "anchor": ("uniform", "mix.json", "en=1", "natural"),
    "groups": ("en+de<=0.3", "Germanic>=60%", "0.2<=zh+ja<=0.4", "en+de=0.5", "en>=0.9", "en+de+fr+zh+ja<=0.9"),
    "caps": ("en=0.3", "en=20%,de=20%", "en=0.1,de=0.1,fr=0.1,zh=0.1,ja=0.1", "ja=0"),
    "floors": ("en=0.3", "zh=50%,ja=60%", "fr=1"),
    "fix": ("en=0.3", "en=0", "en=20%,de=80%"),
    "available": ("en=1M,de=5M", "en=5M,de=5M,fr=5M,zh=5M,ja=5M", "en=0"),
    "languages": ("languages.csv",) * 4,
    "max_epochs": ("1", "4", "en=2", "0.001"),
    "mixtures": ("uniform", "natural", "mix.json", "mono=en=1", "unimax:4", "temperature:3", "en=0.5,de=0.5"),
    "compare_to": ("natural", "unimax:2", "mono=en=1", "mix.json"),
    "form": ("megatron", "hf", "mosaic", "olmo-core", "litdata", "torchtitan", "nanotron", "levanter", "json"),
    "paths": ("paths.csv", "paths.csv", "languages.csv"),
    "mean_tokens": ("2048", "en=300,de=200,fr=100,zh=5,ja=9", "en=1", "0"),
    "point": ("1", "99"),
    "sizes": ("97600", "24k,97600", "1"),
    "tokens": ("2M", "1M,2M,4M", "400B"),
    "weights": ("normalized", "unweighted", "en=1,de=2", "languages.csv"),
}
"""What somebody would write after an option; two of three times it is that, or nearly."""
CHEAP = {
    "fit": ["--bootstrap", "2", "--folds", "2", "--law", "learned-base"],
    "compare": ["--laws", "chinchilla,learned-base"],
}


@dataclass(frozen=True)
class Case:
    """The words of a command line; file names are those of the workshop's folder."""

    words: tuple[str, ...]


@st.composite
def cases(draw) -> Case:
    """Half of the lines begin as somebody would write them; then options are added, from any command's own list."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option) and not option.is_eager]
    words = [name, *_usual(name)] if draw(st.integers(0, 9)) else [name, *draw(st.lists(_value(), max_size=3))]
    for option in draw(st.lists(st.sampled_from(options), max_size=4)) if options else []:
        if option.name in ("bootstrap", "folds", "threads", "output", "samples"):
            continue
        words.append(draw(st.sampled_from(option.opts)))
        if not option.is_flag:
            words.append(draw(_fitting(option)))
    if draw(st.integers(0, 2)) == 0:
        words += ["-o", draw(st.sampled_from(["out.json", "out.csv", "out.parquet", "no/such/out.json", "out"]))]
        words += ["--force"] * draw(st.integers(0, 1))
    if draw(st.booleans()) and name != "laws":
        words.append("--json")
    if draw(st.integers(0, 11)) == 0:
        words.append(draw(_value()))
    return Case(tuple(words))


def _usual(name: str) -> list[str]:
    return {
        "shapley": ["coalitions.csv"],
        "transfer": ["sv.csv"],
        "fit": ["runs.csv", *CHEAP["fit"]],
        "compare": ["runs.csv", *CHEAP["compare"]],
        "predict": ["fit.json", "--mixture", "uniform", *BUDGET],
        "evaluate": ["fit.json", "runs.csv"],
        "export": ["mix.json", "--format", "hf", "--paths", "paths.csv"],
        "optimize": ["fit.json", *BUDGET],
        "laws": [],
        "baselines": ["languages.csv", "-D", "2M"],
    }.get(name, [])


def _value() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(FILES), st.sampled_from(TEXTS), st.text(max_size=5))


def _fitting(option: click.Option) -> st.SearchStrategy[str]:
    """Mostly what the option could mean; else anything."""
    if option.name in MEANT:
        return st.one_of(st.sampled_from(MEANT[option.name]), st.sampled_from(MEANT[option.name]), _value())
    if isinstance(option.type, click.Choice):
        return st.one_of(st.sampled_from([str(choice) for choice in option.type.choices]), _value())
    if option.name in ("sv", "kind"):
        return st.sampled_from(FILES)
    return st.one_of(st.sampled_from(TEXTS), _value())


def trial(case: Case) -> tuple[str, dict[str, float]]:
    """As every command must end; a result that was written is there."""
    os.chdir(folder())
    for name in ("out.json", "out.csv", "out.parquet", "out"):
        Path(name).unlink(missing_ok=True)
    found = checked(case.words)
    return f"{case.words[0]}: exit code {found.code}", {}


def test_every_command_line_ends_as_it_should() -> None:
    folder()
    CAMPAIGN.run(COUNT, cases(), trial)
