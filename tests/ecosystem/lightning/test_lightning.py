"""Lightning 2.6: the callback leaves training as it is, and phi is that of the naive reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")
sys.path.insert(0, str(Path(__file__).parent))

import torch
from lightning_runs import (
    ALONE,
    PLAIN,
    TOGETHER,
    TOLERANCE,
    Case,
    Net,
    batches_of,
    callback_of,
    compare,
    fit,
    loader,
    sixteen,
    trainer_of,
    weights,
)
from shapleymix_irds.errors import TrackerError

pytestmark = [pytest.mark.ecosystem, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_weights_are_those_of_an_untracked_run_and_phi_is_right(case: Case) -> None:
    told = compare(case)
    assert told["worst"] == []
    assert told["evaluations"] == -(-case.batches // case.calls)
    assert told["phi"] < TOLERANCE


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("lightning")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = str(Path(__file__).with_name("lightning_runs.py"))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*command, script, str(folder)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("case", TOGETHER, ids=lambda case: case.name)
def test_two_ranks_train_as_without_the_tracker(case: Case, two_ranks: list[dict[str, Any]]) -> None:
    for rank in two_ranks:
        told = rank[case.name]
        assert "crashed" not in told, told["crashed"]
        assert told["worst"] == []
        assert told["phi"] < TOLERANCE


@pytest.mark.parametrize("name", ["bf16-mixed", "bf16-true", "16-mixed"])
def test_low_precision_trains_as_without_the_tracker(name: str) -> None:
    plugins = [partial(sixteen, 1024.0)] if name == "16-mixed" else []
    told = compare(Case(name, precision=name, plugins=plugins, clip=0.1, calls=2))
    assert told["worst"] == []
    assert told["evaluations"] == 4
    assert told["phi"] < (0.002 if name == "16-mixed" else 0.05), "rounding, no factor"


def test_steps_that_a_scaler_skips_count_for_nothing() -> None:
    told = compare(Case("overflow", precision="16-mixed", plugins=[partial(sixteen, 2.0**21)], calls=2, batches=9))
    assert told["worst"] == []
    assert 1 <= told["evaluations"] < 5


def test_a_resumed_run_counts_nothing_twice(tmp_path: Path) -> None:
    whole = callback_of(PLAIN)
    expected = weights(fit(PLAIN, [whole], max_epochs=2))
    first, second = callback_of(PLAIN), callback_of(PLAIN)
    net, path = Net(PLAIN), tmp_path / "half.ckpt"
    trainer = trainer_of(PLAIN, [first])
    trainer.fit(net, loader(batches_of(PLAIN, 0)))
    trainer.save_checkpoint(path)
    found = weights(fit(PLAIN, [second], ckpt_path=str(path), max_epochs=2))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert whole.tracker is not None
    assert second.tracker is not None
    assert second.tracker.ledger.count == whole.tracker.ledger.count == 14
    assert (second.tracker.ledger.phi == whole.tracker.ledger.phi).all()


def test_the_matrices_are_written_at_the_end(tmp_path: Path) -> None:
    irds = callback_of(PLAIN, out=tmp_path)
    fit(PLAIN, [irds], max_epochs=3)
    assert {"sv_raw.csv", "sv_raw.csv.json"} <= {path.name for path in tmp_path.iterdir()}


def test_second_order_is_measured_before_the_weights_change() -> None:
    irds = callback_of(Case("second", order=2))
    fit(Case("second", order=2), [irds])
    assert irds.tracker is not None
    assert irds.tracker.ledger.count == 7


class Grouped(Net):
    """The first parameter group is frozen; a fused optimiser takes the loss's scale out by itself."""

    fused = False

    def configure_optimizers(self) -> Any:
        first, *others = self.parameters()
        first.requires_grad_(False)
        return torch.optim.SGD([{"params": [first]}, {"params": others}], 0.1, fused=self.fused)


class Fused(Grouped):
    fused = True


def test_second_order_of_a_fused_optimiser_takes_the_scale_out() -> None:
    """Weights were moved by half of a step that was 1,024 times too long; a frozen group shifted other factors."""
    case = Case("fused", order=2, precision="16-mixed", plugins=[partial(sixteen, 1024.0)])
    found = []
    for net in (Grouped, Fused):
        irds = callback_of(case)
        trainer_of(case, [irds]).fit(net(case), loader(batches_of(case, 0)))
        assert irds.tracker is not None
        found.append(torch.as_tensor(irds.tracker.ledger.phi))
    assert float((found[1] - found[0]).abs().max() / found[0].abs().max()) < 1e-3


class Clipping(Net):
    """Clips in its own way."""

    def configure_gradient_clipping(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        torch.nn.utils.clip_grad_value_(self.parameters(), 1e-3)


class Twice(Net):
    """Differentiates twice a batch."""

    def training_step(self, batch: Any, number: int) -> None:
        for _ in range(2):
            self.manual_backward(self(batch["x"]).square().mean())


class Bare(Net):
    """Differentiates without Lightning."""

    def training_step(self, batch: Any, number: int) -> None:
        self(batch["x"]).square().mean().backward()
        self.optimizers().step()  # type: ignore[union-attr]


class Nothing(Net):
    """Skips its second batch."""

    def training_step(self, batch: Any, number: int) -> Any:
        return None if number == 1 else super().training_step(batch, number)


@pytest.mark.parametrize(
    ("kind", "case", "message"),
    [
        (Clipping, PLAIN, "step 0: gradients were changed between the backward pass and the optimiser"),
        (Twice, Case("twice", manual=True), "a batch has more than one backward pass"),
        (Bare, Case("bare", manual=True), "whose backward pass Lightning has not seen"),
        (Nothing, Case("accumulated", calls=2), "a batch among several had no backward pass"),
    ],
)
def test_what_would_be_measured_wrongly_is_refused(kind: type[Net], case: Case, message: str) -> None:
    irds = callback_of(case)
    with pytest.raises(TrackerError, match=message):
        trainer_of(case, [irds]).fit(kind(case), loader(batches_of(case, 0)))
    assert torch.overrides._len_torch_function_stack() == 0, "nothing is watched any more"


class Several(Net):
    """Two optimisers."""

    def configure_optimizers(self) -> Any:
        first, *rest = self.parameters()
        return [torch.optim.SGD([first], 0.1), torch.optim.SGD(rest, 0.1)]


def test_several_optimisers_are_refused() -> None:
    case = Case("several", manual=True)
    with pytest.raises(TrackerError, match="the module has 2 optimisers, expected 1"):
        trainer_of(case, [callback_of(case)]).fit(Several(case), loader(batches_of(case, 0)))


def test_a_batch_that_training_skips_counts_for_nothing() -> None:
    irds = callback_of(PLAIN)
    net, plain = Nothing(PLAIN), Nothing(PLAIN)
    trainer_of(PLAIN, [irds]).fit(net, loader(batches_of(PLAIN, 0)))
    trainer_of(PLAIN, []).fit(plain, loader(batches_of(PLAIN, 0)))
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), plain.parameters(), strict=True))
    assert irds.tracker is not None
    assert irds.tracker.ledger.count == 6


def test_a_batch_without_labels_says_where_they_were_looked_for() -> None:
    irds = callback_of(PLAIN, lang="language")
    with pytest.raises(TrackerError, match="step 0, rank 0: the batch has no labels at 'language'"):
        fit(PLAIN, [irds])


class Rates(Net):
    """The embedding has a learning rate of its own."""

    def configure_optimizers(self) -> Any:
        first, *rest = self.parameters()
        return torch.optim.AdamW([{"params": rest, "lr": 0.01}, {"params": [first], "lr": self.case.rate}])


class Plain(Net):
    """One learning rate."""

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), 0.01)


def phi_of(case: Case, kind: type[Net] = Net, **settings: Any) -> Any:
    irds = callback_of(case, **settings)
    trainer_of(case, [irds]).fit(kind(case), loader(batches_of(case, 0)))
    assert irds.tracker is not None
    return irds.tracker.ledger.phi


def test_each_parameter_group_has_its_learning_rate() -> None:
    """In one step phi is linear in the rates, so that runs tell each group's part."""
    one, two, four = (phi_of(Case("rates", batches=1, clip=0.1, rate=rate), Rates) for rate in (0.01, 0.02, 0.04))
    assert abs(one - phi_of(Case("one rate", batches=1, clip=0.1), Plain)).max() < 1e-12
    assert abs((four - two) - 2 * (two - one)).max() < 1e-12
    assert abs(two - one).max() > 1e-6


def test_a_short_last_step_is_divided_as_lightning_divides_it() -> None:
    """Without validation sequences the gradient that stands in for theirs is whole, the other one is half."""
    whole = phi_of(Case("whole", batches=1), val=None, loss_fn=None)
    half = phi_of(Case("half", batches=1, calls=2), val=None, loss_fn=None)
    assert abs(whole).max() > 1e-6
    assert abs(half - whole / 2).max() < 1e-12
