"""Tables as other tools really leave them: crashed runs, percent signs, counts beside ratios, files called log.txt."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from cli_tools import Run, runner

import shapleymix as sm
from shapleymix.errors import DataError
from shapleymix.tables.cells import Cells
from shapleymix.tables.dict_cells import unfolded
from shapleymix.tables.sources.tensorboard import _names


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


LOSSES, RATIOS = [[3.5, 3.25], [3.75, 2.5]], [[0.5, 0.5], [0.25, 0.75]]
MLFLOW = """run_id,experiment_id,status,metrics.loss_en,metrics.loss_de,params.n,params.w/en,params.w/de,params.tokens
c0ffee,1,FAILED,,,,,,
a,1,FINISHED,3.5,3.25,97600,0.5,0.5,2000000
b,1,FINISHED,3.75,2.5,97600,0.25,0.75,2000000
"""
WANDB = """"Name","State","n_params","tokens","mix.en","mix.de","eval/loss/en","eval/loss/de"
"a","finished","97600","2000000","0.5","0.5","3.5","3.25"
"b","finished","97600","2000000","0.25","0.75","3.75","2.5"
"c","crashed","97600","","0.25","0.75","","NaN"
"""


def read_as_printed(run: Run, path: Path) -> sm.RunLog:
    """The log that the command gives which `import --show` prints."""
    command = run("import", path, "--show").out.strip().splitlines()[-1]
    goal = path.parent / "as_printed.csv"
    done = run(command.removeprefix("shapleymix ").replace("-o runs.csv", f"-o '{goal}' --force"))
    assert done.code == 0, f"{command}\n{done.err}"
    return sm.read_runs(goal)


def is_the_log(log: sm.RunLog) -> bool:
    found = log.aligned(("en", "de"), ("en", "de"))
    return found.loss.tolist() == LOSSES and found.p.tolist() == RATIOS and set(found.D) == {2e6}


@pytest.mark.parametrize("text", [MLFLOW, WANDB], ids=["MLflow", "W&B"])
def test_a_crashed_run_is_left_out_with_a_note(run: Run, text: str, tmp_path: Path) -> None:
    """One crashed run gave "write 0 for a source not in use", or "D is empty"."""
    path = tmp_path / "runs of theirs.csv"
    path.write_text(text)
    assert is_the_log(read_as_printed(run, path))
    shown = run("import", path, "--show").out.strip().splitlines()[-1]
    assert "left out 1 row without a loss" in run(shown.removeprefix("shapleymix ").partition(" -o ")[0]).err


def test_a_log_of_ours_stays_strict() -> None:
    """Rows without losses are planned runs there; and points to be predicted have none."""
    table = {"run": ["a", "b"], "N": [97600, ""], "D": [2e6, 2e6], "p_en": [1, 1], "loss_en": [3.5, ""]}
    with pytest.raises(DataError, match="N is empty"):
        sm.read_runs(table)
    named = {**table, "N": [97600, 97600]}
    assert len(sm.read_runs(named, map={"run": "run"}, losses="optional")) == 2
    assert len(sm.read_runs(named, map={"run": "run"})) == 1


@pytest.mark.parametrize("ratios", ["w_{}", "mixture/{}", "{}_ratio", "weight_{}", "p/{}", "config.data.{}.weight"])
@pytest.mark.parametrize("whole", [1, 100, 7])
def test_ratios_of_other_names_beside_our_losses(run: Run, ratios: str, whole: int, tmp_path: Path) -> None:
    """They were ignored with "did you mean 'p_en'?", and the law had no ratios."""
    path = tmp_path / "runs.csv"
    rows = [
        f"{name},97600,2M,{p[0] * whole},{p[1] * whole},{loss[0]},{loss[1]}"
        for name, p, loss in zip("ab", RATIOS, LOSSES, strict=True)
    ]
    path.write_text("\n".join([f"run,N,D,{ratios.format('en')},{ratios.format('de')},loss_en,loss_de", *rows]))
    told = run("fit", path, "--law", "learned-base", "--json")
    assert told.code == 1
    assert "it has no p_<source>" in told.document["error"]["message"]
    assert ratios.format("{lang}") in told.document["error"]["hint"]
    assert is_the_log(read_as_printed(run, path))


def test_columns_that_are_no_ratios_stay_ignored() -> None:
    """A log without ratios is one, for laws without a mixture."""
    log = sm.read_runs({"N": [97600], "D": [2e6], "w_decay": [0.1], "w_clip": [1.0], "loss_en": [3], "loss_de": [3]})
    assert log.sources == ()
    both = {"N": [97600], "D": [2e6], "p_en": [1], "loss_en": [3], "weight_en": [1]}
    assert not [text for text in sm.read_runs(both).notices if "did you mean" in text]


@pytest.mark.parametrize(("cells", "how"), [(("62%", "38 %"), {}), (("62%", "38"), {"ratio_unit": "percent"})])
def test_percent_signs(cells: tuple[str, str], how: dict[str, str]) -> None:
    table = {"N": ["97600"], "D": ["2e6"], "p_en": [cells[0]], "p_de": [cells[1]], "loss_en": ["3"]}
    assert sm.read_runs(table, **how).p.tolist() == [[0.62, 0.38]]
    rates = sm.read_runs({**table, "loss_en": ["5.5%"]}, unit="percent", **how)
    assert rates.loss.item() == pytest.approx(0.055)


def test_percent_signs_with_commas_and_without_numbers(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("N;D;p_en;p_de;loss_en\n97600;2e6;62,5%;37,5%;3,25\n")
    assert sm.read_runs(path, decimal=",").p.tolist() == [[0.625, 0.375]]
    with pytest.raises(DataError, match="p_en is not a number: 'x%'"):
        sm.read_runs({"N": [97600], "D": [2e6], "p_en": ["x%"], "loss_en": [3]})


def table_of(losses: str, ratios: str, more: str = "", whole: float = 1, first: str = "run") -> str:
    """The log as a CSV under other names; `more` is a column with the number 1."""
    head = [
        first,
        "N",
        "D",
        *(form.format(name) for form in (ratios, losses) for name in ("en", "de")),
        *([more] if more else []),
    ]
    rows = [
        [name, "97600", "2M", *(str(one * whole) for one in p), *map(str, loss), *(["1"] if more else [])]
        for name, p, loss in zip("ab", RATIOS, LOSSES, strict=True)
    ]
    return "\n".join(map(",".join, [head, *rows]))


LOSS_NAMES = ("metrics.val/{}/loss", "val/{}/loss", "loss[{}]", "eval/loss_{}", "{}_val_loss", "loss_{}")
RATIO_NAMES = ("params.data.mix.{}", "w_{}", "{}", "p_{}", "data/{}/weight")
BESIDE = ("", "train/loss", "metrics.train/loss", "val/mean/loss", "val/loss")


@pytest.mark.parametrize(("losses", "ratios", "more"), list(product(LOSS_NAMES, RATIO_NAMES, BESIDE))[::7])
def test_the_printed_command_reads_the_log(run: Run, losses: str, ratios: str, more: str, tmp_path: Path) -> None:
    """`metrics.val/en/loss` beside `metrics.train/loss` was read with the targets metrics.val/en and metrics.train."""
    path = tmp_path / "runs.csv"
    path.write_text(table_of(losses, ratios, more))
    assert is_the_log(read_as_printed(run, path))


TIDY = [
    (run_, lang, p, loss)
    for run_, ps, ls in zip("ab", RATIOS, LOSSES, strict=True)
    for lang, p, loss in zip(("en", "de"), ps, ls, strict=True)
]


def test_tidy_tables_of_other_names(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "tidy.csv"
    path.write_text(
        "model,params,tokens,lang,weight,val_loss,train_loss\n"
        + "\n".join(f"{r},97600,2M,{name},{p},{x},1" for r, name, p, x in TIDY)
    )
    assert is_the_log(read_as_printed(run, path))
    path.write_text(
        "model,params,tokens,lang,weight\n" + "\n".join(f"{r},97600,2M,{name},{p}" for r, name, p, x in TIDY)
    )
    assert "'loss=...' --long" in run("import", path, "--show").out


def test_a_melted_log(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "melt.csv"
    cells = [f"{r},97600,2M,{role}_{name},{one}" for r, name, p, x in TIDY for role, one in (("p", p), ("loss", x))]
    path.write_text("run,N,D,variable,value\n" + "\n".join(cells))
    assert "..." not in run("import", path, "--show").out.strip().splitlines()[-1]
    assert is_the_log(read_as_printed(run, path))


def test_the_two_tables_of_olmix(run: Run, tmp_path: Path) -> None:
    """The printed command had the languages name and index."""
    (tmp_path / "ratios.csv").write_text("run,name,index,en,de\na,x,0,.5,.5\nb,y,1,.25,.75\n")
    (tmp_path / "metrics.csv").write_text(
        "run,name,index,eval/en/CE loss,eval/de/CE loss\na,x,0,3.5,3.25\nb,y,1,3.75,2.5\n"
    )
    given = ("--map", "N=97600", "--map", "D=2M")
    shown = run("import", tmp_path / "metrics.csv", "--join", tmp_path / "ratios.csv", *given, "--show").out
    command = (
        shown.strip().splitlines()[-1].removeprefix("shapleymix ").replace("-o runs.csv", f"-o {tmp_path}/out.csv")
    )
    assert run(command).code == 0
    assert is_the_log(sm.read_runs(tmp_path / "out.csv"))
    shown = run("import", tmp_path, *given, "--show", "--json").document
    assert [one["examples"] for one in shown["columns"][3:]] == [["en", "de"], ["eval/en/CE loss", "eval/de/CE loss"]]
    assert "name" in shown["ignored"]


def test_languages_without_a_counterpart_are_told() -> None:
    """A pattern that takes the wrong part of a name makes targets that no source is called."""
    table = {"N": [97600], "D": [2e6], "w_en": [0.5], "w_de": [0.5], "val/x.en/loss": [3], "val/x.de/loss": [3]}
    told = sm.read_runs(table, map={"p": "w_{lang}", "loss": "val/{lang}/loss"}).notices
    assert [text for text in told if "no target is called as a source is" in text]
    ours = {"N": [97600], "D": [2e6], "p_en": [1], "loss_task": [3]}
    assert not [text for text in sm.read_runs(ours).notices if "no target" in text]


@pytest.mark.parametrize("name", ["tokens_seen", "tokens_total"])
def test_a_count_of_tokens_is_no_source(name: str) -> None:
    """It gave "has both p_ and tokens_ columns"."""
    table = {"N": [97600], "p_en": [1], "loss_en": [3], name: [2e6]}
    assert any(name in text for text in sm.read_runs({**table, "D": [2e6]}).notices)
    with pytest.raises(DataError, match=f"D={name}"):
        sm.read_runs(table)
    assert sm.read_runs(table, map={"D": name}).D.tolist() == [2e6]


@pytest.mark.parametrize("text", [WANDB, table_of("loss_{}", "w_{}")], ids=["W&B", "w_en"])
def test_an_export_of_another_table_says_the_next_step(run: Run, text: str, tmp_path: Path) -> None:
    """It had Python's spelling of a switch that `export` lacks."""
    path = tmp_path / "runs.csv"
    path.write_text(text)
    told = run("export", path, "--run", "a", "--format", "hf", "--json").document["error"]
    command = told["hint"].removeprefix("import it first, and export what that writes: shapleymix ")
    assert run(command.replace("-o runs.csv", f"-o {tmp_path}/out.csv")).code == 0
    assert is_the_log(sm.read_runs(tmp_path / "out.csv"))


MEGATRON = """    global_batch_size ............................... 8
    seq_length ...................................... 128
 validation loss at iteration 100 | lm loss value: 3.5 | lm loss PPL: 33.1 |
"""


@pytest.mark.parametrize("name", ["log.txt", "stdout.log", "train.log", "train_0.log", "stdout"])
def test_a_log_that_is_called_as_any_other_has_the_name_of_its_folder(name: str, tmp_path: Path) -> None:
    """Its id was `log`, which no table of designs has."""
    for run_ in ("en-1", "de-1"):
        (tmp_path / run_).mkdir()
        (tmp_path / run_ / name).write_text(MEGATRON)
    (tmp_path / "design.csv").write_text("run,N,p_en,p_de\nen-1,97600,1,0\nde-1,97600,0,1\n")
    files = [tmp_path / run_ / name for run_ in ("en-1", "de-1")]
    assert sm.read_runs(files, join=tmp_path / "design.csv").runs == ("en-1", "de-1")
    assert sm.read_runs(files[0], join=tmp_path / "design.csv").runs == ("en-1",)
    own = files[0].rename(tmp_path / "train_de-1.log")
    assert sm.read_runs(own, map=["N=1M", "p.en=1"]).runs == ("train_de-1",)


def test_versions_of_lightning_are_no_names_of_runs(tmp_path: Path) -> None:
    one = [tmp_path / "en-1" / "version_0", tmp_path / "de-1" / "version_3"]
    assert _names(tmp_path, one) == ["en-1", "de-1"]
    assert _names(tmp_path, [*one, tmp_path / "en-1" / "version_1"]) == ["en-1/version_0", "de-1", "en-1/version_1"]
    assert _names(one[0], one[:1]) == ["en-1"]
    assert _names(tmp_path, [tmp_path, tmp_path / "version_0"]) == [tmp_path.name, "version_0"]


def frame_of_wandb(last: str = "3.25") -> str:
    """What the example of W&B's documentation writes: `pd.DataFrame({...}).to_csv("project.csv")`."""
    rows = ["summary,config,name"]
    for name, p, loss in zip("ab", RATIOS, ([*LOSSES[0][:1], last], LOSSES[1]), strict=True):
        summary = (
            f"{{'eval/loss/en': {loss[0]}, 'eval/loss/de': {loss[1]}, 'tokens': 2000000, '_wandb': {{'runtime': 5}}}}"
        )
        config = f"{{'n_params': 97600, 'mix': {{'en': {p[0]}, 'de': {p[1]}}}, 'tags': ['x'], 'warm': True}}"
        rows.append(f'"{summary}","{config}",{name}')
    return "\n".join(f"{place},{row}" if place >= 0 else f",{row}" for place, row in enumerate(rows, start=-1))


def test_a_frame_with_mappings_in_its_cells(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "project.csv"
    path.write_text(frame_of_wandb())
    assert is_the_log(read_as_printed(run, path))
    path.write_text(frame_of_wandb("nan"))
    assert str(read_as_printed(run, path).loss.tolist()) == "[[3.5, nan], [3.75, 2.5]]"


@pytest.mark.parametrize(
    "cell", ["{__import__('os').system('touch x')}", "{1: open('x')}", "{" * 9999 + "}" * 9999, "{1, 2}", "{"]
)
def test_a_cell_that_is_no_mapping_stays_a_text(cell: str) -> None:
    cells = Cells({"config": [cell]}, [2])
    assert unfolded(cells, "runs.csv") == cells


@pytest.mark.parametrize("columns", [{"c": ["{'a': 1}"], "c.a": ["7"]}, {"c.a": ["7"], "c": ["{'a': 1}"]}])
def test_a_key_that_is_a_column_already_is_refused(columns: dict[str, list[object]]) -> None:
    with pytest.raises(sm.DataError, match=r"runs\.csv:2: 'c\.a' occurs twice"):
        unfolded(Cells(columns, [2]), "runs.csv")
    with pytest.raises(sm.DataError, match=r"'a\.b' occurs twice"):
        unfolded(Cells({"c": ["{'a': {'b': 1}, 'a.b': 2}"]}, [2]), "runs.csv")


@pytest.mark.parametrize("cell", ["1e9999999%", "1e900000%", "-1e-9999999%", "nan%"])
def test_a_percentage_that_is_no_ratio_is_refused_at_its_place(tmp_path: Path, cell: str) -> None:
    """Fault: a number that overflowed was an internal fault."""
    path = tmp_path / "runs.csv"
    path.write_text(f"run,N,D,p_en,p_de,loss_en,loss_de\na,1e8,1e10,{cell},50%,2,2\n")
    with pytest.raises(sm.DataError, match=r"runs\.csv:2 \[p_en\]"):
        sm.read_runs(path)
