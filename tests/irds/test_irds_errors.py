"""Each error, and that it names the step, language, rank or parameter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from irds_models import LANGUAGES, batch, loss_of, make_model, validation  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.errors import LanguageError, NonFiniteError, TrackerError  # noqa: E402

ONES = (1, 1, 1, 1)


def make(**options: Any) -> tuple[IRDS, Any]:
    model = make_model()
    settings: dict[str, Any] = {"val": validation(), "every": 1, "options": Options(measure_sequences=1)}
    return IRDS(model, LANGUAGES, **(settings | options)), loss_of(model)


def step(tracker: IRDS, loss_fn: Any, number: int, counts: tuple[int, ...] = ONES, **commit: Any) -> None:
    tracker.backward(loss_fn, *batch(counts, seed=number), step=number)
    tracker.commit(**({"lr": 0.1} | commit))


X, Y, LANG = batch(ONES)


def test_a_step_without_labels_that_is_not_evaluated_has_gradients_of_zero() -> None:
    """Its weighed losses are zero, and so are its tokens; on evaluated steps it is refused."""
    tracker, loss_fn = make(every=1_000)
    step(tracker, loss_fn, 0)
    tracker.model.zero_grad()
    none = torch.full_like(Y, -100)
    assert not tracker.evaluates(1)
    tracker.backward(lambda x, y: loss_fn(x, Y) * (y != -100).any(dim=1), X, none, LANG, step=1)
    assert all(float(parameter.grad.abs().max()) == 0 for parameter in tracker.model.parameters())


@pytest.mark.parametrize(
    ("changed", "kind", "match"),
    [
        ({"lang": ["en", "dee", "fr", "zh"]}, LanguageError, "step 7, rank 0: .*'dee'\n  hint: .*'de'"),
        ({"lang": LANG + 1}, LanguageError, "step 7, rank 0: .* 4 "),
        ({"lang": LANG[:3]}, TrackerError, r"step 7, rank 0: lang .*\(3,\)"),
        ({"lang": LANG[:, None]}, TrackerError, r"step 7, rank 0: lang .*\(4, 1\)"),
        ({"lang": LANG + 0.9}, TrackerError, "step 7, rank 0: lang .*float"),
        ({"y": torch.full_like(Y, -100)}, TrackerError, "step 7, rank 0: .*label"),
        ({"loss_fn": lambda losses, _: losses.mean()}, TrackerError, r"step 7, rank 0: loss_fn .*\(\)"),
        ({"loss_fn": lambda losses, _: losses[:, None]}, TrackerError, "step 7, rank 0: loss_fn .*, 1"),
        ({"loss_fn": lambda losses, _: (losses, losses.sum())}, TrackerError, r"step 7, rank 0: loss_fn .*\(\)"),
    ],
)
def test_what_a_call_is_given_is_checked(changed: dict[str, Any], kind: Any, match: str) -> None:
    """The step is dropped then, and the next one counts."""
    tracker, loss_fn = make()
    tracker.measure(loss_fn)
    wrong: Callable[..., Any] = changed.get("loss_fn", lambda losses, _: losses)
    given = (changed.get("x", X), changed.get("y", Y), changed.get("lang", LANG))
    with pytest.raises(kind, match=match):
        tracker.backward(lambda x, y: wrong(loss_fn(x, y), y), *given, step=7)
    assert all(parameter.grad is None for parameter in tracker.model.parameters())
    step(tracker, loss_fn, 8)
    assert tracker.ledger.count == tracker.steps == 1


@pytest.mark.parametrize(
    ("change", "kind", "match"),
    [
        (lambda val: {name: pair for name, pair in val.items() if name != "zh"}, LanguageError, "'zh'"),
        (lambda val: val | {"ja": val["en"]}, LanguageError, "'ja'"),
        (lambda val: val | {"en": (val["en"][0], val["en"][1][:1])}, TrackerError, "'en'"),
    ],
)
def test_validation_must_match_the_languages(change: Any, kind: Any, match: str) -> None:
    with pytest.raises(kind, match=match):
        make(val=change(validation()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("engine", ["sketch", "exact"])
def test_a_loss_or_gradient_that_is_not_finite_is_placed(bad: float, engine: Any) -> None:
    tracker, loss_fn = make(engine=engine)
    step(tracker, loss_fn, 0)
    french = X[LANG == 2][0]
    tracker.backward(lambda x, y: loss_fn(x, y) * torch.where((x == french).all(1), bad, 1.0), X, Y, LANG, step=1)
    with pytest.raises(NonFiniteError, match="step 1: the gradient of the training sequences of 'fr'"):
        tracker.commit(lr=0.1)
    tracker.backward(lambda x, y: loss_fn(x, y) + (loss_fn(x, y) * 0).sqrt(), X, Y, LANG, step=2)
    with pytest.raises(NonFiniteError, match="step 2: the gradient of the training sequences of 'en'"):
        tracker.commit(lr=0.1)
    assert tracker.ledger.count == 1


def test_calls_out_of_order() -> None:
    tracker, loss_fn = make()
    with pytest.raises(TrackerError):
        tracker.commit(lr=0.1)
    step(tracker, loss_fn, 0)
    with pytest.raises(TrackerError):
        tracker.commit(lr=0.1)
    tracker.backward(loss_fn, *batch(ONES), step=1)
    with pytest.raises(TrackerError):
        tracker.backward(loss_fn, *batch(ONES), step=2)
    with pytest.raises(TrackerError):
        tracker.state_dict()
    step(again := make()[0], loss_of(again.model), 5)
    for late in (2, 5, -1):
        with pytest.raises(TrackerError, match=f"step {late} "):
            step(again, loss_of(again.model), late)


@pytest.mark.parametrize(("first", "second"), [(None, None), (None, 20), (20, None), (20, 21)])
def test_calls_of_a_step_divide_by_the_same_tokens(first: int | None, second: int | None) -> None:
    tracker, loss_fn = make(every=100)
    tracker.backward(loss_fn, *batch(ONES), step=0, tokens=first)
    with pytest.raises(TrackerError, match=r"step 0: .*tokens="):
        tracker.backward(loss_fn, *batch(ONES), step=0, tokens=second)


@pytest.mark.parametrize(
    "numbers",
    [
        {"lr": float("nan")}, {"grad_norm": float("nan"), "max_norm": 1.0}, {"grad_norm": -1.0, "max_norm": 1.0},
        {"grad_norm": 1.0, "max_norm": 0.0}, {"max_norm": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_numbers_of_a_commit_are_checked(numbers: dict[str, float]) -> None:
    tracker, loss_fn = make()
    with pytest.raises(TrackerError, match="step 0: "):
        step(tracker, loss_fn, 0, **numbers)
    assert tracker.ledger.count == 0
    step(tracker, loss_fn, 200)


@pytest.mark.parametrize("options", [{"engine": "sketch"}, {"engine": "exact"}], ids=str)
@pytest.mark.parametrize("call", [1, 2])
def test_a_step_that_fails_is_dropped_and_the_next_one_counts(options: dict[str, Any], call: int) -> None:
    tracker, loss_fn = make(**options)
    whole, other = make(**options)
    tokens = int((Y != -100).sum())
    tracker.measure(loss_fn)
    if call == 1:
        tracker.backward(loss_fn, X, Y, LANG, step=0, tokens=2 * tokens)
    calls = []

    def broken(x: Any, y: Any) -> Any:
        calls.append(len(x))
        if len(calls) >= call:
            raise RuntimeError("out of memory")
        return loss_fn(x, y)

    with pytest.raises(RuntimeError, match="out of memory"):
        tracker.backward(broken, X, Y, LANG, step=0, tokens=2 * tokens)
    assert all((parameter.grad is not None) == (call == 1) for parameter in tracker.model.parameters())
    tracker.model.zero_grad()
    step(tracker, loss_fn, 1)
    whole.measure(other)
    step(whole, other, 1)
    assert (tracker.ledger.phi == whole.ledger.phi).all()
    assert tracker.ledger.count == tracker.steps == 1


@pytest.mark.parametrize("options", [{"every": 0}, {"every": 2.5}, {"engine": "ghost"}, {"side": 0}])
def test_settings_that_cannot_be_meant(options: dict[str, Any]) -> None:
    with pytest.raises(TrackerError, match=next(iter(options))):
        (Options if "side" in options else make)(**options)


def test_a_tracker_needs_languages_something_to_train_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TrackerError, match="languages"):
        IRDS(make_model(), ["en", "en"], val=None)
    with pytest.raises(TrackerError, match="no parameter"):
        IRDS(make_model().requires_grad_(False), LANGUAGES, val=None)
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackerError, match=str(tmp_path / "file" / "phi")):
        make(out=tmp_path / "file" / "phi")


def test_there_is_no_matrix_of_what_was_never_seen_or_measured() -> None:
    tracker, loss_fn = make()
    with pytest.raises(TrackerError, match="no step"):
        tracker.matrix()
    step(tracker, loss_fn, 0, (2, 0, 1, 1))
    with pytest.raises(TrackerError, match="no token of de "):
        tracker.matrix("raw")
    step(tracker, loss_fn, 1)
    assert tracker.matrix("raw").sv is not None
    with pytest.raises(TrackerError, match=r"'en' .*'de' .*'fr' .*'zh' "):
        tracker.matrix()
    with pytest.raises(TrackerError, match="kind is 'normal'"):
        tracker.matrix("normal")  # type: ignore[arg-type]
    tracker, loss_fn = make(val=None)
    step(tracker, loss_fn, 0, (2, 2, 1, 2))
    with pytest.raises(TrackerError, match="'fr' on 'fr'"):
        tracker.matrix("raw")


def test_validation_free_trackers_take_losses() -> None:
    tracker, loss_fn = make(val=None)
    with pytest.raises(TrackerError, match="validation"):
        tracker.measure(loss_fn)
    with pytest.raises(LanguageError, match="'ja'"):
        tracker.record_losses({"ja": 3.0})
    step(tracker, loss_fn, 0, (2, 2, 2, 2))
    tracker.record_losses(dict.fromkeys(LANGUAGES, 3.0))
    tracker.record_losses(dict.fromkeys(LANGUAGES, 2.0))
    assert list(tracker.matrix("raw").provenance["efficiency"].values()) == pytest.approx(tracker.ledger.phi.sum(0))
