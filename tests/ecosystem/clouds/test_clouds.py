"""The models that Kubernetes, SkyPilot and dstack have of their files take ours, and refuse one with another field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_tools import Run
from sweep_tools import game_plan, written

WRONG = {"colour": "red"}


def document(run: Run, folder: Path, engine: str, values: str) -> dict[str, Any]:
    game_plan(folder)
    return yaml.safe_load(written(run, engine, values, "--timeout", "2h"))


def test_kubernetes_keeps_every_field(run: Run, tmp_path: Path) -> None:
    """Its model drops a field that it does not know, and makes another value of one that is of another type."""
    client = pytest.importorskip("kubernetes.client").ApiClient()
    found = document(run, tmp_path, "kubernetes", "image=me/i,claim=c,queue=q")
    for right, more in {True: {}, False: WRONG}.items():
        job = {**found, "spec": {**found["spec"], **more}}
        read = client.deserialize(json.dumps(job), "V1Job", "application/json")
        assert (client.sanitize_for_serialization(read) == job) is right


def test_skypilot_reads_a_task(run: Run, tmp_path: Path) -> None:
    sky = pytest.importorskip("sky")
    found = document(run, tmp_path, "skypilot", "image=me/i,volume=v")
    task = sky.Task.from_yaml_config(found)
    assert (task.envs, [*task.volumes]) == ({"PLAN": "plan.jsonl", "LIMIT": "--timeout 7200s"}, ["/sweep"])
    with pytest.raises(sky.exceptions.InvalidSkyPilotConfigError):
        sky.Task.from_yaml_config(found | WRONG)


def test_dstack_reads_a_task(run: Run, tmp_path: Path) -> None:
    configurations = pytest.importorskip("dstack._internal.core.models.configurations")
    found = document(run, tmp_path, "dstack", "image=me/i,volume=/mnt/shared")
    task = configurations.parse_run_configuration(found)
    assert (task.type, task.volumes[0].path, task.max_duration) == ("task", "/sweep", 7200)
    with pytest.raises(configurations.ConfigurationError):
        configurations.parse_run_configuration(found | WRONG)
