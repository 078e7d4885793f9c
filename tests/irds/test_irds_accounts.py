"""Schedule, ledger, standard errors, matrix."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_loop import Loop  # noqa: E402
from irds_models import LANGUAGES, batch, loss_of, make_model, relative, validation  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.batch import ValidationSet  # noqa: E402
from shapleymix_irds.errors import TrackerError  # noqa: E402
from shapleymix_irds.ledger import Blocks, Evaluation, Ledger  # noqa: E402
from shapleymix_irds.schedule import Schedule, extra_cost  # noqa: E402
from shapleymix_irds.world import World  # noqa: E402

from shapleymix.tables.transfer import read_transfer  # noqa: E402


def test_one_step_of_each_block_is_evaluated() -> None:
    schedule = Schedule(7, seed=3)
    chosen = [step for step in range(700) if schedule.evaluates(step)]
    assert ([step // 7 for step in chosen], len({step % 7 for step in chosen})) == (list(range(100)), 7)
    assert chosen != [step for step in range(700) if Schedule(7, seed=4).evaluates(step)]
    assert all(Schedule(1).evaluates(step) for step in range(5))


def test_auto_holds_the_overhead_and_aims_at_enough_evaluations() -> None:
    extra = extra_cost(4096, 1024, 1 / 3)
    every = Schedule.planned(extra, Options(overhead=0.05)).every
    assert extra / every <= 0.05 < extra / (every - 1)
    assert Schedule.planned(extra, Options(overhead=0.05, total_steps=100_000)).every == 200
    assert Schedule.planned(extra, Options(overhead=0.05, total_steps=1000)).every == every
    assert extra_cost(4096, 0, 1 / 3) < extra
    assert extra_cost(4096, 1024, 0.05) < extra


def test_auto_is_fixed_at_the_first_step_and_kept_over_a_resume() -> None:
    loop = Loop(every="auto", steps=1)
    assert loop.tracker.schedule is not None
    again = Loop(every="auto").resume(loop.checkpoint())
    assert again.tracker.schedule == loop.tracker.schedule


def shared(rotating: ValidationSet, evaluation: int, ranks: int) -> list[list[Any]]:
    """What each of so many ranks gets of an evaluation: (language, sequence) of those that count."""
    found = []
    for rank in range(ranks):
        pieces = rotating.share(evaluation, World(None, ranks, rank, torch.device("cpu")))
        rows = [zip(p.languages.tolist(), p.x.tolist(), p.weights.tolist(), strict=True) for p in pieces]
        found.append([(k, tuple(row)) for part in rows for k, row, weight in part if weight])
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8])
def test_ranks_divide_the_validation_sequences(ranks: int) -> None:
    """As many ranks as there may be, they pass the same sequences, each once, and as many pieces."""
    rotating = ValidationSet(validation(11), LANGUAGES, Options(val_sequences=2, seed=1))
    for evaluation in range(3):
        parts = shared(rotating, evaluation, ranks)
        assert sorted(chain.from_iterable(parts)) == sorted(shared(rotating, evaluation, 1)[0])
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("options", [{"engine": "sketch"}, {"engine": "exact"}], ids=str)
def test_every_evaluation_moves_on(options: dict[str, Any]) -> None:
    """Each evaluation passes `val_sequences` of each language once; evaluations go through all of the set."""
    model, val, passed = make_model(), validation(16), []
    options = options | {"options": Options(val_sequences=8, measure_sequences=1)}
    tracker = IRDS(model, LANGUAGES, val=val, every=1, **options)
    tracker.engine.first_pass.is_over = True  # what is passed to look at the model does not count
    known = {tuple(row.tolist()): (name, n) for name, (x, _) in val.items() for n, row in enumerate(x)}

    def loss_fn(x: Any, y: Any) -> Any:
        if torch.is_grad_enabled():
            passed.extend(known[key] for row in x if (key := tuple(row.tolist())) in known)
        return loss_of(model)(x, y)

    x, y, lang = batch((2, 2, 2, 2), seed=7)
    for step in range(2):
        first = len(passed)
        for part in torch.arange(8).split(2):
            tracker.backward(loss_fn, x[part], y[part], lang[part], step=step, tokens=int((y != -100).sum()))
        tracker.commit(lr=0.1)
        now = set(passed[first:])
        assert [sum(name == each for name, _ in now) for each in LANGUAGES] == [8] * 4
        assert len(passed) - first == 32
    assert len(set(passed)) == 64


def test_phi_is_unbiased_under_amortising() -> None:
    """Over all choices in a block, the weighted contributions average to the sum over its steps."""
    grams = np.random.default_rng(0).normal(size=(6, 2, 2))
    one, zero = np.ones((2, 2)), np.zeros(2)
    totals = []
    for chosen in range(6):
        ledger = Ledger(2)
        ledger.add(Evaluation(chosen, 6.0, 0.5, 0.8, grams[chosen], one[0], zero))
        totals.append(ledger.phi)
    assert np.allclose(np.mean(totals, 0), 0.4 * grams.sum(0))


def test_standard_errors_cover_in_spite_of_drift() -> None:
    """Successive differences: 95% intervals hold the truth about 95% of the time although the mean drifts."""
    rng, hits, count = np.random.default_rng(0), 0, 400
    drift = np.linspace(3.0, 0.5, 60)
    for _ in range(count):
        ledger = Ledger(1)
        for step, level in enumerate(drift):
            gram = np.full((1, 1), level + rng.normal())
            ledger.add(Evaluation(step, 1.0, 1.0, 1.0, gram, np.ones(1), np.zeros(1)))
        hits += abs(ledger.phi[0, 0] - drift.sum()) < 1.96 * ledger.stderr[0, 0]
    assert 0.91 < hits / count < 0.98


def booked(contributions: Any) -> Ledger:
    """A ledger of contributions (n, K, K)."""
    ledger, ones = Ledger(contributions.shape[1]), np.ones(contributions.shape[1])
    for step, gram in enumerate(contributions):
        ledger.add(Evaluation(step, 1.0, 1.0, 1.0, gram, ones, ones))
    return ledger


@pytest.mark.parametrize("count", [2, 5, 23])
def test_errors_of_calibrated_values_cover_whatever_the_column_weighs(count: int) -> None:
    """90% intervals of shares that come with noise, while what they are shares of falls to a tenth."""
    rng, hits = np.random.default_rng(count), []
    shares = np.array([[0.5, 0.2], [0.5, 0.8]])
    for _ in range(300):
        noise = rng.normal(size=(count, 2)) * 0.05
        fall = np.geomspace(1, 0.1, count)[:, None, None] ** (count > 20)
        blocks = Blocks()
        contributions = fall * (shares + np.stack([noise, -noise], 1))
        for each in contributions:
            blocks.add(each)
        errors, total = blocks.stderr(np.ones((2, 2))), contributions.sum(0)
        hits.append(np.abs(total / total.sum(0) - shares)[0] < 1.645 * (errors / total.sum(0))[0])
    assert 0.85 < np.mean(hits) < 0.97


def test_errors_of_calibrated_values_see_what_lasts() -> None:
    """Where a share wanders from stretch to stretch, errors are of the stretches and not of neighbours."""
    rng, hits, near = np.random.default_rng(0), [], []
    for _ in range(150):
        wander = np.repeat(rng.normal(size=10) * 0.1, 12)[:, None]
        ledger = booked(np.stack([0.5 + wander, 0.5 - wander], 1) * np.ones((1, 1, 2)))
        errors = ledger.blocks.stderr(ledger.correction)
        off = abs(ledger.phi[0, 0] - 60)
        hits.append(off < 1.645 * errors[0, 0])
        near.append(off < 1.645 * ledger.stderr[0, 0])
    assert 0.8 < np.mean(hits) < 0.95
    assert np.mean(near) < 0.5


def test_a_column_that_cannot_be_calibrated_is_named(tmp_path: Path) -> None:
    loop = Loop(steps=2, every=1)
    loop.tracker.losses.start = dict.fromkeys(LANGUAGES, 3.0)
    loop.tracker.losses.latest = dict(zip(LANGUAGES, (2.0, 3.5, 2.0, 2.0), strict=True))
    loop.tracker.ledger.total = np.abs(loop.tracker.ledger.total) * [1, 1, -1, 1]
    with pytest.raises(TrackerError, match=r"(?s)'de' 0.5000\n.*hint"):
        loop.tracker.save(tmp_path / "sv.csv")
    loop.tracker.losses.latest["de"] = 2.5
    with pytest.raises(TrackerError, match=r"(?s) fr: .*hint"):
        loop.tracker.save(tmp_path / "sv.csv")
    loop.tracker.save(tmp_path / "sv_raw.csv", "raw")


def test_losses_are_measured_without_dropout_and_modes_are_kept() -> None:
    model = torch.nn.Sequential(make_model(), torch.nn.Dropout(0.5))
    model[0].norm.eval()
    modes = [module.training for module in model.modules()]
    tracker = IRDS(model, LANGUAGES, val=validation(5), options=Options(measure_sequences=5))
    found = tracker.measure(loss_of(model))
    assert [module.training for module in model.modules()] == modes
    with torch.no_grad():
        expected = [loss_of(model[0])(x, y).sum() / (y != -100).sum() for x, y in validation(5).values()]
    assert relative(found, expected) < 1e-6


def test_calibrated_columns_sum_to_the_measured_drop(tmp_path: Path) -> None:
    loop = Loop(steps=60, every=1)
    start = loop.tracker.losses.start
    end = loop.tracker.measure(loop.loss_fn)
    drop = np.array([start[name] for name in LANGUAGES]) - end
    assert (drop > 0).any()
    raw = loop.tracker.matrix("raw")
    assert np.allclose(list(raw.provenance["efficiency"].values()), raw.sv.sum(0) / drop)
    loop.tracker.losses.start = {
        name: float(e + 0.5 + k) for k, (name, e) in enumerate(zip(LANGUAGES, end, strict=True))
    }
    loop.tracker.ledger.total = np.abs(loop.tracker.ledger.total)
    matrix = loop.tracker.matrix()
    assert np.allclose(matrix.sv.sum(0), 0.5 + np.arange(4))
    assert matrix.provenance["evaluations"] == matrix.provenance["steps"] == 60
    assert matrix.provenance["N"] == sum(
        p.numel() for n, p in loop.model.named_parameters() if not n.startswith(("embed", "head"))
    )
    assert matrix.provenance["D"] == sum(int((batch((2, 1, 3, 2), seed=s)[1] != -100).sum()) for s in range(60))
    loop.tracker.save(tmp_path / "sv.csv")
    assert np.allclose(read_transfer(tmp_path / "sv.csv").sv, matrix.sv)


@pytest.mark.parametrize("most", [1, 100, 8192])
def test_a_validation_pass_has_no_more_tokens_than_asked(most: int) -> None:
    """Or one sequence: validation takes no more memory than training."""
    options = Options(val_sequences=6, seed=1, pass_tokens=most)
    passes = ValidationSet(validation(11), LANGUAGES, options).share(0, World(None, 1, 0, torch.device("cpu")))
    length = passes[0].y.shape[1]
    assert max(len(each.y) for each in passes) == min(max(1, most // length), 24)
