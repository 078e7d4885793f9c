"""Bad input and bad calls: an exit code, a message with its place and a hint, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_tools import Run, runner
from shapleymix_cli.commands import shapley
from shapleymix_cli.forms import recorded_command
from shapleymix_cli.main import commands

HEADER = "run,N,D,p_en,p_de,loss_en,loss_de\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def fit_path(fixtures: Path, tmp_path: Path) -> Path:
    goal = tmp_path / "fit.json"
    log = fixtures / "multilingual5_runs.csv"
    call = ["fit", str(log), "--law", "chinchilla", "--bootstrap", "3", "--folds", "0", "-o", str(goal), "-q"]
    assert commands.main(call, standalone_mode=False) == 0
    return goal


BAD_LOGS = {
    "empty": ("", "log.csv: is empty", None),
    "header alone": (HEADER, "log.csv: holds no rows", None),
    "semicolons": (HEADER.replace(",", ";") + "a;1;1;1;0;2\n", "has 6 cells, the header has 7", 2),
    "ratios": (HEADER + "a,1,1,0.5,0.6,2,2\n", "p_en + p_de = 1.1, expected 1", 2),
    "nan": (HEADER + "a,1,1,0.5,0.5,nan,2\n", "loss_en", 2),
    "text": (HEADER + "a,1,1,0.5,0.5,2,2\nb,1,1,x,0.5,2,2\n", "p_en", 3),
    "ragged": (HEADER + "a,1,1,0.5,0.5,2\n", "has 6 cells", 2),
    "negative": (HEADER + "a,1,-1,0.5,0.5,2,2\n", "D", 2),
    "twice": (HEADER + "a,1,1,0.5,0.5,2,2\n" * 2, "repeats", 3),
    "header twice": (HEADER.replace("p_de", "p_en"), "occurs twice", 1),
}


@pytest.mark.parametrize("name", BAD_LOGS)
@pytest.mark.parametrize("command", ["fit {} --law chinchilla", "shapley {}", "compare {} --laws chinchilla"])
def test_bad_logs_are_told_with_their_place(run: Run, tmp_path: Path, name: str, command: str) -> None:
    text, message, line = BAD_LOGS[name]
    log = tmp_path / "log.csv"
    log.write_text(text)
    plain = run(command.format(log))
    assert (plain.code, plain.out) == (1, "")
    assert message in plain.err
    found = run(command.format(log) + " --json")
    error = found.document["error"]
    assert found.code == 1
    assert error["code"] == "bad_data"
    assert error["hint"] is None or f"hint: {error['hint']}" in plain.err
    assert error["location"]["file"] == str(log)
    assert error["location"]["line"] == line


def test_every_fault_is_in_the_json(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(HEADER + "".join(f"r{row},1,1,0.5,0.6,2,2\n" for row in range(30)))
    error = run("fit", log, "--json").document["error"]
    assert error["fault_count"] == len(error["faults"]) == 30
    assert error["faults"][29]["location"]["line"] == 31
    assert "... and 10 more" in run("fit", log).err


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        ("fitt x.csv", "there is no command 'fitt'", "did you mean 'fit'?"),
        ("fit", "Missing argument", "shapleymix fit --help"),
        ("fit {log} --lw x", "No such option", "shapleymix fit --help"),
        ("fit {log} --law shapely", "there is no law 'shapely'", "did you mean 'shapley'?"),
        ("fit {log} --law shapley", "needs a transfer matrix", "give one (--transfer)"),
        ("fit {log} --law family", "needs the language families", "(--languages)"),
        ("fit {log} --bootstrap -1", "--bootstrap: '-1'", None),
        ("fit {log} --delta nan", "--delta: 'nan'", None),
        ("fit {log} --delta 1 --least-squares", "exclude each other", None),
        ("fit {log} -o fit.csv", "-o writes a fit as .json only", ".json"),
        ("fit {log} -o nowhere/fit.json", "no such folder", None),
        ("fit {log} -o -", "-o takes the name of a file", "--json"),
        ("fit {log} -o {log} --force", "is an input as well", "another name"),
        ("fit - -", "standard input can be read only once", "once"),
        ("shapley {log} -N abc", "-N: 'abc' is not a size", "243M"),
        ("shapley {log} -N 0", "-N: '0' is not a size above zero", "243M"),
        ("predict {fit}", "a table of points or --mixture", "--help"),
        ("predict {fit} {log} -N 1M", "the table has its own N and D", "-N"),
        ("predict {fit} --mixture en=1 -D 1M", "missing option -N", "covers N from"),
        ("predict {fit} --mixture en=0.5,de=0.4 -N 1M -D 1M", "the mixture sums to 0.9", "en=0.5556"),
        ("predict {fit} --mixture en=0.5,dee=0.5 -N 1M -D 1M", "'dee' is not one of", "did you mean 'de'?"),
        ("predict {fit} --mixture en=1 -N 1M -D 1M --level 1", "--level: '1'", None),
        ("predict {log} {log}", "is a table, not a fit", "fit.json"),
        ("compare {log} --laws none.py:Law", "there is no such file", "my_law.py"),
        ("compare {log} --folds 3 --split", "exclude each other", None),
        ("compare {log} --split", "no split column", "fit and held-out"),
        ("transfer {log} --drops en=x", "no list of loss drops", "en=2.9"),
        ("laws zzzzzz", "there is no law 'zzzzzz'", "known:"),
    ],
)
def test_bad_calls_exit_with_2(
    run: Run, fixtures: Path, fit_path: Path, call: str, message: str, hint: str | None
) -> None:
    words = call.format(log=fixtures / "multilingual5_runs.csv", fit=fit_path)
    if words.startswith("transfer"):
        words = words.replace("runs.csv", "irds_raw.csv")
    plain = run(words)
    assert (plain.code, plain.out) == (2, "")
    assert message in plain.err
    assert hint is None or hint in plain.err.split("hint: ")[1]
    found = run(words + " --json")
    assert found.code == 2
    assert found.document["error"]["code"] == "usage"
    assert found.document["error"]["message"] in plain.err
    assert found.err == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:500], "is not valid JSON"),
        (lambda text: "[]", "is not a shapleymix result"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 99'), "schema version 99"),
        (lambda text: text.replace('"kind": "fit"', '"kind": "mixture"'), "expected a fit"),
        (lambda text: text.replace('"sources"', '"source"'), "lacks the field 'sources'"),
    ],
)
def test_broken_fits_are_told(run: Run, fit_path: Path, change, message: str) -> None:
    fit_path.write_text(change(fit_path.read_text()))
    outcome = run("predict", fit_path, "--mixture", "en=1", "-N", "1M", "-D", "1M", "--json")
    error = outcome.document["error"]
    assert (outcome.code, error["code"]) == (1, "bad_file")
    assert message in error["message"]
    assert error["location"]["file"] == str(fit_path)


def test_missing_languages_are_named(run: Run, fixtures: Path, fit_path: Path, tmp_path: Path) -> None:
    sv = tmp_path / "sv.csv"
    assert run("shapley", fixtures / "multilingual5_coalitions.csv", "-o", sv).code == 0
    sv.write_text(sv.read_text().replace("\nja,", "\njp,"))
    outcome = run("fit", fixtures / "multilingual5_runs.csv", "--law", "shapley", "--transfer", sv)
    assert outcome.code == 1
    assert "'ja' is missing" in outcome.err
    assert "did you mean 'jp'?" in outcome.err
    log = tmp_path / "log.csv"
    log.write_text((fixtures / "multilingual5_runs.csv").read_text().replace("p_ja", "p_jp"))
    outcome = run("evaluate", fit_path, log, "--json")
    assert outcome.code == 1
    assert "'ja'" in outcome.document["error"]["faults"][0]["message"]


def test_a_wide_matrix_is_never_guessed_at(run: Run, fixtures: Path, tmp_path: Path) -> None:
    sv, log = tmp_path / "sv.csv", fixtures / "multilingual5_runs.csv"
    names = ("en", "de", "fr", "zh", "ja")
    rows = [f"{name}," + ",".join("1" if name == other else "0.2" for other in names) for name in names]
    sv.write_text("\n".join(["source," + ",".join(names), *rows]) + "\n")
    for call in (("transfer", sv), ("fit", log, "--transfer", sv), ("compare", log, "--transfer", sv)):
        outcome = run(*call)
        assert (outcome.code, outcome.out) == (1, "")
        assert "--kind raw" in outcome.err
    assert run("transfer", sv, "--kind", "normalized", "--json").document["nsv"]["en"]["de"] == 0.2
    fit = ("fit", log, "--law", "shapley", "--transfer", sv, "--bootstrap", 0, "--folds", 0, "--json")
    assert run(*fit, "--kind", "normalized").document["fitted"] != run(*fit, "--kind", "raw").document["fitted"]


def test_too_few_runs_are_refused(run: Run, fixtures: Path, tmp_path: Path) -> None:
    lines = (fixtures / "multilingual5_runs.csv").read_text().splitlines()[:4]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    outcome = run("fit", tmp_path / "log.csv", "--law", "learned-base", "--json")
    assert (outcome.code, outcome.document["error"]["code"]) == (1, "cannot_fit")


def test_missing_coalitions_are_named(run: Run, fixtures: Path, tmp_path: Path) -> None:
    lines = (fixtures / "multilingual5_coalitions.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join(line for line in lines if not line.startswith("de+fr,")) + "\n")
    outcome = run("shapley", tmp_path / "log.csv")
    assert outcome.code == 1
    assert "1 of 31 coalitions is missing" in outcome.err
    assert "de+fr" in outcome.err
    assert "--sampled" in outcome.err


def test_files_are_overwritten_by_force_only(run: Run, fixtures: Path, tmp_path: Path) -> None:
    goal = tmp_path / "sv.csv"
    goal.write_text("mine")
    call = ("shapley", fixtures / "multilingual5_coalitions.csv", "-o", goal)
    assert run(*call).code == 2
    assert goal.read_text() == "mine"
    assert run(*call, "--force").code == 0
    assert goal.read_text().startswith("source,target")


def test_force_is_not_promised_where_it_is_refused(run: Run, fixtures: Path, tmp_path: Path) -> None:
    goal, beside = tmp_path / "q.csv", tmp_path / "q.csv.json"
    call = ("shapley", fixtures / "multilingual5_coalitions.csv", "-o", goal)
    beside.write_text('{"mine": 1}')
    for words in (call, (*call, "--force")):
        refused = run(*words)
        assert refused.code == 2
        assert "holds something else" in refused.err
        assert "force" not in refused.err.rpartition("hint:")[2]
        assert not goal.exists()
    beside.unlink()
    assert run(*call).code == 0
    goal.unlink()
    assert "(--force)" in run(*call).err  # the provenance of an earlier table is overwritten by force
    assert run(*call, "--force").code == 0


def test_a_fault_in_a_users_law_is_theirs(run: Run, fixtures: Path, tmp_path: Path) -> None:
    law = tmp_path / "mine.py"
    law.write_text("class Law:\n    def predict(self, p, N, D):\n        return p[10**6]\n")
    outcome = run("compare", fixtures / "multilingual5_runs.csv", "--laws", f"{law}:Law", "--json")
    assert outcome.code == 2
    assert outcome.document["error"]["location"] == {"file": str(law), "line": 3, "column": None}
    among = run(
        "compare", fixtures / "multilingual5_runs.csv", "--laws", f"chinchilla,{law}:Law", "--folds", 2, "--json"
    )
    assert among.code == 0
    assert f"raised IndexError at {law}:3: " in among.document["laws"][1]["error"]
    law.write_text("import a_module_that_is_not_there\n")
    outcome = run("compare", fixtures / "multilingual5_runs.csv", "--laws", f"{law}:Law")
    assert outcome.code == 2
    assert f"{law}:1: cannot be imported" in outcome.err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (RuntimeError("ouch"), 1)])
def test_interrupts_and_our_own_faults(
    run: Run, fixtures: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(shapley.command, "callback", fail)
    outcome = run("shapley", fixtures / "multilingual5_coalitions.csv")
    assert (outcome.code, outcome.out) == (code, "")
    assert ("interrupted" if code == 130 else "bug in shapleymix") in outcome.err
    if code == 1:
        assert run("shapley x.csv --json").document["error"]["code"] == "internal"


def test_the_recorded_call_leaves_out_what_changes_nothing() -> None:
    words = ["fit", "a b.csv", "-o", "x.json", "--seed", "1", "--force", "--output=y", "-oz", "--json", "--threads=4"]
    assert recorded_command(words) == "shapleymix fit 'a b.csv' --seed 1"
