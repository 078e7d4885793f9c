"""The page of the library: its blocks run as they stand, one after the other, from the root of a clone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "shapleymix" / "docs" / "library.md"
pytestmark = pytest.mark.usefixtures("one_prior")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_blocks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"fixtures", "mixture.json", "mixture.png", "report.html"}


def test_blocks_are_rightly_typed(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(BLOCKS))
    paths = [str(ROOT), str(ROOT / "cli"), str(ROOT / "adapters")]
    settings = {"include": ["page.py"], "extraPaths": paths, "typeCheckingMode": "standard"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path), "--pythonpath", sys.executable],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout
