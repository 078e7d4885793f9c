"""The adapter's pages: the code for a loop of one's own runs as it stands, and the script knows what it is given."""

import re
import shlex
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train.app import command  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.settings import BYTE_VOCABULARY, ModelConfig, TrainingSettings, read_toml  # noqa: E402

from shapleymix.tables.transfer import read_transfer  # noqa: E402

ADAPTERS = Path(__file__).resolve().parents[2] / "adapters"
README, LOOP, TRAINING = ADAPTERS / "README.md", ADAPTERS / "docs/your-loop.md", ADAPTERS / "docs/training.md"
PAGES = (README, *sorted(ADAPTERS.glob("docs/*.md")))


def block(page: Path, language: str, place: int = 0) -> str:
    """A code block in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[place]


def loop() -> dict[str, Any]:
    """What a loop has before the tracker comes: a model, its optimiser, batches."""
    draw = torch.Generator().manual_seed(0)

    def some(n: int) -> tuple[Any, Any]:
        rows = torch.randint(40, (n, 17), generator=draw)
        return rows[:, :-1], rows[:, 1:]

    model = Decoder(ModelConfig(1, 16, 24, 2, BYTE_VOCABULARY))
    model.initialise(0)

    def loss_fn(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x).transpose(1, 2), y, reduction="none").sum(-1)

    return {
        "model": model, "loss_fn": loss_fn, "optimizer": torch.optim.AdamW(model.parameters(), 1e-2),
        "schedule": lambda step: 1e-2, "validation": {"en": some(16), "de": some(16)},
        "batches": [(*some(6), torch.arange(6) % 2) for _ in range(40)],
    }  # fmt: skip


@pytest.mark.parametrize("page", [README, LOOP], ids=["README", "your-loop"])
def test_the_lines_for_ones_own_loop_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block(page, "python"), loop())
    matrix = read_transfer(tmp_path / "sv.csv")
    assert (matrix.sources, matrix.provenance["evaluations"]) == (("en", "de"), 4)


def test_the_lines_that_watch_and_follow_run() -> None:
    names = loop()
    x, y, lang = names["batches"][0]

    class Language(torch.nn.Module):  # gives its loss, as models of Hugging Face do
        def __init__(self) -> None:
            super().__init__()
            self.inner = names["model"]

        def forward(self, x: Any, y: Any) -> Any:
            losses = torch.nn.functional.cross_entropy(self.inner(x).transpose(1, 2), y)
            return type("Output", (), {"loss": losses})

    names |= {"model": Language(), "inputs": {"x": x, "y": y}, "lang": lang, "step": 0}
    names |= {"IRDS": __import__("shapleymix_irds").IRDS}
    exec(block(LOOP, "python", 1), names)
    assert (names["tracker"].steps, names["tracker"].ledger.count) == (1, 1)


def test_the_toml_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(block(TRAINING, "toml"), encoding="utf-8")
    config = TrainingSettings(**read_toml(str(tmp_path / "c.toml")))
    assert (config.mixture, config.hidden, config.every) == ("en=0.5,de=0.3,fr=0.2", 64, 5)


def commands(script: str) -> list[list[str]]:
    """The arguments of each command of a script on the pages; inside of a plan's --command they are placeholders."""
    found = chain.from_iterable(re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL) for page in PAGES)
    lines = [shlex.split(line, comments=True) for line in "\n".join(found).replace("\\\n", " ").splitlines()]
    return [words[words.index(script) + 1 :] for words in lines if script in words]


@pytest.mark.parametrize("arguments", commands("adapters/irds_train.py"), ids=" ".join)
def test_every_command_has_flags_and_values_that_are_known(arguments: list[str]) -> None:
    given = command().make_context("irds_train.py", list(arguments)).params
    TrainingSettings(**{name: value for name, value in given.items() if value is not None and name != "config"})


def test_the_command_of_a_plan_is_known_once_it_is_filled_in() -> None:
    (call,) = (
        words[words.index("--command") + 1]
        for words in commands("shapleymix")
        if "--command" in words and "irds_train.py" in words[words.index("--command") + 1]
    )
    filled = {"sources": "en,de", "model": "mini", "D": "2000000", "mixture": "en=1.0", "seed": "0", "out": "run"}
    arguments = shlex.split(call.format_map(filled).partition("irds_train.py")[2])
    given = command().make_context("irds_train.py", arguments).params
    TrainingSettings(**{name: value for name, value in given.items() if value is not None and name != "config"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_goes_into_trainers_is_there(page: Path) -> None:
    for name in re.findall(r"`shapleymix_irds\.([\w.]+)\.\w+`", page.read_text(encoding="utf-8")):
        folder = ADAPTERS / "shapleymix_irds" / Path(*name.split("."))
        assert folder.is_dir() or folder.with_suffix(".py").is_file(), name
