"""`plan`, `launch`, `run` and `collect`: which runs to train, and training them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from shapleymix_sweep.engines import ENGINES, manifest

import shapleymix as sm
from shapleymix.errors import DataError, Location, UsageError
from shapleymix.tables.words import double, parse_budget, parse_pairs, parse_whole
from shapleymix_cli.command_factory import SETTINGS, CommandGroup, argument, command, option, output
from shapleymix_cli.console import DATA_SAY_NO, Heading, Output, Table, Whole, size
from shapleymix_cli.inputs import names_of, read_log, read_plan

if TYPE_CHECKING:
    from shapleymix_sweep.mixtures import Mixtures
    from shapleymix_sweep.plans import Plan

GAME = "shapleymix plan game --sources toy_a,toy_b --corpus toy -N tiny=23712 -D 100k -o game.jsonl"
BARE: dict[str, Any] = {"is_flag": False, "flag_value": ""}
"""What makes the value of an option one that may be left out."""
BOUNDS = (
    "caps", "floors", "fix", "languages", "available", "max_epochs", "min_tokens", "groups", "keep_within", "kept",
)  # fmt: skip
_NAMES = "corpus mixture sources p_en N model D seed unique learning_rate batch_tokens name out id"
PLACEHOLDERS = f"{{{_NAMES.replace(' ', '} {')}}}"


plan_argument = argument("plan", "PLAN")
dry_run = option("--dry-run", "Show the commands, and start nothing.")
time_limit = option("--timeout TIME", "End a run that takes longer, as failed: 90 (seconds), 30m, 12h.", "timeout")


def _grid_options(made: Callable[..., None]) -> Callable[..., None]:
    """The options that multiply mixtures into runs."""
    made = option("--corpus FOLDER", "What runs train on, a file or a folder a source; or toy: toy_a, ...")(made)
    made = option("--command CALL", f"How a run is started, with {PLACEHOLDERS}.", "template")(made)
    made = output("the plan (.jsonl)")(made)
    made = option("--batch-tokens SIZE|SIZE,...", "Tokens of a step, for all runs or each size.")(made)
    made = option("--learning-rate small|RATE,...", "Largest learning rate, for all runs or each size.")(made)
    made = option("--seeds 0,1,...", "Seeds; every run is repeated with each.", default="0")(made)
    made = option("-D SIZE,...", "Tokens.", required=True)(made)
    return option("-N SIZE,...", "Model sizes, with names for {model}: tiny=23712,mini=97600.", required=True)(made)


@command(
    "shapleymix plan mixtures --n 12 --sources en,de,fr,zh,ja -N 97600 -D 2M -o plan.csv",
    "shapleymix plan mixtures example/runs.csv --n 6 --caps en=0.4 --batches 2",
    "shapleymix plan mixtures --sources a,b,c --empirical uniform --empirical a=1 --random 4 -o mixtures.csv",
    options_from=lambda: (sm.problem, sm.design),
    only=("fit", "N", "D", "target_N", "target_D", "candidates", "region", "batches", "seed", *BOUNDS),
)
@argument("runs", "[LOG]...")
@option("--n COUNT", "How many mixtures to plan next, the most informative ones.")
@option("--sources en,de,...", "The sources, where no log and no --languages says them.")
@option("--empirical MIX|TABLE", "List mixtures: natural, uniform, en=1, en=0.5,de=0.5, or a table.", multiple=True)
@option("--random COUNT", "List this many random mixtures within the bounds.")
@output("the runs as a run log without losses (.csv, .parquet, ...), or the design (.json)")
def mixtures(
    out: Output, runs: list[str], n: int | None, sources: str | None, empirical: list[str], random: int | None,
    **keywords: Any,
) -> None:  # fmt: skip
    """Plan the mixtures of the next runs: those that tell most, given the runs so far, which may be none.

    Rows of LOG without any loss are runs that are planned already. With --empirical or --random the mixtures
    are listed instead of designed. `plan grid` makes runs of them.
    """
    names = names_of(sources)
    if n is not None and (empirical or random):
        raise UsageError("--n designs mixtures, --empirical and --random list them", hint="leave one of them out")
    if n is None:
        _list(out, names, empirical, random, keywords)
        return
    for name in {"candidates", "region"} & keywords.keys():
        keywords[name] = read_log(out, keywords[name], losses="optional")
    log = read_log(out, runs, losses="optional") if runs else None
    found = sm.design(n, log, sources=names, **keywords)
    columns = {"run": found.runs, "left": found.error[1:].tolist()}
    columns |= {f"p_{name}": found.p[:, place].tolist() for place, name in enumerate(found.sources)}
    title = f"{len(found)} runs; left: what is expected to be left of the error over the region once a run is trained"
    out.answer(found, lambda: [Heading(title), Table(columns)])


def _list(
    out: Output, names: list[str] | None, empirical: Sequence[str], random: int | None, keywords: Mapping[str, Any],
) -> None:  # fmt: skip
    """The mixtures of all kinds that are asked for, each once, as a run log without losses."""
    from shapleymix_sweep import mixtures as made

    from shapleymix.files import is_table_name
    from shapleymix.mixing.bounds import Bounds, polytope_of
    from shapleymix.mixing.infeasibility import require_feasible
    from shapleymix.planning.design import move_within

    languages = keywords.get("languages")
    if not (empirical or random):
        raise UsageError("nothing says what to plan", hint="give --n, --empirical or --random")
    sources = tuple(names or (() if languages is None else languages.sources))
    if not sources:
        raise UsageError("nothing says what the sources are", hint="give --sources or --languages")
    budget = {name: parse_budget(keywords[name], name) for name in ("N", "D") if name in keywords}
    tables = [made.read_mixtures(one) if is_table_name(one) else one for one in empirical]
    parts = [made.empirical(tables, sources, languages, budget.get("D"))] if tables else []
    if random:
        bounds = Bounds(**{name: keywords[name] for name in BOUNDS if name in keywords})
        within = partial(move_within, require_feasible(polytope_of(bounds, sources, budget.get("D", 1.0))))
        parts += [made.random_mixtures(random, sources, seed=keywords.get("seed", 0), moved=within)]
    pairs = [pair for part in parts for pair in zip(part.names, part.p, strict=True)]
    listed = made.Mixtures.once(sources, pairs, [notice for part in parts for notice in part.notices])
    out.note(listed.notices)
    document = {"kind": "mixture-list", "sources": listed.sources, "names": listed.names, "p": listed.p, **budget}
    out.save({**document, "columns": listed.columns(**budget)})
    columns = {name: listed.p[:, place].tolist() for place, name in enumerate(listed.sources)}
    out.emit(document, lambda: [Heading(f"{len(listed)} mixtures"), Table({"mixture": listed.names, **columns})])


@command(GAME, "shapleymix plan game --sources en,de,fr --corpus texts -N mini=97600 -D 2M --seeds 0,1 --json")
@option("--sources en,de,...", "The languages of the game.", required=True)
@option("--samples COUNT", "How many coalitions.  [default: all for up to 10 languages, else 12 per language]")
@option("--seed COUNT", "Seed of that draw.", default=0)
@_grid_options
def game(out: Output, sources: str, samples: int | None, seed: int, **how: Any) -> None:
    """Plan the runs that Shapley values need: the uniform mixture of every coalition of languages, or of a sample."""
    from shapleymix_sweep.mixtures import coalitions

    _write_plan(out, coalitions(names_of(sources) or [], samples, seed), **how)


@command(
    "shapleymix plan grid example/runs.csv --corpus texts -N tiny=23712,mini=97600 -D 500k,1M --seeds 0,1 -o grid.jsonl"
)
@argument("tables", "MIXTURES...")
@option("--available en=5T,...", "Unique tokens at hand for the target run, on which the runs draw.")
@option("--scale-down 1/16", "Plan runs with this factor of the -N and -D of the target and of each pool.", default="1")
@option("--cut-pools 1/16", "Cut the pools alone by this factor.", default="1")
@_grid_options
def grid(out: Output, tables: list[str], **how: Any) -> None:
    """Plan every mixture at every size, token count and seed.

    MIXTURES are tables with p_<source>, such as `plan mixtures -o` writes, or run logs, whose mixtures count once.
    """
    from shapleymix_sweep.mixtures import empirical, read_mixtures

    read = [read_mixtures(one) for one in tables]
    _write_plan(out, empirical(read, read[0].sources), **how)


def _write_plan(out: Output, mixtures: Mixtures, N: Any, D: Any, seeds: str, template: str | None, **how: Any) -> None:
    """Plan runs of mixtures, show them, and write them where a file is named.

    A folder that is here must have text of every source; one that is not may lie where the plan is launched.
    """
    from shapleymix_sweep import grids

    from shapleymix.fitting.evidence import line_of
    from shapleymix.tables.documents import languages_of

    if not all(one.strip().isdecimal() for one in seeds.split(",")):
        raise UsageError(f"--seeds: {seeds!r} is no list of whole numbers", hint="write it like 0,1,2")
    plan = grids.grid(mixtures, N, D, seeds=list(map(int, seeds.split(","))), command=template or grids.DEFAULT, **how)
    if line_of(*np.array([(run.N, run.D) for run in plan.runs]).T) is not None:
        raise UsageError("these sizes and token counts are too near to a line: let both differ by a factor of two")
    if not template and how["corpus"] != grids.TOY and os.path.isdir(how["corpus"]):
        languages_of(how["corpus"], plan.sources)
    out.note(plan.notices)
    if out.path:
        plan.write(out.path, force=out.force)
        out.note([f"wrote {out.path}"])
    runs = [run.document(index) for index, run in enumerate(plan.runs)]
    title = f"{len(plan):,} runs, {size(sum(run.D for run in plan.runs))} tokens in all"
    document = {"kind": "plan", "sources": plan.sources, "runs": runs, "notices": plan.notices}
    out.emit(document, lambda: [Heading(title), Table.of(runs, ("index", "id", "name", "N", "D", "seed"), words=3)])


def plan() -> click.Command:
    """The group of `plan`."""
    made = {"mixtures": mixtures(), "game": game(), "grid": grid()}
    return CommandGroup("plan", made, context_settings=SETTINGS, help="Plan what to train, before it is trained.")


@command(GAME, "shapleymix launch game.jsonl --jobs 2 --dry-run")
@plan_argument
@option("--jobs COUNT", "Runs at a time.  [default: one, or as many as the GPUs allow]")
@option("--gpus 0,1,...", "GPUs to share among the runs, such as 0,1,2.  [default: all, where there are several]")
@option("--gpus-per-run COUNT", "GPUs of one run.  [default: 1]")
@option("--retries COUNT", "How often a failed run is tried again.  [default: 1]")
@time_limit
@option("--slurm [time=60,...]", "Submit to SLURM, with these options of sbatch; repeatable.", multiple=True, **BARE)
@option("--engine NAME", f"Print a file that starts them on {', '.join(ENGINES)}.", type=click.Choice(ENGINES))
@option("--set image=I,...", "What that file needs; it says what is missing.", "filled", multiple=True)
@dry_run
def launch(
    out: Output, plan: Plan, jobs: int | None, gpus: str | None, gpus_per_run: int | None, retries: int | None,
    timeout: str | None, slurm: Sequence[str], engine: str | None, filled: Sequence[str], dry_run: bool,
) -> None:  # fmt: skip
    """Train the runs of PLAN that are not finished, so many at a time.

    Called again, it resumes: finished runs are skipped, and the others start again with the same command, which
    continues where its program can. Programs start in the current folder. Several launchers may work at one plan: no
    run is trained by two. Ctrl-C asks the programs to end and waits up to a minute for their checkpoints; a second
    Ctrl-C ends them at once. Exit code 1 if a run failed.
    """
    from shapleymix_sweep.plans import open_runs

    again = 1 if retries is None else parse_whole(retries, "--retries")
    if (filled and not engine) or (engine and (slurm or dry_run)):
        raise UsageError("--set fills the file of --engine, which goes with neither --slurm nor --dry-run")
    if dry_run:
        left = open_runs(plan)
        commands = [shlex.join(plan.runs[index].words(plan.place(index))) for index in left]
        document = {"kind": "launch", "runs": len(plan), "open": left, "commands": commands}
        out.emit(document, lambda: [*map(Whole, commands), f"{len(left)} of {len(plan)} runs are to be trained"])
    elif engine:
        limit = f"{_seconds(timeout):.0f}s" if timeout else None
        asked = {"jobs": jobs, "gpus": gpus_per_run, "retries": retries, "timeout": limit}
        text = manifest(plan, engine, parse_pairs(filled, lambda word, _: str(word), "--set"), **asked)
        out.emit({"kind": "manifest", "engine": engine, "text": text}, lambda: map(Whole, text.splitlines()))
    elif slurm:
        _submit(out, plan, jobs, slurm, again, _seconds(timeout))
    else:
        where = (jobs, gpus.split(",") if gpus else None, gpus_per_run or 1)
        _train(out, plan, where, again, _seconds(timeout))


def _seconds(timeout: str | None) -> float:
    text, units = timeout or "inf", {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
    value = double(text[:-1]) * units[text[-1]] if text[-1] in units else double(text)
    if not value > 0:
        raise UsageError(f"--timeout: {timeout!r} is no time", hint="write it like 90 (seconds), 30m or 12h")
    return value


def _submit(out: Output, plan: Plan, jobs: int | None, texts: Sequence[str], retries: int, limit: float) -> None:
    from shapleymix_sweep.plans import open_runs
    from shapleymix_sweep.slurm import Task, parse_options, submit

    asked, left = parse_options(texts), open_runs(plan)
    tasks = submit(plan, left, jobs=jobs, options=asked, task=Task(retries, limit)) if left else []
    if left and not {"time", "t"} & asked.keys():
        out.warn(["no time is given, and submitit asks for 5 minutes a run: give --slurm time=MINUTES"])
    arrays = ", ".join(dict.fromkeys(task.partition("_")[0] for task in tasks)) or "nothing is left to be done"
    document = {"kind": "launch", "runs": len(plan), "submitted": tasks}
    out.emit(document, lambda: [f"{len(tasks)} of {len(plan)} runs submitted: {arrays}"])


def _train(out: Output, plan: Plan, where: tuple[Any, ...], retries: int, limit: float) -> None:
    """Train on this machine, and say which runs failed and why."""
    from shapleymix_sweep.running import Pool, Programs

    lines = out.progress or (lambda stage, done, total: out.note([f"{stage} {done}/{total}"]))
    pool = Pool(plan, retries, lambda text: out.warn([text]), lines, Programs(limit=limit))
    pool.run(*where)
    each = [(index, plan.runs[index], reason) for index, reason in sorted(pool.failed.items())]
    failed = [{"index": index, "name": run.name, "id": run.id, "reason": reason} for index, run, reason in each]
    counts = {"runs": len(plan), "finished": len(pool.finished), "trained": pool.trained}
    title = f"{len(pool.finished)} of {len(plan):,} runs finished, {pool.trained} of them now"
    logs = [f"Each run has its log.txt below {plan.folder}."] if failed else []
    shown = [Table.of(failed, ("index", "name", "reason"), words=3)] if failed else []
    out.emit({"kind": "launch", **counts, "failed": failed}, lambda: [Heading(title), *shown, *logs])
    if failed:
        click.get_current_context().exit(DATA_SAY_NO)


@command(GAME, "shapleymix run game.jsonl --index 0 --dry-run")
@plan_argument
@option("--index COUNT", "Which run, from 0: $SLURM_ARRAY_TASK_ID.", required=True)
@option("--retries COUNT", "How often it is tried again, at once, where it fails.", default=0)
@time_limit
@dry_run
def run(out: Output, plan: Plan, index: int, retries: int, timeout: str | None, dry_run: bool) -> None:
    """Train one run of PLAN, unless it is finished: one call a run, for a scheduler of any kind.

    Exit code 1 if the run fails, 75 if another process trains it, so that a scheduler may call again later.
    """
    from shapleymix_sweep.plans import LOG
    from shapleymix_sweep.running import HeldError, Programs, attempt, stopping

    if not 0 <= index < len(plan):
        raise UsageError(f"--index {index}: the plan holds {len(plan)} runs", hint=f"0 to {len(plan) - 1}")
    one, place = plan.runs[index], plan.place(index)
    words = shlex.join(one.words(place))
    head = {"kind": "sweep-run", "index": index, "id": one.id, "name": one.name, "command": words}
    if dry_run:
        out.emit({**head, "status": "planned"}, lambda: [Whole(words)])
        return
    programs = Programs(limit=_seconds(timeout))
    with stopping(programs):
        how, reason = attempt(one, place, programs, retries=parse_whole(retries, "--retries"))
    if programs.stopped.is_set():
        raise KeyboardInterrupt
    if how == "held":
        raise HeldError(f"run {index} ({one.id}) is trained by another process", hint=reason or "call again later")
    if how == "failed":
        raise DataError(
            f"run {index} failed: {reason}", hint="mend it, and call again", location=Location(str(place / LOG))
        )
    said = "was finished before" if how == "finished" else "is finished"
    out.emit({**head, "status": "finished"}, lambda: [f"run {index} ({one.id}, {one.name}) {said}"])


@command(GAME, "shapleymix collect game.jsonl")
@argument("plans", "PLAN...")
@option("--strict", "Fail, and write nothing, unless all runs are finished.")
@output("the run log of the finished runs (.csv, .parquet, .jsonl)")
def collect(out: Output, plans: list[str], strict: bool) -> None:
    """Show how far each PLAN is; with -o, write one run log of their finished runs.

    Each run is there once, under its name and id, with the N and D that it realised.
    """
    from shapleymix_sweep.plans import collect as collected
    from shapleymix_sweep.plans import state_of

    states = [state_of(read_plan(out, path)) for path in plans]
    runs: list[dict[str, Any]] = []
    for state in states:
        for index, run in enumerate(state.plan.runs):
            reason = state.failures.get(index, "")
            status = "finished" if index in state.results else "failed" if reason else "open"
            head = {"plan": state.plan.file, "index": index, "id": run.id, "name": run.name}
            runs.append({**head, "status": status, "reason": reason})
    missing = {run["id"] for run in runs} - {run["id"] for run in runs if run["status"] == "finished"}
    if strict and missing:
        raise DataError(f"{len(missing)} runs are missing", hint="launch the plan again, or leave out --strict")
    if out.path is not None:
        out.save(collected(states))
        out.warn([f"{len(missing)} runs are missing"] if missing else [])
    out.warn(text for state in states for text in state.warnings)
    left = [run for run in runs if run["status"] != "finished"]
    head = [Heading(f"{one.plan.file}: {len(one.results)} of {len(one.plan):,} runs finished") for one in states]
    shown = [Table.of(left, ("plan", "index", "name", "status", "reason"), words=5)] if left else []
    out.emit({"kind": "sweep-state", "runs": runs}, lambda: [*head, *shown])
