"""What a run says: errors once and first under torchrun, and nothing that ends it where nobody listens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from shapleymix_irds.train import telling

from tests.irds.training import QUICK, SCRIPT, environment, results, said, start, train


def test_two_ranks_say_a_common_error_once_and_torchrun_repeats_it(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert start(out, "--batch", "0", ranks=2).wait(timeout=200) == 1  # torchrun's own exit code
    lines = said(out).splitlines()
    assert lines.count("error: --batch 0 is too small") == 1
    assert "[rank 1]" not in said(out)
    told = lines.index("error: --batch 0 is too small")
    assert not any("Traceback" in line for line in lines[:told])
    assert "  traceback : error: --batch 0 is too small" in lines


def test_ranks_in_a_group_say_a_common_error_once(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert start(out, "--vocab", "100", ranks=2).wait(timeout=200) == 1
    assert said(out).splitlines().count("error: --vocab 100 is below the tokenizer's 256") == 1
    assert "[rank 1]" not in said(out)


def test_a_rank_says_its_own_error_after_the_first_had_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    monkeypatch.setattr(telling.time, "sleep", waited.append)
    assert train(tmp_path / "run", "--batch", "0") == 2
    assert waited == [telling.PATIENCE]
    assert capfd.readouterr().err == "[rank 1] error: --batch 0 is too small\n"
    report = json.loads((tmp_path / "error.json").read_text())["message"]
    assert report["extraInfo"]["py_callstack"] == "error: --batch 0 is too small"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Results of a run that was listened to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(out) == 0
    return results(out)


@pytest.mark.parametrize("closing", ["2>&-", "2>&- >&-"])
def test_a_closed_standard_error_does_not_end_a_run(closing: str, whole: dict[str, bytes], tmp_path: Path) -> None:
    shell = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, str(SCRIPT), *QUICK, "--out", str(tmp_path)]
    assert subprocess.run(shell, env=environment(), timeout=200, check=False).returncode == 0
    assert results(tmp_path) == whole


def test_a_reader_that_goes_away_does_not_end_a_run(whole: dict[str, bytes], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, str(SCRIPT), *QUICK, "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment(), stderr=writing, timeout=200, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert results(tmp_path) == whole


def test_the_first_line_tells_what_is_trained_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--tokens", "2.7k", "--no-irds") == 0
    assert "D = 2,688 (12 steps of 224 tokens; 2.7k asked for)" in capfd.readouterr().err.splitlines()[0]


def test_a_rank_of_several_ends_with_its_code_whatever_breaks_as_python_goes_away() -> None:
    aborting = "import atexit, os; atexit.register(os.abort); print('said')"
    leaving = f"{aborting}\nfrom shapleymix_irds.train.leaving import leave\nleave(3)"
    found = {**environment(), "PYTHONPATH": os.pathsep.join(map(str, (SCRIPT.parent, SCRIPT.parents[1])))}
    codes = {}
    for world in ("1", "2"):
        command = [sys.executable, "-c", leaving]
        done = subprocess.run(command, env={**found, "WORLD_SIZE": world}, capture_output=True, text=True, check=False)
        assert done.stdout == "said\n"
        codes[world] = done.returncode
    assert codes == {"1": -6, "2": 3}
