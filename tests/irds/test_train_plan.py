"""When a run is measured: the overhead that is promised, from the settings alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("torch")

from shapleymix_irds.train.config import TrainConfig
from shapleymix_irds.train.plan import FEWEST, MOST, plan_of

from shapleymix.errors import UsageError
from tests.irds.training import STEPS, train


@pytest.mark.parametrize("size", ["600k", "1M", "10M", "1B"])
@pytest.mark.parametrize("overhead", [0.1, 0.2])
def test_auto_holds_the_overhead_that_is_asked_for(size: str, overhead: float) -> None:
    plan = plan_of(TrainConfig(tokens=size, irds_overhead=overhead), 4)
    assert plan.cost <= overhead


def test_auto_does_not_evaluate_more_often_than_is_useful_nor_too_seldom() -> None:
    runs = [TrainConfig(tokens=size) for size in ("40k", "300k", "1M", "10M", "1B")]
    found = [config.steps // plan_of(config, 4).every for config in runs]
    assert found[:2] == [runs[0].steps, FEWEST]
    assert found == sorted(found)
    assert found[-1] == 500


def test_the_plan_depends_on_settings_alone() -> None:
    config = TrainConfig(tokens="1M")
    assert plan_of(config, 4) == plan_of(TrainConfig(tokens="1M", out="elsewhere", log_every=3), 4)
    assert plan_of(TrainConfig(irds_every="7"), 4).every == 7
    assert plan_of(TrainConfig(irds_val=8), 4).every > plan_of(config, 4).every
    assert plan_of(TrainConfig(irds_overhead=0.5), 4).every < plan_of(config, 4).every


def test_the_loss_drop_is_measured_a_few_times_along_a_run() -> None:
    for size in ("40k", "300k", "1M", "100M"):
        config = TrainConfig(tokens=size)
        measured = plan_of(config, 4).measured
        assert 2 <= len(measured) <= MOST + 1
        assert max(measured) == config.steps
    assert len(measured) == MOST + 1
    assert plan_of(TrainConfig(irds_fresh=True), 4).measured == {244}


def test_more_steps_a_block_than_a_run_has_are_refused() -> None:
    with pytest.raises(UsageError, match="more than the run's 244 steps"):
        TrainConfig(irds_every="245")
    assert TrainConfig(irds_every="245", irds=False).steps == 244


def test_a_share_of_next_to_nothing_is_refused_before_the_first_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for mixture, few in (("a=1e-300,b=.5,c=.5", "1e-300 has 4.2e-299"), ("a=.1,b=.45,c=.45", "0.1 has 4.2")):
        assert train(tmp_path / "run", "--mixture", mixture) == 2
        assert f"'a' with ratio {few} sequences to be measured by (1 step of 2 of 12 steps" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()
    assert train(tmp_path / "run", "--mixture", "a=.12,b=.44,c=.44") == 0


def test_overhead_and_efficiency_are_shown_along_a_run_and_at_its_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "run", "--eval-at", "", "--irds-every", "3") == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    known = [line["step"] for line in lines if line["irds_overhead"] is not None]
    assert known == list(range(known[0], STEPS + 1))
    assert known[0] <= 3
    ratios = [line["efficiency"]["a"] for line in lines]
    assert ratios[0] is None
    assert len({ratio for ratio in ratios if ratio is not None}) >= 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("IRDS: 4 evaluations, 1 step of 3; ")
    assert f"efficiency {min(lines[-1]['efficiency'].values()):.2g} to" in last


def test_no_overhead_is_shown_where_every_step_is_evaluated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--irds-every", "1") == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["irds_overhead"] is None for line in lines)
    assert "added time not known" in capfd.readouterr().err.splitlines()[-1]


def test_a_time_begins_with_backward_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    from shapleymix_irds import measuring

    clock = iter([0.0, 1.0, 5.0, 8.0, 100.0, 102.0])
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(clock))
    watch = measuring.Stopwatch()
    with watch.measurement():  # 0 to 1
        pass
    watch.begin()  # 5
    watch.lap(evaluated=True)  # 8: 3 seconds
    assert math.isnan(watch.overhead(10))
    watch.restart()
    watch.begin()  # 100
    watch.lap(evaluated=False)  # 102: 2 seconds
    assert watch.overhead(10) == pytest.approx((3 / 2 - 1) / 10 + 1 / (2 * 2))
