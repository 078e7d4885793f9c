"""The wheel in environments of its own, outside of the clone: every Python, the oldest and the newest dependencies.

The README's first commands run in an empty folder, and the tests of all commands on what is installed. Pythons
that are not on this machine are skipped by name; in continuous integration they must be there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = ("plots", "gbm", "slurm")
UV = [sys.executable, "-m", "uv"]
TOOLS = ("pytest", "pytest-xdist", "hypothesis")
PACKAGES = ("shapleymix_io", "shapleymix_irds", "shapleymix_sweep")
SOURCES = ("shapleymix", "cli/shapleymix_cli", "cli/shapleymix_view", *(f"adapters/{name}" for name in PACKAGES))
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


def test_the_readmes_commands_run(program: Path, tmp_path: Path, clean: dict[str, str]) -> None:
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("```console\n")[1].split("```")[0]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    lines = [words for words in lines if words[:1] == ["shapleymix"]]
    assert len(lines) > 2
    for words in lines:
        call(program, *words[1:], cwd=tmp_path, env=clean)
    place = call(program.with_name("python"), "-c", "import shapleymix; print(shapleymix.__file__)", cwd=tmp_path)
    assert Path(place).is_relative_to(program.parents[1]), "nothing of the clone is imported"


def test_the_commands_answer_as_they_are_installed(
    program: Path, built: Path, tmp_path: Path, clean: dict[str, str]
) -> None:
    """The tests of the sdist, whose sources are taken away, so that nothing but the wheel can be imported."""
    python = program.with_name("python")
    call(*UV, "pip", "install", "--python", python, "-c", program.parents[2] / "pins.txt", *TOOLS)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for one in SOURCES:
        shutil.rmtree(folder / one)
    call(python, "-m", "pytest", "-q", "-n", "2", "tests/test_cli_answers.py", cwd=folder, env=clean)


@pytest.mark.parametrize("repository", ["https://example.org/team/mix", ""])
def test_the_index_shows_no_link_that_leads_nowhere(repository: str, tmp_path: Path, clean: dict[str, str]) -> None:
    """The source archive knows the repository; the wheel is made from it without one, and without git."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path]
    call(*build, "--sdist", ROOT, env=clean | {"SHAPLEYMIX_REPOSITORY": repository})
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    call(*build, "--wheel", folder, env=clean)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith("/METADATA")]
        told = archive.read(name).decode()
    links = re.findall(r"\]\((?!#)([^)\s]+)\)", told)
    assert (f"Project-URL: Repository, {repository}" in told.splitlines(), bool(links)) == (bool(repository),) * 2
    for link in links:
        found = re.fullmatch(rf"{repository}/(?:blob|raw)/v[^/]+/([^#]+)(?:#.*)?", link)
        assert found, link
        assert (ROOT / found[1]).exists(), link


@pytest.mark.parametrize(
    ("origin", "web"),
    [
        ("https://ci-token:SECRET@host.org/team/mix.git", "https://host.org/team/mix"),
        ("ssh://git@host.org:2222/team/mix.git", "https://host.org/team/mix"),
        ("git@host.org:team/mix.git", "https://host.org/team/mix"),
        ("/srv/mix.git", ""),
    ],
)
def test_an_origin_is_known_without_its_user(origin: str, web: str, tmp_path: Path, clean: dict[str, str]) -> None:
    call("git", "init", "-q", tmp_path)
    call("git", "-C", tmp_path, "remote", "add", "origin", origin)
    hook, place = repr(str(ROOT / ".ci/metadata_hook.py")), repr(str(tmp_path))
    code = f"import pathlib, runpy; print(runpy.run_path({hook})['find_repository'](pathlib.Path({place})))"
    assert call(sys.executable, "-c", code, env=clean).strip() == web


def test_the_sdist_is_the_repository(built: Path, tmp_path: Path) -> None:
    """What it holds is what git tracks, so that the tests can be run from it."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(call("git", "ls-files", cwd=ROOT).split("\n")) - {""}
    assert tracked - held == set()
