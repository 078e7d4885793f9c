"""SkyPilot 0.14: its own model of a task takes the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cli_tools import Run
from sweep_tools import game_plan, written

sky = pytest.importorskip("sky")


def test_the_file_is_a_task(run: Run, tmp_path: Path) -> None:
    game_plan(tmp_path)
    found = yaml.safe_load(written(run, "skypilot", "image=me/i,volume=v", "--timeout", "2h"))
    task = sky.Task.from_yaml_config(found)
    assert (task.envs, [*task.volumes]) == ({"PLAN": "plan.jsonl", "LIMIT": "--timeout 2h"}, ["/sweep"])
    with pytest.raises(sky.exceptions.InvalidSkyPilotConfigError):
        sky.Task.from_yaml_config({**found, "colour": "red"})
