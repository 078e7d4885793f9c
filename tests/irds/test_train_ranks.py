"""Two ranks under torchrun: the run of one, whole or sharded; killed, stopped, restarted, and what they refuse."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file  # noqa: E402
from shapleymix_irds.train.distributed import agreed_round  # noqa: E402
from torch._C._distributed_c10d import HashStore  # noqa: E402

from shapleymix.tables.run_reading import read_runs  # noqa: E402
from shapleymix.tables.transfer import read_transfer  # noqa: E402
from tests.irds.training import STEPS, launched, said, steps, train, tree  # noqa: E402


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    assert train(out) == 0
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of two processes, of which one has a sequence more than the other; the last of them is refused."""
    folder = tmp_path_factory.mktemp("ranks")
    script = str(Path(__file__).with_name("train_ranks.py"))
    assert launched(folder / "all", script, str(folder), ranks=2).wait(timeout=300) != 0
    return folder


def same_run(left: Path, right: Path, tolerance: float = 1e-4) -> None:
    """The same data in the same order, and losses, values and weights that differ by rounding only."""
    logs = [read_runs(out / "runs.csv") for out in (left, right)]
    assert np.array_equal(logs[0].p, logs[1].p)
    assert np.allclose(logs[0].loss, logs[1].loss, rtol=tolerance)
    trained = [json.loads((out / "summary.json").read_text())["languages"] for out in (left, right)]
    assert trained[0] == trained[1]
    sv = [read_transfer(out / "sv_raw.csv").sv for out in (left, right)]
    assert np.allclose(sv[0], sv[1], rtol=100 * tolerance, atol=tolerance * np.abs(sv[0]).max())
    states = [load_file(out / "checkpoints" / f"step-{STEPS:09d}" / "state.safetensors") for out in (left, right)]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        if name.startswith("model/"):
            assert torch.allclose(value, states[1][name], rtol=tolerance, atol=1e-5), name


@pytest.mark.parametrize("name", ["pair", "fsdp", "hsdp"])
def test_two_ranks_with_uneven_shares_train_as_one(name: str, alone: Path, runs: Path) -> None:
    same_run(alone, runs / name)


def test_a_checkpoint_of_two_sharded_ranks_is_continued_by_one(alone: Path, runs: Path, tmp_path: Path) -> None:
    stops = [line.split("after step")[1] for line in said(runs / "all").splitlines() if "stopped by SIGTERM" in line]
    assert len(set(stops)) == 1
    out = shutil.copytree(runs / "stopped", tmp_path / "run")
    assert steps(out)[-1] < STEPS
    assert train(out, "--parallel", "fsdp") == 0
    same_run(alone, out)


def test_a_rank_that_is_killed_is_missed_and_a_restart_gives_the_same_bytes(runs: Path) -> None:
    assert (runs / "killed.struck").exists()
    assert tree(runs / "killed") == tree(runs / "pair")
    assert steps(runs / "killed") == list(range(1, STEPS + 1))


def test_errors_of_two_ranks_are_plain(runs: Path) -> None:
    assert said(runs / "all").count("error: --batch 7") == 1
    assert 'train_ranks.py", line' not in said(runs / "all")


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
