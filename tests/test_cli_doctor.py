"""`doctor`: what it finds, and what it says of an installation that is not whole; what hints tell to install."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from cli_tools import Run, runner
from shapleymix_cli import health
from shapleymix_cli.project import NAME

from shapleymix.tables.sources.histories import OLDEST

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(metadata, "requires", lambda name: stated())
    return runner(capsys)


def stated() -> list[str]:
    """The requirements, as a wheel of this pyproject.toml states them."""
    extras = PROJECT["optional-dependencies"].items()
    return [*PROJECT["dependencies"], *(f"{one}; extra == '{name}'" for name, some in extras for one in some)]


def states(found: dict[str, object]) -> dict[str, tuple[str, str | None]]:
    listed = found["checks"]
    assert isinstance(listed, list)
    return {one["name"]: (one["state"], one["hint"]) for one in listed}


def test_a_whole_installation_is_well(run: Run) -> None:
    found = run("doctor --json")
    assert found.code == 0, found.out
    assert found.document["healthy"]
    known = states(found.document)
    assert {"numpy", "cvxpy", "barrier Newton", "interior point", "Clarabel", "usable", NAME} <= set(known)
    assert "All is there that a run needs." in run("doctor").out


def test_every_requirement_is_of_the_form_that_is_read(run: Run) -> None:
    assert len(health.required()) == len(stated())
    own = [(name, extra) for name, _, extra in health.required() if extra is None]
    assert len(own) == len(PROJECT["dependencies"])


def test_what_is_old_or_absent_is_told_with_its_remedy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real, given = metadata.version, {"polars": "1.9.3", "matplotlib": "3.7"}

    def version(name: str) -> str:
        if name in ("psutil", "submitit"):
            raise metadata.PackageNotFoundError(name)
        return given.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)
    found = run("doctor --json")
    assert (found.code, found.document["healthy"]) == (1, False)
    known = states(found.document)
    assert known["polars"] == ("fault", "pip install 'polars>=1.32'")
    assert known["psutil"] == ("fault", "pip install 'psutil>=5.9'")
    assert known["submitit"] == ("absent", "pip install 'submitit>=1.5.4'")
    assert known["matplotlib"] == ("doubt", "pip install 'matplotlib>=3.10.7'")
    text = run("doctor")
    assert (text.code, "2 broken: see above." in text.out) == (1, True)


def test_a_solver_that_cannot_be_loaded_is_a_fault_and_no_crash(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    found = run("doctor --json")
    assert found.code == 1
    assert states(found.document)["Clarabel"][0] == "fault"


def test_a_check_that_breaks_is_a_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", ModuleType("threadpoolctl"))
    found = run("doctor --json")
    assert (found.code, states(found.document)["the rest"][0]) == (1, "fault")


def test_a_broken_project_is_a_fault_with_its_line(run: Run) -> None:
    Path(NAME).write_text("\nlog = 3\n")
    found = run("doctor --json")
    assert found.code == 1
    assert states(found.document)[NAME] == ("fault", f"mend {NAME}")
    assert f"{NAME}:2" in found.out


def test_threads_beyond_the_cores_are_doubted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "cpu_quota", lambda: 0.5)
    found = run("doctor --json")
    assert (found.code, states(found.document)["--threads"]) == (0, ("doubt", "give --threads 1"))


@pytest.mark.parametrize(("text", "cores"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("", None)])
def test_a_container_may_leave_less_than_its_cores(tmp_path: Path, text: str, cores: float | None) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert health.cpu_quota(limit) == cores


@pytest.mark.parametrize(
    ("one", "other", "enough"),
    [("2.13.0+cpu", "2.6", True), ("1.26", "1.26.0", True), ("1.9", "1.10", False), ("3.0rc1", "3", True)],
)
def test_versions_are_ordered_by_their_numbers(one: str, other: str, enough: bool) -> None:
    assert (health.number(one) >= health.number(other)) == enough


TOLD = "\n".join(
    path.read_text(encoding="utf-8")
    for path in [
        *(path for folder in ("shapleymix", "cli", "adapters") for path in (ROOT / folder).rglob("*.py")),
        *(ROOT / "README.md", *ROOT.glob("*/docs/*.md"), ROOT / "adapters/README.md"),
    ]
)


def test_extras_that_are_named_are_there() -> None:
    told = {one for many in re.findall(r"(?:'\.|\"\.)\[([\w,-]+)\]", TOLD) for one in many.split(",")}
    assert told
    assert told <= set(PROJECT["optional-dependencies"]) - {"dev"}


def test_hints_name_what_the_package_index_has() -> None:
    """Packages and versions of the extras: this one is not on the index, where a stranger could take its name."""
    told = re.findall(r"(?:pip install |\"gbm\": )['\"]([\w-]+[^{}'\"]*)['\"]", TOLD)
    extras = PROJECT["optional-dependencies"]
    assert {"lightgbm>=4.3", "matplotlib>=3.10.7", "submitit>=1.5.4"} <= set(told)
    assert set(told) <= {one for name in extras if name != "dev" for one in extras[name]}
    assert all([f"{name}>={least}"] == extras[name] for name, least in OLDEST.items())


def pinned(name: str) -> dict[str, str]:
    """The versions in a constraints file, of the several for different Pythons the first."""
    lines = (ROOT / ".ci" / name).read_text(encoding="utf-8").splitlines()
    found = [re.match(r"([\w.-]+)==([\w.+]+)", line) for line in lines]
    return {one[1]: one[2] for one in reversed(found) if one is not None}


def test_constraints_are_what_the_requirements_admit(run: Run) -> None:
    """The oldest are the least versions, or the first wheels of them; the newest admit each requirement."""
    oldest, newest = pinned("oldest.txt"), pinned("newest.txt")
    for name, least, extra in health.required():
        if extra != "dev":
            assert health.number(newest[name]) >= health.number(least)
        if extra in (None, "plots", "gbm", "slurm"):
            parts = health.number(least)
            assert health.number(oldest[name])[: len(parts)] == parts, name
