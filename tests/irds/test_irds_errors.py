"""Each error, and that it names the step, language, rank or parameter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, batch, loss_of, make_model, validation  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import CoverageError, LanguageError, NonFiniteError, TrackerError  # noqa: E402

from shapleymix.errors import ShapleyMixError  # noqa: E402


def make(**options: Any) -> tuple[IRDS, Any]:
    model = make_model()
    settings: dict[str, Any] = {"val": validation(), "every": 1, "options": Options(measure_sequences=1)}
    return IRDS(model, LANGUAGES, **(settings | options)), loss_of(model)


def step(tracker: IRDS, loss_fn: Any, number: int, counts: tuple[int, ...] = (1, 1, 1, 1), **commit: Any) -> None:
    tracker.backward(loss_fn, *batch(counts, seed=number), step=number)
    tracker.commit(**({"lr": 0.1} | commit))


def test_unknown_languages_are_named() -> None:
    tracker, loss_fn = make()
    x, y, lang = batch((1, 1, 1, 1))
    with pytest.raises(LanguageError, match=r"step 7, rank 0: unknown language 'dee'\n  hint: did you mean 'de'"):
        tracker.backward(loss_fn, x, y, ["en", "dee", "fr", "zh"], step=7)
    with pytest.raises(LanguageError, match="step 7, rank 0: language index 4 is none of the 4"):
        tracker.backward(loss_fn, x, y, lang + 1, step=7)
    tracker.backward(loss_fn, x, y, ["en", "de", "de", "zh"], step=7)


def test_validation_must_match_the_languages() -> None:
    val = validation()
    with pytest.raises(LanguageError, match="no validation sequences of language 'zh'"):
        make(val={name: pair for name, pair in val.items() if name != "zh"})
    with pytest.raises(LanguageError, match="unknown language 'ja'"):
        make(val=val | {"ja": val["en"]})
    with pytest.raises(TrackerError, match="language 'en' have different lengths"):
        make(val=val | {"en": (val["en"][0], val["en"][1][:1])})


def test_a_language_unseen_for_long_is_named_but_one_absent_batch_is_legal() -> None:
    tracker, loss_fn = make(options=Options(unseen_limit=3, measure_sequences=1))
    for number, counts in enumerate([(2, 0, 1, 1), (2, 0, 1, 1), (1, 1, 1, 1), (2, 0, 1, 1), (2, 0, 1, 1)]):
        step(tracker, loss_fn, number, counts)
    with pytest.raises(LanguageError, match="step 5: no token of 'de' in 3 evaluations"):
        step(tracker, loss_fn, 5, (2, 0, 1, 1))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_a_loss_that_is_not_finite_is_placed(bad: float, engine: Any) -> None:
    tracker, loss_fn = make(engine=engine)
    step(tracker, loss_fn, 0)
    x, y, lang = batch((1, 1, 1, 1))
    french = x[lang == 2][0]
    tracker.backward(lambda x, y: loss_fn(x, y) * torch.where((x == french).all(1), bad, 1.0), x, y, lang, step=1)
    with pytest.raises(NonFiniteError, match="step 1, rank 0: the training loss of 'fr' is not finite"):
        tracker.commit(lr=0.1)
    assert tracker.ledger.count == 1


def test_a_gradient_that_is_not_finite_is_placed() -> None:
    tracker, loss_fn = make(engine="exact")
    tracker.backward(lambda x, y: loss_fn(x, y) + (loss_fn(x, y) * 0).sqrt(), *batch((1, 1, 1, 1)), step=0)
    with pytest.raises(NonFiniteError, match="step 0, rank 0: the gradient of the training sequences of 'en' is"):
        tracker.commit(lr=0.1)


def test_calls_out_of_order() -> None:
    tracker, loss_fn = make()
    with pytest.raises(TrackerError, match="commit without backward before the first step"):
        tracker.commit(lr=0.1)
    step(tracker, loss_fn, 0)
    with pytest.raises(TrackerError, match="commit without backward after step 0"):
        tracker.commit(lr=0.1)
    tracker.backward(loss_fn, *batch((1, 1, 1, 1)), step=1)
    with pytest.raises(TrackerError, match="backward of step 2, but step 1 is not committed"):
        tracker.backward(loss_fn, *batch((1, 1, 1, 1)), step=2)
    with pytest.raises(TrackerError, match="step 1 is not committed, so that it cannot be checkpointed"):
        tracker.state_dict()
    with pytest.raises(TrackerError, match="step 1: commit needs both grad_norm and max_norm"):
        tracker.commit(lr=0.1, max_norm=1.0)


def test_shapes_are_checked() -> None:
    tracker, loss_fn = make(engine="exact")
    x, y, lang = batch((1, 1, 1, 1))
    with pytest.raises(TrackerError, match="step 3, rank 0: x, y and lang have 4, 4 and 3 rows"):
        tracker.backward(loss_fn, x, y, lang[:3], step=3)
    with pytest.raises(TrackerError, match="step 3, rank 0: no token of the step has a label"):
        tracker.backward(loss_fn, x, torch.full_like(y, -100), lang, step=3)
    tracker.backward(loss_fn, x[:, :5], y[:, :5], lang, step=3)  # shorter than validation sequences: legal


def test_calls_of_a_step_divide_by_the_same_tokens() -> None:
    tracker, loss_fn = make(every=100)
    x, y, lang = batch((1, 1, 1, 1))
    for first, second, message in (
        (None, None, "step 0: backward is called again, but not always with `tokens`"),
        (None, 20, "step 0: backward is called again, but not always with `tokens`"),
        (20, None, "step 0: backward is called again, but not always with `tokens`"),
        (20, 21, "step 0: backward with tokens=21 after one with 20"),
    ):
        tracker.backward(loss_fn, x, y, lang, step=0, tokens=first)
        with pytest.raises(TrackerError, match=message):
            tracker.backward(loss_fn, x, y, lang, step=0, tokens=second)
        tracker.pending = None


def test_steps_only_grow() -> None:
    tracker, loss_fn = make(every=100)
    for wrong, message in ((2.5, "step is 2.5: it must be a whole number"), (-3, "step is -3: steps are counted from")):
        with pytest.raises(TrackerError, match=message):
            tracker.backward(loss_fn, *batch((1, 1, 1, 1)), step=wrong)  # type: ignore[arg-type]
    step(tracker, loss_fn, 5)
    state = tracker.state_dict()
    again, _ = make(every=100)
    again.load_state_dict(state)
    for each in (tracker, again):
        for late in (2, 5):
            with pytest.raises(TrackerError, match=f"step {late} comes after step 5, which is committed"):
                each.backward(loss_fn, *batch((1, 1, 1, 1)), step=late)


NAN = float("nan")


@pytest.mark.parametrize("every", [1, 100])
@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"lr": NAN}, "step 0: commit has lr=nan"),
        ({"lr": -0.1}, "step 0: commit has lr=-0.1"),
        ({"grad_norm": NAN, "max_norm": 1.0}, "step 0: grad_norm is nan"),
        ({"grad_norm": -1.0, "max_norm": 1.0}, "step 0: commit has grad_norm=-1.0"),
        ({"grad_norm": 1.0, "max_norm": 0.0}, "step 0: commit has max_norm=0.0"),
        ({"grad_norm": 1.0, "max_norm": NAN}, "step 0: commit has max_norm=nan"),
    ],
)
def test_numbers_of_a_commit_are_checked(every: int, numbers: dict[str, float], message: str) -> None:
    tracker, loss_fn = make(every=every)
    with pytest.raises(TrackerError, match=message):
        step(tracker, loss_fn, 0, **numbers)
    assert tracker.ledger.count == 0
    step(tracker, loss_fn, 200)


@pytest.mark.parametrize(
    "name", ["val_sequences", "measure_sequences", "numbers", "side", "unseen_limit", "total_steps"]
)
def test_options_that_cannot_be_meant(name: str) -> None:
    for value in (0, -1, 2.5):
        with pytest.raises(TrackerError, match=f"{name} is {value}: it must be a whole number from 1 on"):
            Options(**{name: value})
    for other in ("overhead",):
        with pytest.raises(TrackerError, match=f"{other} is 0.0: it must be above 0"):
            Options(**{other: 0.0})


@pytest.mark.parametrize(("engine", "every"), [("sketch", 1), ("exact", 1), ("auto", 100)])
@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (lambda losses: losses.mean(), r"\(\), expected shape \(\d+,\)"),
        (lambda losses: losses[:, None], r"\(\d+, 1\), expected"),
        (lambda losses: (losses, losses.sum()), r"\(\), expected"),
        (lambda losses: [losses, losses], "list, expected"),
    ],
)
def test_the_loss_must_be_that_of_each_sequence(engine: Any, every: int, wrong: Any, shape: str) -> None:
    tracker, loss_fn = make(engine=engine, every=every)
    with pytest.raises(TrackerError, match=f"measure: loss_fn gave {shape}"):
        tracker.backward(lambda x, y: wrong(loss_fn(x, y)), *batch((1, 1, 1, 1)), step=0)
    tracker.measure(loss_fn)
    with pytest.raises(TrackerError, match=f"step 0, rank 0: loss_fn gave {shape}"):
        tracker.backward(lambda x, y: wrong(loss_fn(x, y)), *batch((1, 1, 1, 1)), step=0)
    step(tracker, loss_fn, 1)


def test_labels_must_be_one_a_sequence() -> None:
    tracker, loss_fn = make()
    x, y, lang = batch((1, 1, 1, 1))
    for wrong, kind in (
        (lang[:, None], r"\(4, 1\) and type torch.int64"),
        (lang + 0.9, r"\(4,\) and type torch.float"),
    ):
        with pytest.raises(TrackerError, match=f"step 0, rank 0: lang has shape {kind}"):
            tracker.backward(loss_fn, x, y, wrong, step=0)


@pytest.mark.parametrize("options", [{"engine": "sketch"}, {"engine": "exact"}, {"order": 2}], ids=str)
@pytest.mark.parametrize("call", [1, 2])
def test_a_step_that_fails_is_dropped_and_the_next_one_counts(options: dict[str, Any], call: int) -> None:
    tracker, loss_fn = make(**options)
    whole, other = make(**options)
    x, y, lang = batch((1, 1, 1, 1))
    tokens = int((y != -100).sum())
    tracker.measure(loss_fn)
    if call == 1:
        tracker.backward(loss_fn, x, y, lang, step=0, tokens=2 * tokens)
    calls = []

    def broken(x: Any, y: Any) -> Any:
        calls.append(len(x))
        if len(calls) >= call:
            raise RuntimeError("out of memory")
        return loss_fn(x, y)

    with pytest.raises(RuntimeError, match="out of memory"):
        tracker.backward(broken, x, y, lang, step=0, tokens=2 * tokens)
    assert all((parameter.grad is not None) == (call == 1) for parameter in tracker.model.parameters())
    with pytest.raises(TrackerError, match="commit without backward"):
        tracker.commit(lr=0.1)
    tracker.model.zero_grad()
    step(tracker, loss_fn, 1)
    whole.measure(other)
    step(whole, other, 1)
    assert (tracker.ledger.phi == whole.ledger.phi).all()
    assert tracker.ledger.count == tracker.steps == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every is 0"),
        ({"every": 2.5}, "every is 2.5"),
        ({"engine": "ghost"}, "engine is 'ghost'"),
        ({"order": 3}, "order is 3"),
        ({"order": 2, "val": None}, "second order needs validation sequences"),
    ],
)
def test_settings_that_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrackerError, match=message):
        make(**options)


def test_languages_are_given_once_each() -> None:
    with pytest.raises(TrackerError, match="languages, each once"):
        IRDS(make_model(), ["en", "en"], val=None)


def test_something_must_be_trained() -> None:
    with pytest.raises(TrackerError, match="no parameter of the model is trained"):
        IRDS(make_model().requires_grad_(False), LANGUAGES, val=None)


def test_there_is_no_matrix_of_nothing() -> None:
    tracker, loss_fn = make()
    with pytest.raises(TrackerError, match="no step has been evaluated"):
        tracker.matrix()
    step(tracker, loss_fn, 0)
    assert tracker.matrix("raw").sv is not None
    with pytest.raises(TrackerError, match="was not measured for en, de, fr, zh"):
        tracker.matrix()
    with pytest.raises(TrackerError, match="kind is 'normal'"):
        tracker.matrix("normal")  # type: ignore[arg-type]


def test_there_is_no_value_of_what_was_never_seen() -> None:
    tracker, loss_fn = make()
    step(tracker, loss_fn, 0, (2, 0, 1, 1))
    with pytest.raises(TrackerError, match="no token of de in any of 1 evaluations"):
        tracker.matrix("raw")
    tracker, loss_fn = make(val=None)
    step(tracker, loss_fn, 0, (2, 2, 1, 2))
    with pytest.raises(TrackerError, match="no evaluation could estimate 'fr' on 'fr'"):
        tracker.matrix("raw")


def test_validation_free_trackers_take_losses() -> None:
    tracker, loss_fn = make(val=None)
    with pytest.raises(TrackerError, match="no validation set to measure on"):
        tracker.measure(loss_fn)
    with pytest.raises(LanguageError, match="unknown language 'ja'"):
        tracker.record_losses({"ja": 3.0})
    step(tracker, loss_fn, 0, (2, 2, 2, 2))
    tracker.record_losses(dict.fromkeys(LANGUAGES, 3.0))
    tracker.record_losses(dict.fromkeys(LANGUAGES, 2.0))
    assert tracker.efficiency == pytest.approx(tracker.ledger.phi.sum(0))


def test_the_log_needs_a_folder_to_write_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match="the log cannot be written"):
        make(out=tmp_path / "file" / "phi")


def test_all_are_errors_of_the_package() -> None:
    assert issubclass(CoverageError, ShapleyMixError)
    assert issubclass(NonFiniteError, ShapleyMixError)
