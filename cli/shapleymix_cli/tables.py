"""`example`, `shapley`, `transfer`, `laws` and `baselines`: the tables of the work and what they hold."""

from __future__ import annotations

from inspect import signature
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.files import atomic_write
from shapleymix_cli.command_factory import argument, command, option, output
from shapleymix_cli.console import Heading, Output, Part, Whole, section, size
from shapleymix_cli.inputs import names_of, read_log, read_matrix

if TYPE_CHECKING:
    from shapleymix.tables.transfer import Similarity

_INSTALLED = Path(__file__).resolve().parent / "example"
_CHECKOUT = Path(__file__).resolve().parents[2] / "fixtures"
FILES = (
    "runs.csv", "coalitions.csv", "languages.csv", "irds_raw.csv", "paths.csv", "scores.csv", "wandb.csv",
    "shapleymix.toml",
    "olmix/ratios.csv", "olmix/metrics.csv", "olmix/fit.yaml", "olmix/launch.yaml", "olmix/paths.csv",
)  # fmt: skip


@command("shapleymix example", "shapleymix example -o another-folder")
@click.option("-o", "folder", metavar="DIR", default="example", show_default=True, help="Where to write.")
@option("--force", "Overwrite files of these names.")
def example(out: Output, folder: str) -> None:
    """Write small tables to try the program on: real runs of tiny models on five languages.

    A run log, coalition runs, a languages table, a transfer matrix measured within one run, paths of a corpus, scores
    on tasks (made up), runs as W&B exports them, and a project file; below `olmix` a published swarm of that tool.
    """
    goal = Path(folder)
    (goal / "olmix").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        named = name if "/" in name else f"multilingual5_{name}"
        source = _INSTALLED / name if _INSTALLED.is_dir() else _CHECKOUT / named
        content, copy = source.read_bytes(), goal / name
        if not (copy.is_file() and copy.read_bytes() == content):
            atomic_write(copy, content, force=out.force)
    written = [str(goal / name) for name in FILES]
    fit = f"shapleymix fit {goal / 'runs.csv'} -o fit.json"
    asked = f"--languages {goal / 'languages.csv'} --weights en=2,ja=1,zh=1"
    best = f"shapleymix optimize fit.json -N 97600 -D 2M {asked} -o mixture.json"
    view = [*written, "", "Next:", Whole(f"  {fit}"), Whole(f"  {best}")]
    out.emit({"kind": "example", "files": written}, lambda: view)


@command(
    "shapleymix shapley example/coalitions.csv -o sv.csv",
    "shapleymix shapley example/coalitions.csv --sampled --json",
    options_from=lambda: (sm.shapley_values, sm.text_shapley),
    without=("log", "texts", "weights"),
)
@argument("games", "[LOG...]")
@option("--text DIR", "Play the game with n-gram models of the text in this folder, before any training.")
@option("-D SIZE", "Tokens of the coalitions of LOG to use, or that each model of text reads (1M).", "D")
@option("--sources en,...", "The languages of --text that play.  [default: all]", "sources")
@option("--first-weights en=2,...", "What each language counts in the first mixture of --text.", "weights")
@output("the matrix (.csv, .parquet, .jsonl or .json)")
def shapley(out: Output, games: list[str], text: str | None, **keywords: Any) -> None:
    """Compute Shapley values: how much each language lowers the loss of each.

    LOG holds a run on the uniform mixture of each group of languages, and the untrained model (D = 0) as the empty
    group. With all groups at one N and D the values are exact: those of a target add up to its whole loss drop.

    Without runs, --text estimates the values from text alone, and prints a first mixture: that of the least
    n-gram loss, which in trials was no better than uniform.
    """
    if bool(games) == bool(text):
        raise UsageError("expected a LOG of coalition runs, or --text DIR", hint="give one of the two")
    made = sm.text_shapley if text else sm.shapley_values
    given = {name: value for name, value in keywords.items() if value is not None and value is not False}
    for name in given.keys() - signature(made).parameters.keys():
        message = f"{'-' * min(len(name), 2)}{name.replace('_', '-')} is for {'a LOG' if text else '--text'}"
        raise UsageError(message, hint="see `shapleymix shapley --help`")
    if text:
        given = {**given, "sources": names_of(given.get("sources"))}
        matrix = sm.text_shapley(text, **given, progress=out.progress)
        out.note([_how_sure(matrix)])
    else:
        matrix = sm.shapley_values(read_log(out, games), **given)
    out.warn(matrix.provenance.get("notices", ()))
    out.save(matrix)
    first = matrix.provenance.get("mixture", {})
    mixture = section("First mixture", {"language": [*first], "ratio": [*first.values()]}) if first else []
    out.emit(matrix, lambda: [*_matrix_view(matrix), *mixture])


@command(
    "shapleymix transfer example/irds_raw.csv --calibrate",
    "shapleymix shapley example/coalitions.csv -o exact.csv",
    "shapleymix transfer example/irds_raw.csv exact.csv --calibrate",
    "shapleymix transfer example/irds_raw.csv --game example/coalitions.csv",
)
@argument("matrix", "A")
@argument("reference", "[B]")
@option("--calibrate", "Scale each column of A to the measured loss drop in its column loss_drop.")
@option("--game LOG", "Score A by trained coalitions: do added values order what they earned?")
@output("A, calibrated if asked for (.csv, .parquet, .jsonl or .json)")
def transfer(out: Output, matrix: str, reference: str | None, calibrate: bool, game: str | None) -> None:
    """Show the transfer matrix A, or compare it with B by cosine and correlation.

    Values that were measured within one run have an arbitrary scale in each column: they are nats only once they are
    calibrated. Normalised values are all above 0 and hide which language does harm, so the values are compared, too.
    """
    from shapleymix.game.coalitions import coalition_game

    first = read_matrix(out, matrix)
    if calibrate:
        first = first.calibrate()
    elif not first.in_nats:
        out.warn([f"{matrix} is not calibrated: its values are no nats; see --calibrate"])
    out.save(first)
    if game is not None and reference is not None:
        raise UsageError("B and --game are two comparisons", hint="ask for one at a time")
    if game is not None:
        score = coalition_game(read_log(out, [game])).datamodelling_score(first)
        ranks = {"target": score.targets, "spearman": score.spearman.tolist()}
        out.emit(score, lambda: section(score.headline(), ranks))
        return
    if reference is None:
        out.emit(first, lambda: _matrix_view(first))
        return
    second = read_matrix(out, reference)
    if calibrate and second.provenance.get("loss_drop"):
        second = second.calibrate()
    found = first.compare(second)
    out.emit(found, lambda: _similarity_view(found, f"{matrix} against {reference}"))


def _how_sure(matrix: sm.TransferMatrix) -> str:
    """How much text was counted, and by how much values still move."""
    assert matrix.stderr is not None  # the halves of the text give them
    span = " to ".join(dict.fromkeys(size(end(matrix.provenance["tokens"].values())) for end in (min, max)))
    return f"{span} tokens of a language were counted; values still move by {np.median(matrix.stderr):.2g} nats"


def _matrix_view(matrix: sm.TransferMatrix) -> list[Part]:
    """Values where there are any, with their standard errors, and the normalised ones."""
    parts: list[Part] = []
    scale = "in nats" if matrix.in_nats else "on a scale of their own"
    named = {f"Shapley values {scale}": matrix.sv, "Standard errors": matrix.stderr, "Normalised values": matrix.nsv}
    for title, values in named.items():
        if values is not None:
            columns = {name: values[:, place].tolist() for place, name in enumerate(matrix.targets)}
            parts += section(f"{title} (row: source, column: target)", {"source": matrix.sources, **columns})
    return parts


def _similarity_view(found: Similarity, title: str) -> list[Part]:
    from shapleymix.tables.transfer import MEASURES

    kinds = {"normalised": found} | ({} if found.raw is None else {"raw": found.raw})
    overall = {name.replace("_", " "): [getattr(one, name) for one in kinds.values()] for name in MEASURES}
    targets = {name.replace("_", " "): getattr(found, f"{name}_by_target").tolist() for name in MEASURES}
    by_target = section("Normalised values, by target", {"target": found.targets, **targets})
    return [*section(title, {"values": list(kinds), **overall}), *by_target]


@command("shapleymix laws")
def laws(out: Output) -> None:
    """List the laws, simplest first: formula, fitted symbols, what each needs and assumes, and where it is from."""
    from shapleymix.laws import BLACK_BOXES, LAWS

    found = [_described(law) for law in (*LAWS.values(), *BLACK_BOXES.values())]
    out.emit({"kind": "laws", "laws": found}, lambda: [part for law in found for part in _law_view(law)])


def _described(law: Any) -> dict[str, Any]:
    fitted = law.symbols_to_fit()
    return {
        "name": law.name,
        "formula": " ".join((law.__doc__ or "").split("\n\n")[0].replace("`", "").split()),
        "per_target": [symbol.name for symbol in fitted if symbol.axes == "K"],
        "per_source_and_target": [symbol.name for symbol in fitted if symbol.axes == "MK"],
        "needs": list(law.needs),
        "assumption": law.assumption,
        "reference": law.reference,
    }


def _law_view(law: dict[str, Any]) -> list[Part]:
    needs = {"transfer": "--transfer", "families": "--languages", "lightgbm": "lightgbm"}
    own = ", ".join(law["per_target"]) or "what it learns by its own means"
    pairs = f"; for each source and target: {', '.join(law['per_source_and_target'])}"
    return [
        Heading(law["name"]),
        f"  {law['formula']}",
        f"  assumes    {law['assumption']}",
        f"  fitted     for each target: {own}{pairs if law['per_source_and_target'] else ''}",
        f"  needs      {' and '.join(needs[name] for name in law['needs'] if name in needs) or 'nothing but the log'}",
        f"  reference  {law['reference']}",
        "",
    ]


@command(
    "shapleymix baselines --languages example/languages.csv -D 8M",
    "shapleymix baselines --languages example/languages.csv -D 8M --mixture temperature:3.3 --mixture unimax:2",
)
@option("--languages TABLE", "Languages table: available tokens.", required=True)
@option("-D SIZE", "Tokens of the run.", "tokens", required=True)
@option("--mixture [NAME=]MIX", "Show these: natural, uniform, temperature:T, unimax:E, text:DIR, en=1.", multiple=True)
@output("the mixtures (.csv, .parquet, .jsonl or .json)")
def baselines(out: Output, languages: sm.Languages, tokens: str, mixture: list[str]) -> None:
    """Show mixtures by the names that practitioners use, with the epochs that each makes of every language.

    `natural` is in proportion to the available tokens, `temperature:T` to their power 1/T, and `unimax:E` as even as
    at most E epochs of each language allow. `text:DIR` has the least loss of bigram models of the text in that folder.
    """
    from shapleymix.tables.languages import tokens_at_hand
    from shapleymix.tables.mixtures import epochs_of, mixtures_of, usual
    from shapleymix.tables.words import parse_budget

    D, sources = parse_budget(tokens, "-D"), languages.sources
    available = tokens_at_hand(sources, languages, None)
    found = mixtures_of(mixture or usual(available, D), sources, available, D)
    names = {"mixture": [name for name in found for _ in sources], "language": sources * len(found)}
    ratios = {name: p.tolist() for name, p in found.items()}
    epochs = {name: epochs_of(p, available, D).tolist() for name, p in found.items()}
    columns = {**names, "ratio": [*chain(*ratios.values())], "epochs": [*chain(*epochs.values())]}
    document = {"kind": "baselines", "D": D, "columns": columns, "provenance": out.provenance()}
    out.save(document)
    known = {"language": sources, "available": available.tolist()}
    ratio_table = section(f"Ratios at D = {size(D)}", {**known, **ratios})
    out.emit(document, lambda: [*ratio_table, *section("Epochs", {"language": sources, **epochs})])
