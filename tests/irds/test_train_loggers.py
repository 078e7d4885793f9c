"""TensorBoard, and Weights & Biases: scalars, the matrix as a picture, and runs that continue."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from shapleymix_irds.train.showing.heat import colour
from shapleymix_irds.train.showing.loggers import PICTURES, Seldom, TensorBoard, WeightsAndBiases
from shapleymix_irds.train.showing.picture import CELL, EDGE, markdown, picture
from shapleymix_irds.train.showing.telemetry import Metrics

from shapleymix.errors import UsageError
from tests.irds.training import measured, train


def metrics(step: int) -> Metrics:
    return Metrics(step, 100 * step, 1e-3, 0.7, {"en": 2.5}, 12_345.6)


def test_a_picture_has_the_colours_of_the_values() -> None:
    found = measured(4)
    cells = picture(found)
    for i, j in np.ndindex(4, 4):
        corner = cells[EDGE + CELL * i + 2, EDGE + CELL * j + 2]
        assert tuple(corner) == colour(float(found.shades[i, j]))


@pytest.mark.parametrize("count", [1, 13, 50, 200])
def test_a_picture_of_many_languages_is_no_larger_than_a_screen(count: int) -> None:
    height, width, colours = picture(measured(count)).shape
    assert height == width <= 1400
    assert colours == 3


def test_a_text_has_all_numbers_of_few_languages_and_the_largest_of_many() -> None:
    lines = markdown(measured(2)).splitlines()
    assert lines[2:6] == ["| source | l0 | l1 |", "| --- | --- | --- |", *lines[4:6]]
    assert lines[4] == "| l0 | 1.22 ±0.05 | 0.03 ±0.10 |"
    assert lines[6].startswith("| efficiency | ")
    assert len(markdown(measured(50)).splitlines()) == 26


def test_pictures_are_seldom_and_the_last_one_comes() -> None:
    seldom = Seldom(1000)
    times = [step for step in range(1, 1001) if seldom.now(step)]
    assert len(times) <= PICTURES + 1
    assert times[-1] == 1000


def events_of(folder: Path) -> Any:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"images": 0}).Reload()


def test_tensorboard_gets_scalars_the_picture_and_the_numbers_by_tokens(tmp_path: Path) -> None:
    from PIL import Image

    sink = TensorBoard(tmp_path, 9)
    sink.step(metrics(3))
    sink.show(metrics(3), measured(4))
    sink.close()
    events = events_of(tmp_path)
    assert [(event.step, event.value) for event in events.Scalars("loss/en")] == [(300, 2.5)]
    (image,) = events.Images("irds/matrix")
    assert image.step == 300
    read = np.asarray(Image.open(io.BytesIO(image.encoded_image_string)))
    np.testing.assert_array_equal(read, picture(measured(4)))
    (text,) = events.Tensors("irds/values/text_summary")
    assert markdown(measured(4)).encode() in text.tensor_proto.string_val[0]


def test_a_run_that_continues_continues_its_panels(tmp_path: Path) -> None:
    """What was logged after the checkpoint is there once."""
    out = tmp_path / "run"
    assert train(out, "--tensorboard") == 0
    whole = events_of(out / "tensorboard")
    for path in sorted((out / "checkpoints").iterdir())[1:]:
        for each in sorted(path.rglob("*"), reverse=True):
            each.rmdir() if each.is_dir() else each.unlink()
        path.rmdir()
    assert train(out, "--tensorboard") == 0
    again = events_of(out / "tensorboard")
    assert len(list((out / "tensorboard").iterdir())) == 2
    for name in ("loss/a", "lr"):
        first = [(event.step, event.value) for event in whole.Scalars(name)]
        assert [(event.step, event.value) for event in again.Scalars(name)] == first
    steps = [image.step for image in whole.Images("irds/matrix")]
    assert steps == sorted(set(steps))
    assert [image.step for image in again.Images("irds/matrix")] == steps


class Recorder:
    """What the package wandb is asked for."""

    class Error(Exception):
        pass

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def init(self, **options: Any) -> Any:
        self.seen.append(options)
        return SimpleNamespace(log=lambda values, step: self.seen.append((step, values)), finish=self.finish)

    def finish(self) -> None:
        self.seen.append("end")

    def Image(self, data: np.ndarray, caption: str) -> Any:
        return ("image", data.shape, caption)

    def Table(self, columns: list[str], data: list[Any]) -> Any:
        return ("table", columns, len(data))


def test_weights_and_biases_gets_steps_and_the_matrix_under_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", fake)

    def begin(anew: bool = False) -> WeightsAndBiases:
        return WeightsAndBiases("project", "name", {"lr": 1}, tmp_path, 9, anew=anew)

    sink = begin()
    sink.step(metrics(3))
    sink.show(metrics(3), measured(4))
    sink.close()
    own = {"project": "project", "name": "name", "config": {"lr": 1}, "resume": "allow", "dir": str(tmp_path)}
    assert fake.seen[0] == {**own, "id": fake.seen[0]["id"]}
    assert fake.seen[1] == (3, metrics(3).scalars())
    step, shown = fake.seen[2]
    assert step == 3
    assert shown["irds/matrix"][:2] == ("image", picture(measured(4)).shape)
    assert shown["irds/values"] == ("table", ["source", "target", "value", "stderr"], 16)
    assert fake.seen[3] == "end"
    begin()
    assert fake.seen[4]["id"] == fake.seen[0]["id"]
    begin(anew=True)
    assert fake.seen[5]["id"] != fake.seen[0]["id"]


def test_a_finished_run_is_not_logged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    more = ("--wandb", "project", "--tensorboard")
    assert train(tmp_path / "run", *more) == 0
    logged, events = len(fake.seen), len(list((tmp_path / "run" / "tensorboard").iterdir()))
    assert logged > 12
    assert train(tmp_path / "run", *more) == 0
    assert (len(fake.seen), len(list((tmp_path / "run" / "tensorboard").iterdir()))) == (logged, events)
    assert train(tmp_path / "run", *more, "--force") == 0
    begun = [each["id"] for each in fake.seen if isinstance(each, dict)]
    assert len(set(begun)) == 2
    assert train(tmp_path / "run", "--force") == 0
    assert not (tmp_path / "run" / "wandb-run.txt").exists()


def test_weights_and_biases_that_is_not_there_or_refuses_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Recorder()

    def refuse(**_: Any) -> None:
        raise Recorder.Error("No API key configured.")

    fake.init = refuse  # type: ignore[method-assign,assignment]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with pytest.raises(UsageError, match="No API key configured"):
        WeightsAndBiases("project", "name", {}, tmp_path, 9, anew=False)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="pip install wandb"):
        WeightsAndBiases("project", "name", {}, tmp_path, 9, anew=False)
