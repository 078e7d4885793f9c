"""The benchmarks run to their end, at their smallest size; what they measure is not asked for here."""

import multiprocessing
import os
import runpy
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

import shapleymix as sm
from shapleymix.laws import LAWS

FOLDER = Path(__file__).parent / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
MORE = {"bench_irds": ["--hidden", "32", "--layers", "1", "--languages", "3"]}
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
"""What `bench_irds` else starts itself again for."""


def run_small(name: str, said: Path) -> None:
    """Run a script with few replicates and folds of a fit, whose priors are not chosen, and with little text: how good
    numbers are is not asked for."""
    with said.open("w") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    fit, text = sm.fit, sm.text_shapley
    sm.fit = lambda *logs, bootstrap=200, folds=10, **asked: fit(
        *logs, bootstrap=min(bootstrap, 4), folds=min(folds, 3), **asked
    )
    sm.text_shapley = lambda *texts, **asked: text(*texts, **asked | {"D": "30k"})
    for law in LAWS.values():
        law.knobs = {name: values[:1] for name, values in law.knobs.items()}
    os.environ |= {"OMP_NUM_THREADS": "1"} | KEPT
    sys.argv = [str(FOLDER / f"{name}.py"), "--small", *MORE.get(name, [])]
    sys.path.insert(0, str(FOLDER))
    warnings.simplefilter("ignore")
    runpy.run_path(sys.argv[0], run_name="__main__")


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name: str, tmp_path: Path) -> None:
    """In a fork of a process that has imported what is large for all of them."""
    if "irds" in name and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scipy.optimize", "scipy.stats", "polars", "torch.distributed.fsdp"])
    run = context.Process(target=run_small, args=(name, tmp_path / "said"))
    run.start()
    run.join(300)
    run.kill()
    run.join()
    assert run.exitcode == 0, (tmp_path / "said").read_text()[-4000:]
