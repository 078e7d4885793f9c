"""`--irds-precondition`: values of what AdamW does with a gradient, on one process and on sharded ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.transfer import TransferMatrix
from shapleymix.tables.transfer_reading import read_transfer
from tests.irds.training import results, said, start, train

FLAG = "--irds-precondition"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert train(out, FLAG) == 0
    return out


def raw(out: Path) -> TransferMatrix:
    return read_transfer(out / "sv_raw.csv")


def test_values_come_to_the_scale_of_the_loss_drop(alone: Path, tmp_path: Path) -> None:
    assert train(tmp_path / "plain") == 0
    found, plain = raw(alone), raw(tmp_path / "plain")
    assert found.provenance["mode"] == "preconditioned by AdamW's second moment"
    assert found.provenance["engine"] == "micro"
    ratios, without = (np.array(list(matrix.provenance["efficiency"].values())) for matrix in (found, plain))
    assert (np.abs(np.log(ratios)) < np.abs(np.log(without))).all()
    assert np.array_equal(read_runs(alone / "runs.csv").p, read_runs(tmp_path / "plain" / "runs.csv").p)
    assert np.allclose(read_runs(alone / "runs.csv").loss, read_runs(tmp_path / "plain" / "runs.csv").loss, rtol=1e-4)


def test_a_continued_run_has_the_moments_it_had(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(out, FLAG, "--checkpoint-every", "1")
    while run.poll() is None and not (out / "checkpoints" / "step-000000007").exists():
        pass
    run.kill()
    run.wait()
    assert train(out, FLAG, "--checkpoint-every", "1") == 0
    assert results(out) == results(alone)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_ranks_give_what_one_process_gives(parallel: str, alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert start(out, FLAG, "--parallel", parallel, ranks=2).wait(timeout=200) == 0, said(out)
    one, two = raw(alone).sv, raw(out).sv
    assert one is not None
    assert two is not None
    assert np.allclose(one, two, rtol=1e-2, atol=1e-3 * np.abs(one).max())
    settings = json.loads((out / "summary.json").read_text())
    assert settings["ranks"] == 2
