"""Two processes under torchrun: the same data, the same losses, elastic restarts, errors with their rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from shapleymix_irds.train.distributed import agreed_round
from shapleymix_irds.train.saving.export import export
from torch._C._distributed_c10d import HashStore

from shapleymix.tables.run_reading import read_runs
from shapleymix.tables.transfer_reading import read_transfer
from tests.irds.training import STEPS, results, said, start, train, train_several, wait_for_step


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert train(out) == 0
    return out


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in two processes, of which one has a sequence more than the other."""
    out = tmp_path_factory.mktemp("pair") / "run"
    assert start(out, ranks=2).wait(timeout=200) == 0, said(out)
    return out


def same_run(left: Path, right: Path, tolerance: float = 1e-4) -> None:
    """The same data in the same order, and losses and values that differ by rounding only."""
    logs = [read_runs(out / "runs.csv") for out in (left, right)]
    assert np.array_equal(logs[0].p, logs[1].p)
    assert np.allclose(logs[0].loss, logs[1].loss, rtol=tolerance)
    trained = [json.loads((out / "summary.json").read_text())["languages"] for out in (left, right)]
    assert trained[0] == trained[1]
    sv = [read_transfer(out / "sv_raw.csv").sv for out in (left, right)]
    assert sv[0] is not None
    assert sv[1] is not None
    assert np.allclose(sv[0], sv[1], rtol=100 * tolerance, atol=tolerance * np.abs(sv[0]).max())


def test_two_ranks_with_uneven_shares_train_as_one(alone: Path, pair: Path) -> None:
    same_run(alone, pair)


@pytest.mark.parametrize("more", [(), ("--compile", "--recompute")])
def test_sharded_ranks_train_as_one(more: tuple[str, ...], alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert start(out, "--parallel", "fsdp", *more, ranks=2).wait(timeout=300) == 0, said(out)
    same_run(alone, out)


ALTOGETHER = {  # name: arguments, name of the run that it must equal
    "ddp": ((), ""),
    "rows of two": (("--parallel", "hsdp"), "ddp"),
    "rows of one": (("--parallel", "hsdp", "--shard-size", "1"), "ddp"),
    "accumulated": (("--parallel", "hsdp", "--shard-size", "2", "--micro-batch", "2"), "ddp"),
    "muon": (("--optimizer", "muon"), ""),
    "muon sharded": (("--optimizer", "muon", "--parallel", "hsdp"), "muon"),
    "sgd": (("--optimizer", "sgd"), ""),
    "sgd sharded": (("--optimizer", "sgd", "--parallel", "fsdp"), "sgd"),
    "adafactor": (("--optimizer", "adafactor"), ""),
    "masked": (("--mask-documents",), ""),
    "masked sharded": (("--mask-documents", "--parallel", "fsdp", "--recompute", "--micro-batch", "3"), "masked"),
}


PAIR = ("ddp", "rows of two")


def test_ranks_sharded_in_rows_train_as_copies_whatever_the_optimiser(tmp_path: Path) -> None:
    outs = {name: tmp_path / name.replace(" ", "-") for name in ALTOGETHER}
    train_several({outs[name]: arguments for name, (arguments, _) in ALTOGETHER.items()}, ranks=2)
    for name, (_, other) in ALTOGETHER.items():
        if other:  # Muon orthogonalises in bfloat16
            same_run(outs[other], outs[name], 2e-3 if "muon" in name else 1e-6)
    copies, sharded = (load_file(export(outs[name], tmp_path / f"{name} model") / "model.safetensors") for name in PAIR)
    for name, weight in copies.items():
        assert torch.allclose(weight, sharded[name], rtol=1e-4, atol=1e-6), name


def test_a_checkpoint_of_two_ranks_is_continued_by_one(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(out, "--parallel", "fsdp", ranks=2)
    wait_for_step(run, out, 5)
    run.terminate()
    assert run.wait(timeout=200) != 0
    assert "stopped by SIGTERM" in said(out)
    assert train(out, "--parallel", "fsdp") == 0
    same_run(alone, out)


def test_a_signal_to_one_rank_stops_both_at_the_same_step(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(out, ranks=2)
    wait_for_step(run, out, 4)
    os.kill(workers(run)[-1], signal.SIGUSR1)
    assert run.wait(timeout=200) != 0
    stops = {line.split("after step")[1] for line in said(out).splitlines() if "stopped by SIGUSR1" in line}
    assert len(stops) == 1
    assert start(out, ranks=2).wait(timeout=200) == 0
    assert results(out) == results(pair)


def test_an_elastic_restart_gives_the_same_bytes(pair: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = start(out, ranks=2, restarts=1)
    wait_for_step(run, out, 6)
    os.kill(workers(run)[-1], signal.SIGKILL)
    assert run.wait(timeout=200) == 0, said(out)
    assert results(out) == results(pair)
    lines = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines == list(range(1, STEPS + 1))


def test_errors_of_two_ranks_are_plain(tmp_path: Path) -> None:
    out = tmp_path / "uneven"
    assert start(out, "--micro-batch", "1", ranks=2).wait(timeout=200) != 0
    assert "--micro-batch 1 makes 4 passes, and some rank has fewer sequences" in said(out)
    out = tmp_path / "run"
    assert start(out, "--lr", "1e9", "--clip", "1e30", "--warmup", "0", "--no-irds", ranks=2).wait(timeout=200) != 0
    assert "is not finite at step" in said(out)
    assert 'irds_train.py", line' not in said(out)


def test_a_start_is_agreed_on_although_a_predecessor_left_its_keys() -> None:
    store = HashStore()
    store.set_timeout(timedelta(seconds=20))
    names = []
    for _ in range(3):
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(agreed_round, store, 0, 3)
            time.sleep(0.1)  # rank 0 reads what the predecessors left before the others greet
            rest = [pool.submit(agreed_round, store, rank, 3) for rank in (1, 2)]
            names.append({future.result(timeout=30) for future in (first, *rest)})
    assert [len(each) for each in names] == [1, 1, 1]
    assert len(set.union(*names)) == 3


def workers(run: subprocess.Popen[bytes]) -> list[int]:
    """Processes that torchrun started for the script, in the order of their ranks."""
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    ranks = {}
    for child in map(int, children):
        pairs = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
        if b"RANK" in found:
            ranks[int(found[b"RANK"])] = child
    return [ranks[rank] for rank in sorted(ranks)]
