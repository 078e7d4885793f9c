"""The README's code runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train.app import command  # noqa: E402
from shapleymix_irds.train.config import TrainConfig  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.settings_file import read_toml  # noqa: E402
from shapleymix_irds.train.shapes import BYTE_VOCABULARY, ModelConfig  # noqa: E402

from shapleymix.tables.transfer_reading import read_transfer  # noqa: E402

README = Path(__file__).resolve().parents[2] / "adapters" / "README.md"


def block(language: str) -> str:
    """The first code block in a language."""
    found = re.search(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found.group(1)


def test_the_lines_for_ones_own_loop_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw = torch.Generator().manual_seed(0)

    def some(n: int) -> tuple[Any, Any]:
        rows = torch.randint(40, (n, 17), generator=draw)
        return rows[:, :-1], rows[:, 1:]

    model = Decoder(ModelConfig(1, 16, 24, 2, BYTE_VOCABULARY))
    model.initialise(0)
    names = {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), 1e-2),
        "schedule": lambda step: 1e-2,
        "validation": {"en": some(16), "de": some(16)},
        "batches": [(*some(6), torch.arange(6) % 2) for _ in range(40)],
    }
    exec(block("python"), names)
    matrix = read_transfer(tmp_path / "sv.csv")
    assert matrix.sources == ("en", "de")
    assert matrix.provenance["evaluations"] == 4


def test_the_toml_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(block("toml"), encoding="utf-8")
    config = TrainConfig(**read_toml(str(tmp_path / "c.toml")))
    assert (config.mixture, config.hidden, config.fixed_every) == ("en=0.5,de=0.3,fr=0.2", 64, 5)


def commands(script: str) -> list[list[str]]:
    """The arguments of each command of a script in the README."""
    shell = "\n".join(re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))
    lines = shell.replace("\\\n", " ").splitlines()
    return [shlex.split(line.split(script, 1)[1], comments=True) for line in lines if script in line]


@pytest.mark.parametrize("arguments", commands("irds_train.py"), ids=" ".join)
def test_every_command_has_flags_and_values_that_are_known(arguments: list[str]) -> None:
    given = command().make_context("irds_train.py", list(arguments)).params
    TrainConfig(**{name: value for name, value in given.items() if value is not None and name != "config"})


def test_lines_are_short_and_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    lines = text.splitlines()
    assert [line for line in lines if len(line) > 120 and not line.lstrip().startswith("|")] == []
    titles = {re.sub(r"[^\w\- ]", "", line.lstrip("# ")).lower().replace(" ", "-") for line in lines if line[:1] == "#"}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= titles
    for path in re.findall(r"`(tests/[\w/]+\.py)", text):
        assert (README.parents[1] / path).exists(), path


def test_the_lines_for_trainers_name_what_there_is() -> None:
    text = README.read_text(encoding="utf-8")
    for name in re.findall(r"`shapleymix_irds\.([\w.]+)\.\w+`", text):
        folder = README.parent / "shapleymix_irds" / Path(*name.split("."))
        assert folder.is_dir() or folder.with_suffix(".py").is_file(), name
