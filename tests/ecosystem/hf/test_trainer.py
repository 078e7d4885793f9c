"""Hugging Face's `Trainer` with the tracker: the same weights, the values of the naive reference, and any resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("transformers")

import numpy as np
from datasets import Dataset
from irds_models import relative
from runs import COUNT, Naive, Recording, arguments, prompted, run, same, told
from shapleymix_irds.errors import CoverageError, LanguageError, ResumeError, TrackerError
from trainers import LANGUAGES, collate, examples, llama, validation

from shapleymix import read_transfer
from shapleymix.errors import ShapleyMixWarning


def test_values_are_those_of_the_naive_reference_and_weights_those_of_the_plain_trainer(tmp_path: Path) -> None:
    """Accumulation with a short last step, clipping, prompts without labels, ragged lengths, a schedule."""
    trainer = Recording(
        llama(), arguments(tmp_path), train_dataset=prompted(examples(COUNT)), data_collator=collate, irds=told()
    )
    naive = Naive(trainer.of_step, limit=0.5)
    trainer.add_callback(naive)
    trainer.train()
    tracker = trainer.tracker
    assert tracker is not None
    assert tracker.steps == tracker.ledger.count == 4
    assert [len(batches) for batches in trainer.recorded.values()] == [4, 2, 4, 2], "the last step is short"
    assert relative(tracker.ledger.phi, naive.phi) < 1e-4  # in float32
    total = sum(int((b["labels"][:, 1:] != -100).sum()) for batches in trainer.recorded.values() for b in batches)
    assert tracker.tokens == total
    raw, matrix = read_transfer(tmp_path / "sv_raw.csv"), read_transfer(tmp_path / "sv.csv")
    assert relative(raw.sv, tracker.ledger.phi) < 1e-12
    assert relative(matrix.sv.sum(0), tracker.losses.drop(LANGUAGES)) < 1e-9
    plain = run(tmp_path / "plain", None)
    assert same(plain, trainer)
    plain_losses = [entry["loss"] for entry in plain.state.log_history if "loss" in entry]
    assert [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] == plain_losses
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"irds_evaluations", *(f"irds_efficiency_{name}" for name in LANGUAGES)} <= logged


CASES: dict[str, dict[str, Any]] = {
    "checkpointing": {"gradient_checkpointing": True},
    "bf16": {"bf16": True},
    "no clipping": {"max_grad_norm": 0.0},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "own mean of each batch": {"average_tokens_across_devices": False},
    "adafactor": {"optim": "adafactor"},
    "compiled": {"torch_compile": True, "torch_compile_backend": "aot_eager"},
}


@pytest.mark.parametrize("case", CASES)
def test_the_settings_of_a_trainer_leave_the_weights_as_they_are(case: str, tmp_path: Path) -> None:
    tracked = run(tmp_path / "a", told(every=2, engine="sketch"), llama(attention_dropout=0.1), **CASES[case])
    assert tracked.tracker.ledger.count == 2  # type: ignore[attr-defined]
    assert same(tracked, run(tmp_path / "b", None, llama(attention_dropout=0.1), **CASES[case]))


def test_the_language_of_a_dataset_is_kept_and_evaluation_needs_none(tmp_path: Path) -> None:
    """`remove_unused_columns` takes all columns that the model does not know; the tracker's loss drop goes along."""
    data = Dataset.from_list([row | {"id": "x"} for row in prompted(examples(COUNT, named=False))])
    sets = {"with": Dataset.from_list(examples(8, seed=5)), "without": [{"input_ids": [1, 2, 3]}] * 4}
    options = {"data": data, "eval_dataset": sets, "eval_strategy": "epoch"}
    found = run(tmp_path / "a", told(val=Dataset.from_list(examples(12, seed=9))), **options)
    plain = run(tmp_path / "b", None, **(options | {"eval_dataset": {"with": sets["with"].remove_columns("lang")}}))
    assert same(found, plain)
    assert [name for entry in found.state.log_history for name in entry if name == "eval_without_loss"]
    assert sum("irds_efficiency_en" in entry for entry in found.state.log_history) > 2, "after each evaluation"


def test_without_validation_sequences_losses_come_from_evaluation_sets(tmp_path: Path) -> None:
    options = {"eval_dataset": validation(), "eval_strategy": "epoch", "eval_on_start": True}
    trainer = run(tmp_path, told(val=None), data=prompted(examples(44)), **options)
    entries = trainer.state.log_history
    losses = {name: [e[f"eval_{name}_loss"] for e in entries if f"eval_{name}_loss" in e] for name in LANGUAGES}
    assert trainer.tracker.losses.start == {name: each[0] for name, each in losses.items()}  # type: ignore[attr-defined]
    assert trainer.tracker.losses.latest == {name: each[-1] for name, each in losses.items()}  # type: ignore[attr-defined]
    assert (tmp_path / "sv.csv").exists()


def test_where_there_is_no_matrix_training_ends_well_and_says_why(tmp_path: Path) -> None:
    for name in ("sv.csv", "sv.csv.json"):
        (tmp_path / name).write_text("of an earlier run")
    with pytest.warns(ShapleyMixWarning, match=r"sv\.csv was not written: the drop of the validation loss was not mea"):
        run(tmp_path, told(val=None), data=prompted(examples(44)))
    assert (tmp_path / "sv_raw.csv").exists()
    assert not list(tmp_path.glob("sv.csv*"))


@pytest.mark.parametrize("restore", [False, True])
def test_a_run_goes_on_from_a_checkpoint_as_if_nothing_had_happened(restore: bool, tmp_path: Path) -> None:
    def go(folder: str, **options: Any) -> Any:
        settings = {"save_strategy": "steps", "save_steps": 1, "restore_callback_states_from_checkpoint": restore}
        told_ = told(every=2, engine="sketch")
        return run(tmp_path / folder, told_, llama(attention_dropout=0.1), **(settings | options))

    whole, cut = go("whole"), go("cut")
    assert cut.tracker.state_dict() == whole.tracker.state_dict()
    files = {name: (tmp_path / "whole" / name).read_bytes() for name in ("sv.csv", "sv_raw.csv")}
    for step in (1, 4):  # in the middle of an epoch, and at the end, where only the results were missing
        for path in (tmp_path / "cut").glob("sv*"):
            path.unlink()
        again = go("cut", resume=str(tmp_path / "cut" / f"checkpoint-{step}"))
        assert same(again, whole)
        assert np.array_equal(again.tracker.ledger.phi, whole.tracker.ledger.phi)
        assert {name: (tmp_path / "cut" / name).read_bytes() for name in files} == files
        assert again.tracker.steps == 4
    state = json.loads((tmp_path / "cut" / "checkpoint-1" / "trainer_state.json").read_text())
    del state["stateful_callbacks"]["IRDSCallback"]
    (tmp_path / "cut" / "checkpoint-1" / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(ResumeError, match="the checkpoint of step 1 was made without the tracker"):
        go("cut", resume=str(tmp_path / "cut" / "checkpoint-1"))


def test_a_trainer_trains_twice(tmp_path: Path) -> None:
    """The tracker of the first run was asked to commit the steps of the second, too."""
    trainer = run(tmp_path, told())
    first = trainer.tracker.ledger.phi  # type: ignore[attr-defined]
    trainer.train()
    assert trainer.tracker.steps == 4  # type: ignore[attr-defined]
    assert not np.array_equal(trainer.tracker.ledger.phi, first)  # type: ignore[attr-defined]


def lacking(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "lang"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"data": [lacking(row) for row in examples(8)]}, "the training examples have no column 'lang'"),
        ({"data": [examples(8)[0], *map(lacking, examples(7))]}, "of a batch has no language in 'lang'"),
        ({"data": [row | {"lang": "eng"} for row in examples(8)]}, "unknown language 'eng' in 'lang'"),
        ({"told": {"val": [*examples(3), {"input_ids": [1, 2]}]}}, "validation example 3 has the language None"),
        ({"told": {"val": validation() | {"fr": [{"input_ids": [1]}]}}}, "example of 'fr' has no two tokens"),
        ({"collator": lambda rows: {"input_ids": collate(rows)["input_ids"]}}, "the batches have no 'labels'"),
        (
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
            "reentrant checkpointing hides",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(fault: dict[str, Any], message: str, tmp_path: Path) -> None:
    tracked = told(**fault.pop("told", {}))
    with pytest.raises((LanguageError, TrackerError, CoverageError), match=message):
        run(tmp_path, tracked, **fault)
