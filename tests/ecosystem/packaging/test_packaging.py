"""The wheel in environments of its own, outside of the clone: every Python, the oldest and the newest dependencies.

Every example of every `--help` of the installed program runs in an empty folder, and the files of the default suite
that `SUITE` names run on what is installed. Pythons that are not on this machine are skipped by name; in continuous
integration they must be there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = ("plots", "gbm", "slurm")
UV = [sys.executable, "-m", "uv"]
SUITE = (
    "certificate", "cli", "cli_optimize", "downstream", "exporting", "fits", "importing", "laws", "optimization",
    "plotting_answers", "records", "report", "runs",
)  # fmt: skip
"""The files of the default suite that run on every installation: each wing, and each package that it rests on."""
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "pyyaml")
SOURCES = ("shapleymix", "cli/shapleymix_cli", "adapters/shapleymix_irds")
IN_CI = "CI" in os.environ  # as it is before a test sets it


def call(*words: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def interpreter(python: str) -> str | None:
    """Where a Python of this version is: among pyenv's, whose shims answer for one alone, on the path, or uv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    own = [str(folder) for folder in sorted(pyenv.glob(f"versions/{python}.*/bin"), reverse=True)]
    env = os.environ | {"PATH": os.pathsep.join([*own, os.environ["PATH"]])}
    words = [*UV, "python", "find", "--system", python]
    found = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    return found.stdout.strip() if found.returncode == 0 else None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module", params=[(python, age) for python in PYTHONS for age in RESOLUTIONS], ids="-".join)
def program(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed `shapleymix` of a fresh environment."""
    python, age = request.param
    found = interpreter(python)
    if found is None:
        (pytest.fail if IN_CI else pytest.skip)(f"Python {python} is not on this machine: uv python install {python}")
    folder = tmp_path_factory.mktemp(f"{age}-{python}")
    pins = folder / "pins.txt"
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    how = ["--only-binary", ":all:", "--resolution", RESOLUTIONS[age], "--python-version", python]
    call(*UV, "pip", "compile", ROOT / "pyproject.toml", *extras, *how, "-o", pins)
    call(*UV, "venv", "--python", found, "--clear", folder / "venv")
    inside = folder / "venv/bin/python"
    (wheel,) = built.glob("*.whl")
    call(*UV, "pip", "install", "--python", inside, "--only-binary", ":all:", "-r", pins, wheel)
    return inside.with_name("shapleymix")


@pytest.fixture
def clean() -> dict[str, str]:
    """The environment without anything that leads to the clone."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SHAPLEYMIX"))}


def test_the_installation_is_whole_and_knows_nothing_of_the_clone(
    program: Path, tmp_path: Path, clean: dict[str, str]
) -> None:
    assert "All is there that a run needs." in call(program, "doctor", cwd=tmp_path, env=clean)
    place = call(program.with_name("python"), "-c", "import shapleymix; print(shapleymix.__file__)", cwd=tmp_path)
    assert Path(place).is_relative_to(program.parents[1])


def test_every_example_of_every_help_runs(program: Path, tmp_path: Path, clean: dict[str, str]) -> None:
    listing = "import shapleymix_cli.main as main; print(*main.COMMANDS)"
    names = call(program.with_name("python"), "-c", listing, cwd=tmp_path, env=clean).split()
    assert len(names) > 10
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        lines = call(program, name, "--help", cwd=folder, env=clean).split("\n\n")[0].splitlines()
        assert lines[0] == "Examples:"
        for line in lines[1:]:
            words = shlex.split(line)
            assert words[0] == "shapleymix"
            call(program, *words[1:], cwd=folder, env=clean)


def test_the_suite_runs_on_what_is_installed(program: Path, built: Path, tmp_path: Path, clean: dict[str, str]) -> None:
    """The tests of the sdist, whose sources are taken away, so that nothing but the wheel can be imported."""
    python = program.with_name("python")
    call(*UV, "pip", "install", "--python", python, "-c", program.parents[2] / "pins.txt", *TOOLS)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for one in SOURCES:
        shutil.rmtree(folder / one)
    files = [f"tests/test_{name}.py" for name in SUITE]
    call(python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", *files, cwd=folder, env=clean)


def test_an_extra_that_is_not_there_is_installed_as_its_hint_says(
    built: Path, tmp_path: Path, clean: dict[str, str]
) -> None:
    """The hint names what the index has, which this package is not: any `pip` may be asked."""
    (wheel,) = built.glob("*.whl")
    call(*UV, "venv", "--seed", "--python", sys.executable, tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    call(*UV, "pip", "install", "--python", python, wheel)
    call(python.with_name("shapleymix"), "example", cwd=tmp_path, env=clean)
    draw = [python.with_name("shapleymix"), "plot", "transfer", "example/irds_raw.csv", "-o", "a.png"]
    done = subprocess.run(draw, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    hint = shlex.split(done.stderr.partition("hint: ")[2])
    assert hint == ["pip", "install", "matplotlib>=3.10.7"]
    call(python, "-m", *hint, cwd=tmp_path, env=clean)
    call(*draw, cwd=tmp_path, env=clean)


def test_the_sdist_is_the_repository(built: Path, tmp_path: Path) -> None:
    """What it holds is what git tracks, so that the tests can be run from it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(call("git", "ls-files", cwd=ROOT).split("\n")) - {""}
    assert tracked - held == set()
