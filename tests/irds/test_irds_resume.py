"""The tracker's log and state: a run that was stopped goes on as if it had not been."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import polars as pl  # noqa: E402
from irds_log import read_log  # noqa: E402
from irds_loop import Loop  # noqa: E402
from irds_models import LANGUAGES, loss_of  # noqa: E402
from shapleymix_irds import ledger as log  # noqa: E402
from shapleymix_irds.errors import ResumeError  # noqa: E402
from shapleymix_irds.ledger import Ledger, segments  # noqa: E402

from shapleymix.tables.transfer import read_transfer  # noqa: E402


def test_the_log_gives_the_matrix_again(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "phi", steps=20)
    loop.tracker.measure(loop.loss_fn)
    loop.tracker.save(tmp_path / "sv.parquet", "raw")
    languages, evaluations = read_log(tmp_path / "phi")
    ledger = Ledger(len(languages))
    for evaluation in evaluations:
        ledger.add(evaluation)
    assert languages == LANGUAGES
    assert np.array_equal(ledger.phi, loop.tracker.ledger.phi)
    assert np.array_equal(ledger.stderr, loop.tracker.ledger.stderr)
    read = read_transfer(tmp_path / "sv.parquet")
    assert np.allclose(read.sv, ledger.phi, rtol=1e-12)


def steps_in(folder: Path) -> list[int]:
    """The steps that are logged."""
    return pl.concat(map(pl.read_parquet, segments(folder)))["step"].unique(maintain_order=True).to_list()


def passing(model: Any) -> Any:
    """A loss in which the first matrix takes a pass a language."""
    weight = model.blocks[0].qkv.weight
    return lambda x, y: loss_of(model)(x, y) + 1e-3 * torch.einsum("bs,oi->b", x.double(), weight)


@pytest.mark.parametrize("options", [{}, {"engine": "sketch"}, {"val": None}, {"engine": "sketch", "loss_of": passing}])
def test_a_resumed_run_is_the_run_never_stopped(options: dict[str, Any], tmp_path: Path) -> None:
    whole = Loop(tmp_path / "whole", steps=17, **options)
    whole.tracker.state_dict()
    first = Loop(tmp_path / "parts", steps=7, **options)
    checkpoint = first.checkpoint()
    first.run(5)  # then killed; its log runs ahead of the checkpoint
    first.tracker.state_dict()
    assert max(steps_in(tmp_path / "parts")) > 7
    second = Loop(tmp_path / "parts", **options).resume(checkpoint)
    assert max(steps_in(tmp_path / "parts")) < 7
    second.run(10)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert np.array_equal(whole.tracker.ledger.phi, second.tracker.ledger.phi)
    assert whole.tracker.state_dict() == second.tracker.state_dict()
    ours, theirs = (pl.concat(map(pl.read_parquet, segments(tmp_path / name))) for name in ("parts", "whole"))
    assert ours.equals(theirs)
    assert second.tracker.provenance() == whole.tracker.provenance()


def test_a_log_of_many_segments_is_cut_where_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "ROWS", 3 * len(LANGUAGES) ** 2)
    stopped = Loop(tmp_path, steps=4, every=1)
    for more in (1, 3, 3):
        checkpoint = stopped.checkpoint()
        stopped.run(2)  # then killed
        stopped = Loop(tmp_path, every=1).resume(checkpoint)
        assert steps_in(tmp_path) == list(range(stopped.step))
        stopped.run(more)
    stopped.tracker.state_dict()
    assert steps_in(tmp_path) == list(range(11))


def test_a_run_killed_before_its_first_checkpoint_starts_its_log_again(tmp_path: Path) -> None:
    Loop(tmp_path, steps=10).tracker.state_dict()
    again = Loop(tmp_path, steps=4)
    again.tracker.state_dict()
    assert max(steps_in(tmp_path)) < 4


def test_another_run_cannot_be_resumed() -> None:
    checkpoint = Loop(steps=4).checkpoint()
    with pytest.raises(ResumeError, match="the checkpoint has languages"):
        Loop(languages=LANGUAGES[::-1]).resume(checkpoint)
    with pytest.raises(ResumeError, match="every 3, this tracker has 4"):
        Loop(every=4).resume(checkpoint)


@pytest.mark.parametrize("state", [{}, {"irds": ""}, {"irds": "{}"}, {"irds": "[]"}, {"irds": None}], ids=str)
def test_what_is_no_state_of_a_tracker_is_refused(state: Any) -> None:
    with pytest.raises(ResumeError, match="this is no state of a tracker: "):
        Loop().tracker.load_state_dict(state)
    partial = json.loads(Loop(steps=2).tracker.state_dict()["irds"])
    del partial["ledger"]["known"]
    with pytest.raises(ResumeError, match="no state of a tracker: KeyError: 'known'"):
        Loop().tracker.load_state_dict({"irds": json.dumps(partial)})


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_the_state_goes_through_a_distributed_checkpoint(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    loop, again = Loop(steps=8), Loop()
    dcp.save({"tracker": loop.tracker}, checkpoint_id=tmp_path, no_dist=True)
    dcp.load({"tracker": again.tracker}, checkpoint_id=tmp_path, no_dist=True)
    assert np.array_equal(again.tracker.ledger.phi, loop.tracker.ledger.phi)
    assert again.tracker.state_dict() == loop.tracker.state_dict()
