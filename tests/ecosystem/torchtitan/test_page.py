"""The lines of torchtitan's page run as they stand, on one rank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchtitan")

from shapleymix.tables.transfer_reading import read_transfer

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]


def test_the_lines_measure_a_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"]
    script = str(Path(__file__).with_name("torchtitan_page.py"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*command, script, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name in ("sv_raw.csv", "sv.csv"):
        assert read_transfer(tmp_path / "phi" / name).sources == ("en", "de")
