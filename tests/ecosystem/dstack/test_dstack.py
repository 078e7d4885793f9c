"""dstack 0.22: its own model of a configuration takes the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cli_tools import Run
from sweep_tools import game_plan, written

configurations = pytest.importorskip("dstack._internal.core.models.configurations")


def test_the_file_is_a_task(run: Run, tmp_path: Path) -> None:
    game_plan(tmp_path)
    found = yaml.safe_load(written(run, "dstack", "image=me/i,volume=/mnt/shared", "--timeout", "2h"))
    task = configurations.parse_run_configuration(found)
    assert (task.type, task.volumes[0].path, task.max_duration) == ("task", "/sweep", 7200)
    with pytest.raises(configurations.ConfigurationError):
        configurations.parse_run_configuration({**found, "colour": "red"})
