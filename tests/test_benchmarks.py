"""The benchmarks run to their end, at their smallest size; what they measure is not asked for here."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "benchmarks"
NAMES = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
FEW = """
import runpy, sys
import shapleymix as sm
from shapleymix.laws import LAWS

fit, text = sm.fit, sm.text_shapley
sm.fit = lambda *logs, bootstrap=200, folds=10, **asked: fit(
    *logs, bootstrap=min(bootstrap, 4), folds=min(folds, 3), **asked
)
sm.text_shapley = lambda *texts, **asked: text(*texts, **asked | {"D": "30k"})
for law in LAWS.values():
    law.knobs = {name: values[:1] for name, values in law.knobs.items()}
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script with few replicates and folds of a fit, whose priors are not chosen, and little text: how good numbers
are is not asked for."""
SMALL = {"bench_irds": ["--hidden", "32", "--layers", "1", "--languages", "3"]}
KEPT = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
"""What `bench_irds` else starts itself again for."""


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name: str) -> None:
    if "irds" in name and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    command = [sys.executable, "-W", "ignore", "-c", FEW, str(FOLDER / f"{name}.py"), "--small", *SMALL.get(name, [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (KEPT if name == "bench_irds" else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
