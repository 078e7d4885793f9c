"""`import` and `export`: the runs that other tools keep, and a mixture as a trainer takes it."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import shapleymix as sm
from shapleymix.errors import UsageError
from shapleymix.files import read_json, write_json
from shapleymix.tables.languages import tokens_at_hand
from shapleymix.tables.mixtures import is_name, mixture_of, parse_mixture
from shapleymix.tables.sheets import write_table
from shapleymix.tables.words import parse_budget, parse_size
from shapleymix_cli.command_factory import argument, command, option, output
from shapleymix_cli.console import Output, Part, Table, Whole, section, size
from shapleymix_cli.inputs import load

if TYPE_CHECKING:
    from shapleymix_io import Export
    from shapleymix_io.meaning import Proposal
    from shapleymix_io.table import Swarm


@command(
    "shapleymix import example/wandb.csv --show",
    "shapleymix import example/wandb.csv --map run=Name --map N=params --map D=tokens --map 'loss=eval/loss/{lang}' "
    "--map 'p=w_{lang}' --map ratio_unit=percent -o imported.csv",
    "shapleymix import example/olmix -o swarm.csv",
)
@argument("sources", "SOURCE...")
@option("--map KEY=VALUE", "Which column is what; repeatable.", multiple=True)
@option("--join TABLE", "A table with one row for each run (N, ratios).", multiple=True)
@option("--show", "List the columns, and print the command that may read them.")
@output("the run log (.csv, .parquet, .jsonl)")
def import_(out: Output, sources: list[str], map: list[str], join: list[str], show: bool) -> None:
    """Read the runs that other tools keep, and write them as a run log.

    SOURCE is a table (CSV, Parquet, JSON), the trainer_state.json of Hugging Face, a log of Megatron, a folder of
    TensorBoard events, a swarm of olmix (its folder, or its YAMLs), an MLflow store (sqlite:///mlflow.db,
    mlruns, a server) or wandb:ENTITY/PROJECT.

    --map says which column is what: run=Name, 'loss=eval/loss/{lang}', p.en=w_en, N=97.6k, 'D=_step*512k'. {lang}
    stands for each language in turn. The keys are run, N, D, p, loss, tokens, unique; p1 and D1, ..., of phases;
    weight, split, seed, tokenizer, learning_rate, batch; language, or name and value, of a table with a row a language
    or number; languages (other names for them); ignore; unit (nats, bits, perplexity, bpb, which are nats a byte
    without bytes_per_token); ratio_unit (fraction, percent, weights).
    """
    from shapleymix_io.column_map import ColumnMap
    from shapleymix_io.meaning import proposal
    from shapleymix_io.reading import imported

    if show:
        found = proposal(sources, map, join, out.progress)
        out.note(found.notices)
        out.emit({"kind": "proposal", **vars(found)}, lambda: _proposal_view(found, [*sources], [*join]))
        return
    log = imported(sources, ColumnMap.of(map), join, out.progress)
    for one in log.files:
        out.used(one.file, one.sha256)
    runs = sm.read_runs(log.sheet)
    out.note([*log.notices, *runs.notices])
    following = _after_swarm(out, log.swarm, runs) if log.swarm and out.path else []
    out.save(runs)
    counts = {"runs": len({*runs.runs}), "rows": len(runs), "losses": int(runs.measured.sum())}
    content = {"extent": runs.extent, "taken": log.taken, "notices": log.notices, "next": following}
    document = {"kind": "import", **counts, **content, "provenance": out.provenance()}
    ahead = ["", "Next:", *(Whole(f"  {one}") for one in following)] if following else []
    out.emit(document, lambda: [*_taken(runs.extent, log.taken), *ahead])


def _after_swarm(out: Output, swarm: Swarm, runs: sm.RunLog) -> list[str]:
    """Write the priors of a swarm beside its log, and the commands that ask what its configuration asks."""
    stem = os.path.splitext(str(out.path))[0]
    budget = {"-N": runs.N.max(), "-D": runs.D.max() if math.isnan(swarm.target) else swarm.target}
    exact = {name: size(one) if parse_size(size(one)) == one else f"{one:.0f}" for name, one in budget.items()}
    options = {**exact, **swarm.options}
    if names := [*dict.fromkeys((*swarm.tokens, *swarm.bytes_per_token))]:
        options["--languages"] = f"{stem}.languages.csv"
        columns = {"available_tokens": swarm.tokens, "bytes_per_token": swarm.bytes_per_token}
        table = {"language": names} | {column: [*map(known.get, names)] for column, known in columns.items() if known}
        write_table(table, options["--languages"], force=out.force)
    if swarm.bytes_per_token:
        options["--unit"] = "bpb"
    if swarm.kl:
        options |= {"--anchor": f"{stem}.prior.json" if swarm.prior else "natural", "--kl": f"{swarm.kl:.4g}"}
    if swarm.kl and swarm.prior:
        write_json(swarm.prior, options["--anchor"], force=out.force)
    asked = [word for pair in options.items() for word in pair]
    fit = ["shapleymix", "fit", str(out.path), "-o", "fit.json"]
    return [shlex.join(fit), shlex.join(["shapleymix", "optimize", "fit.json", *asked, "-o", "mix.json"])]


def _proposal_view(found: Proposal, sources: list[str], join: list[str]) -> list[Part]:
    """Every column, what each thing of a log may be taken from, and the command that does so."""
    from shapleymix_io.column_map import write_entries

    pairs = [("--join", one) for one in join] + [("--map", pair) for pair in write_entries(found.entries)]
    words = ["shapleymix", "import", *sources, *(word for pair in pairs for word in pair), "-o", "runs.csv"]
    columns = {"column": list(found.columns), "such as": list(found.columns.values())}
    parts = [*section(f"{found.origin}: its columns", columns, words=2), *_taken("may be read as", found.taken)]
    parts += [f"Missing: {', '.join(found.missing)}. Fill in the dots."] if found.missing else []
    return [*parts, "", Whole(shlex.join(words))]


def _taken(title: str, found: Mapping[str, str]) -> list[Part]:
    """What each thing of a log is taken from."""
    return section(title, {"": list(found), "from": list(found.values())}, words=2)


@command(
    "shapleymix fit example/runs.csv -o fit.json",
    "shapleymix optimize fit.json -N 97600 -D 8M --languages example/languages.csv -o best.json",
    "shapleymix export best.json --format megatron --paths example/paths.csv -o blend.txt",
    "shapleymix export best.json --format hf --mean-tokens en=310,de=280,fr=290,zh=420,ja=380 -o mixing.py",
    "shapleymix export unimax:4 --format olmo-core --paths example/paths.csv -D 8M",
    options_from=lambda: (import_module("shapleymix_io").export,),
    without=("mixture", "format"),
)
@argument("mixture", "MIX")
@option("--format TRAINER", "megatron, hf, mosaic, olmo-core, litdata, ...", "form", required=True)
@option("--paths TABLE", "Where each language lies: language,path[,...].")
@option("--languages TABLE", "Languages table: available tokens.")
@option("--point COUNT", "Which mixture of a frontier or of several budgets, counted from 1.")
@output("the trainer's file, and FILE.json beside it: shares, tokens and epochs")
def export(
    out: Output, mixture: str, form: str, paths: str | None, languages: sm.Languages | None, point: int | None,
    **keywords: Any,
) -> None:  # fmt: skip
    """Write a mixture as a trainer's config.

    MIX is what `optimize -o` wrote, ratios such as en=0.5,de=50%, or a baseline (natural, unimax:4) of the languages
    in the tables. TRAINER is megatron, automodel, hf, mosaic, olmo-core, litdata, torchtitan, nanotron, levanter,
    llama-factory or json. Ratios are of tokens: a trainer that draws documents gets the weights that make it so, by
    --mean-tokens. Languages of ratio 0 are left out, and without -o the file goes to standard output.
    """
    from shapleymix_io import export as exported
    from shapleymix_io.blends import Corpora, read_corpora

    corpora = Corpora() if paths is None else read_corpora(paths)
    for one in corpora.files:
        out.used(one.file, one.sha256)
    found, keywords["available"] = _mixture(out, mixture, point, corpora, languages, keywords)
    made = exported(found, form, paths=corpora, **keywords)
    out.note(made.notes)
    out.warn(made.notices)
    if out.path:
        made.write(out.path, force=out.force, provenance=out.provenance())
        out.note([f"wrote {out.path}"])
    out.as_json = out.as_json or not (made.text or out.path)
    shown = (lambda: _streams_view(made)) if out.path else (lambda: [Whole(line) for line in made.text.splitlines()])
    out.emit(made.to_document(out.provenance()), shown)


def _mixture(out: Output, text: str, point: int | None, corpora: Any, table: Any, keywords: dict[str, Any]) -> Any:
    """A saved mixture, or ratios by language, and the unique tokens that are known."""
    saved = _saved(out, text, point) if text == "-" or Path(text).is_file() else None
    names = tuple(corpora.sources()) if table is None else table.sources
    if saved is not None:
        names = tuple(getattr(saved, "mixture", saved))
    elif "=" in text:
        names = tuple(part.rpartition("=")[0].strip() for part in text.split(","))
    if not names and is_name(text, names):
        raise UsageError(f"nothing says of which languages {text!r} is a mixture", hint="give --paths or --languages")
    available = tokens_at_hand(names, table, keywords.get("available"))
    known = {name: value for name, value in zip(names, available.tolist(), strict=True) if not math.isnan(value)}
    if saved is not None:
        return saved, known
    for place, name in enumerate(names):
        available[place] = known.get(name, corpora.tokens(name))
    D = parse_budget(keywords["D"], "-D") if "D" in keywords else math.nan
    return dict(zip(names, mixture_of(text, names, available, D).tolist(), strict=True)), known


def _saved(out: Output, path: str, point: int | None) -> Any:
    """The mixture that a command wrote, one of several by its number, or ratios by language."""
    from shapleymix.mixing.answers import MixtureGrid

    known = {} if path == "-" else read_json(path)[0]
    kind = known.get("kind", "export") if isinstance(known, dict) else None
    if isinstance(known, dict) and kind == "export" and known:
        names = tuple(known.get("mixture", known))
        return dict(zip(names, parse_mixture(Path(path), names).tolist(), strict=True))

    kinds = {one.kind: one for one in (sm.Frontier, MixtureGrid)}
    found = load(out, kinds.get(str(kind), sm.Mixture), path)
    if isinstance(found, (sm.Frontier, MixtureGrid)):
        count = len(found.entries)
        if point is None or not 1 <= point <= count:
            raise UsageError(f"{path} holds {count} mixtures", hint=f"choose one by --point 1 to {count}")
        if isinstance(found, MixtureGrid):
            return found.entries[point - 1]
        return SimpleNamespace(**found.remaining(found.entries[point - 1].p))
    return found


def _streams_view(made: Export) -> list[Part]:
    """A row for each stream."""
    rows = [
        {"stream": one.name, "weight": f"{one.weight:.6f}", "tokens": one.ratio * made.blend.asked.D,
         "of tokens": f"{one.ratio:.6f}", "available": one.available, "epochs": made.blend.epochs[one.source]}
        for one in made.blend.streams
    ]  # fmt: skip
    return [Table.of(rows, ("stream", "weight", "of tokens", "tokens", "available", "epochs"))]
