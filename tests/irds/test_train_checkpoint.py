"""Checkpoints: a flipped bit is met, a broken one is passed over, nothing that is read runs, writing goes on beside."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.distributed import World  # noqa: E402
from shapleymix_irds.train.optimisers import Optimiser  # noqa: E402
from shapleymix_irds.train.saving import checkpoint  # noqa: E402
from shapleymix_irds.train.saving.checkpoint import Checkpoints  # noqa: E402
from torch import nn  # noqa: E402

from shapleymix.errors import StoreError, UsageError  # noqa: E402
from tests.irds.training import STEPS, sign, train, tree  # noqa: E402

META = {"step": 3, "settings": {}, "corpus": "x", "counts": [1], "rows": [], "tracker": None}
META |= {"efficiency": {}, "trained_with": {}}
LAST = f"step-{STEPS:09d}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert train(out) == 0
    return out


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be broken."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def parts(seed: int, kind: Any = torch.optim.AdamW, steps: int = 2, **settings: Any) -> tuple[nn.Module, Any]:
    """A small model and its optimiser after some steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    optimiser = Optimiser([kind(model.parameters(), lr=0.1, **settings)])
    go_on(model, optimiser, steps)
    return model, optimiser


def go_on(model: nn.Module, optimiser: Any, steps: int) -> list[torch.Tensor]:
    """Train for some steps; the weights and buffers then."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        model(torch.randn(4, 6, generator=generator)).square().sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    return [value.clone() for value in model.state_dict().values()]


def saved(folder: Path, keep: int = 2) -> tuple[Checkpoints, nn.Module, Any]:
    """A checkpoint of step 3 in a folder, and what it is of."""
    checkpoints = Checkpoints(folder, World.of(None, torch.device("cpu")), keep)
    model, optimiser = parts(1)
    checkpoints.save(3, model, optimiser, META.copy)
    checkpoints.finish()
    return checkpoints, model, optimiser


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
        (torch.optim.Adafactor, {}),
    ],
)
@pytest.mark.parametrize("steps", [0, 2])
def test_whatever_an_optimiser_keeps_goes_on_bit_for_bit(
    kind: Any, settings: dict[str, Any], steps: int, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path, World.of(None, torch.device("cpu")), 2)
    model, optimiser = parts(1, kind, steps, **settings)
    checkpoints.save(3, model, optimiser, META.copy)
    expected = go_on(model, optimiser, 3)
    checkpoints.finish()
    other, its = parts(2, kind, 0, **settings)
    checkpoints.load(3, other, its)
    assert all(torch.equal(left, right) for left, right in zip(go_on(other, its, 3), expected, strict=True))


def test_every_flipped_bit_is_met(tmp_path: Path) -> None:
    checkpoints, model, optimiser = saved(tmp_path)
    folder, rng = checkpoints.place(3), np.random.default_rng(5)
    assert {path.name for path in folder.iterdir()} == {"run.json", "rank-00000.safetensors", "SHA256SUMS"}
    for path in folder.iterdir():
        data = path.read_bytes()
        places = {0, len(data) - 1, *rng.integers(len(data), size=20 if path.name != "SHA256SUMS" else 100).tolist()}
        for place in places:
            broken = bytearray(data)
            broken[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(broken)
            with pytest.raises(StoreError):
                read(checkpoints, model, optimiser)
        path.write_bytes(data)
    assert read(checkpoints, model, optimiser) == META


def read(checkpoints: Checkpoints, model: nn.Module, optimiser: Any) -> dict[str, Any]:
    checkpoints.load(3, model, optimiser)
    return checkpoints.meta(3)


def test_checksums_are_those_of_sha256sum(tmp_path: Path) -> None:
    folder = saved(tmp_path)[0].place(3)
    before = (folder / "SHA256SUMS").read_bytes()
    sign(folder)
    assert (folder / "SHA256SUMS").read_bytes().splitlines() == before.splitlines()


class Hostile:
    """A pickle that writes a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("name", ["rank-00000.safetensors", "run.json", "SHA256SUMS"])
def test_nothing_that_is_read_can_run(name: str, copy: Path, tmp_path: Path, capfd: Any) -> None:
    before, last = tree(copy), copy / "checkpoints" / LAST
    (last / name).write_bytes(pickle.dumps(Hostile(tmp_path / "ran")))
    if name != "SHA256SUMS":
        sign(last)
    assert train(copy) == 0
    assert not (tmp_path / "ran").exists()
    said = capfd.readouterr().err
    assert f"warning: the checkpoint of step 12 is broken: {last}" in said
    assert f"{name}: is no" in said
    assert "Traceback" not in said
    assert tree(copy) == before


BREAKS: dict[str, Callable[[Path], object]] = {
    "is not as it was written: its checksum differs": lambda last: flip(last / "rank-00000.safetensors"),
    "rank-00000.safetensors: cannot be read: No such file": lambda last: (last / "rank-00000.safetensors").unlink(),
    "SHA256SUMS: cannot be read: No such file": lambda last: (last / "SHA256SUMS").unlink(),
    "SHA256SUMS: is no list of checksums": lambda last: (last / "SHA256SUMS").write_text("mine\n"),
    "run.json: is not the record of a run: 'step' is": lambda last: signed(last, "run.json", b"{}"),
    "run.json: is not the record of a run: 'counts'": lambda last: signed(last, "run.json", json.dumps(ODD).encode()),
    "run.json:1: is not valid JSON": lambda last: signed(last, "run.json", b'{"step": 12, "sett'),
    "rank-00000.safetensors: is no part of a checkpoint: ": lambda last: signed(last, "rank-00000.safetensors", b""),
    "lacks numbers of 'model/": lambda last: ((last / "rank-00000.safetensors").unlink(), sign(last)),
}
ODD = {**META, "counts": 1}


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def signed(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    sign(folder)


@pytest.mark.parametrize("words", BREAKS)
def test_a_broken_checkpoint_is_passed_over_and_the_run_ends_the_same(
    words: str, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, folder = tree(copy), copy / "checkpoints"
    shutil.copytree(folder / LAST, folder / f"{LAST} (copy)")
    BREAKS[words](folder / LAST)
    assert train(copy) == 0
    said = capfd.readouterr().err
    assert words in said
    assert "warning: the run goes on from step 8 instead, and makes anew what came after it" in said
    assert "Traceback" not in said
    shutil.rmtree(folder / f"{LAST} (copy)")
    assert tree(copy) == before


def test_rows_after_the_checkpoint_that_is_whole_are_cut_at_once(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    flip(copy / "checkpoints" / LAST / "run.json")
    monkeypatch.setattr("shapleymix_irds.train.loop.Trainer.train_step", dies)
    assert train(copy) == 130
    assert "interrupted" in capfd.readouterr().err
    assert [row.split(",")[2] for row in (copy / "runs.csv").read_text().splitlines()] == ["D", "0", "896"]
    assert len((copy / "metrics.jsonl").read_text().splitlines()) == 8


def test_where_no_checkpoint_is_whole_nothing_is_touched(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for folder in (copy / "checkpoints").iterdir():
        flip(folder / "rank-00000.safetensors")
    before = tree(copy)
    assert train(copy) == 1
    said = capfd.readouterr().err
    assert "warning: the checkpoint of step 12 is broken" in said
    assert "warning: the checkpoint of step 8 is broken" in said
    assert "checkpoints: no checkpoint is whole\n  hint: put back a copy of one of them" in said
    assert "start anew with --force" in said
    assert tree(copy) == before
    assert train(copy, "--force") == 0


def test_one_checkpoint_alone_is_warned_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert train(out, "--keep", "1", "--no-irds") == 0
    assert "warning: --keep 1 leaves no checkpoint to fall back on" in capfd.readouterr().err
    assert [path.name for path in (out / "checkpoints").iterdir()] == [LAST]
    flip(out / "checkpoints" / LAST / "run.json")
    assert train(out, "--keep", "1", "--no-irds") == 1
    assert "no checkpoint is whole" in capfd.readouterr().err


def test_a_broken_checkpoint_does_not_count_among_those_that_are_kept(tmp_path: Path) -> None:
    checkpoints, model, optimiser = saved(tmp_path)
    for step in (6, 9):
        shutil.copytree(checkpoints.place(3), checkpoints.place(step))
    again = Checkpoints(tmp_path, checkpoints.world, 2)
    assert again.found() == [3, 6, 9]
    again.load(3, model, optimiser)
    for step in (5, 6, 7):
        again.save(step, model, optimiser, META.copy)
    again.finish()
    assert again.steps() == [6, 7, 9]
    assert again.sound == [6, 7]


# -- writing beside training ------------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Tensors are not written before this is set."""
    opened, write = threading.Event(), checkpoint.write_blocks

    def waits(*arguments: Any) -> str:
        assert opened.wait(20)
        return write(*arguments)

    monkeypatch.setattr(checkpoint, "write_blocks", waits)
    return opened


def test_what_is_written_is_the_step_that_was_saved(gate: threading.Event, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, World.of(None, torch.device("cpu")), 2)
    model, optimiser = parts(1)
    expected = go_on(model, optimiser, 0)
    checkpoints.save(3, model, optimiser, META.copy)
    go_on(model, optimiser, 2)
    checkpoints.settle()
    assert checkpoints.steps() == []
    gate.set()
    checkpoints.save(4, model, optimiser, META.copy)  # waits for the one before
    assert checkpoints.steps() == [3]
    checkpoints.finish()
    assert checkpoints.steps() == [3, 4]
    checkpoints.load(3, *(again := parts(2)))
    assert all(torch.equal(left, right) for left, right in zip(go_on(*again, 0), expected, strict=True))


@pytest.mark.parametrize("end", ["settle", "finish", "save"])
def test_a_disk_that_is_full_in_the_background_is_the_same_error(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    checkpoints, model, optimiser = saved(tmp_path)
    before = tree(tmp_path)
    monkeypatch.setattr(checkpoint, "write_blocks", full)
    checkpoints.save(4, model, optimiser, META.copy)
    while end == "settle" and not checkpoints.written:
        pass
    with pytest.raises(UsageError, match="cannot be written: No space left on device"):
        getattr(checkpoints, end)(*((5, model, optimiser, META.copy) if end == "save" else ()))
    assert checkpoints.found() == [3]
    assert tree(tmp_path) == before


# -- records of others -------------------------------------------------------------------------------------------


def record(copy: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change run.json of every checkpoint, with right checksums."""
    for folder in (copy / "checkpoints").iterdir():
        meta = json.loads((folder / "run.json").read_text())
        edit(meta)
        (folder / "run.json").write_text(json.dumps(meta))
        sign(folder)


WRONG = {
    "step": [-3, True, STEPS + 1, 10**30],
    "counts": [[1], ["a", 0, 0], [-5, 30, 31], [1e300] * 3, [[1], [2], [3]], [84, 0, 0], [56, 0, 0]],
    "rows": [[1], [{"D": 1, "loss": [1.0]}], [{"D": "x", "loss": ["a"] * 3}], [{"D": 10**9, "loss": [1.0] * 3}]],
    "efficiency": [{}, {"a": "x", "b": 1.0, "c": 1.0}],
    "trained_with": [{"N": 5}],
    "tracker": [None],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_record_that_cannot_be_of_the_run_is_refused(
    name: str, copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for value in WRONG[name]:
        record(copy, lambda meta, value=value: meta.update({name: value}))
        before = tree(copy)
        assert train(copy) == 1
        assert f"run.json: is not the record of this run: {name} " in capfd.readouterr().err
        assert tree(copy) == before


LEDGER: dict[str, Any] = {"languages": 7, "total": [[1.0]], "unseen": [], "blocks": {"sums": [[[1.0]]]}, "count": -1}
STATES: list[dict[str, Any]] = [{"ledger": 5}, {"losses": [1, 2]}, {"losses": [{"a": "q"}, {}]}, {"passed": 5}]
STATES += [{"run": ["a", "b", "c"]}, {"run": [1]}, {"run": [3, 3, 10**300]}, {"every": "x"}]


def test_a_state_that_is_none_of_the_tracker_is_refused(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = copy / "checkpoints" / LAST
    state = json.loads(json.loads((folder / "run.json").read_text())["tracker"]["irds"])
    wrong = [state | each for each in STATES]
    wrong += [state | {"ledger": state["ledger"] | {name: value}} for name, value in LEDGER.items()]
    for text in (*map(json.dumps, wrong), "[" * 100_000, 5):
        record(copy, lambda meta, text=text: meta.update(tracker={"irds": text}))
        assert train(copy) == 1
        said = capfd.readouterr().err
        assert "error: this is no state of a tracker" in said or "was made with every=x" in said
        assert "Traceback" not in said
