"""What is exported is a LlamaForCausalLM with the run's own logits."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from click.testing import CliRunner  # noqa: E402
from shapleymix_irds.commands import group  # noqa: E402
from shapleymix_irds.train.model import Decoder  # noqa: E402
from shapleymix_irds.train.saving import export as exporting  # noqa: E402
from shapleymix_irds.train.saving.export import export  # noqa: E402
from shapleymix_irds.train.shapes import ModelConfig  # noqa: E402
from torch import Tensor  # noqa: E402

from shapleymix.errors import DataError, StoreError, UsageError  # noqa: E402
from tests.irds.training import STEPS, sign, train  # noqa: E402

TOKENS = torch.randint(256, (3, 40), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model has been exported at its end."""
    out = tmp_path_factory.mktemp("export") / "run"
    assert train(out, "--no-irds", "--layers", "2", "--export", str(out.parent / "model")) == 0
    return out


def own_logits(run: Path) -> Tensor:
    """Of the decoder with the weights of the last checkpoint, read by the package of the format."""
    from safetensors.torch import load_file

    held = load_file(run / "checkpoints" / f"step-{STEPS:09d}" / "rank-00000.safetensors")
    decoder = Decoder(ModelConfig(2, 16, 24, 2, 256))
    decoder.load_state_dict({name.removeprefix("model/"): v for name, v in held.items() if name.startswith("model/")})
    return decoder(TOKENS).detach()


def loaded_logits(folder: Path) -> Tensor:
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        return model(TOKENS).logits


def test_transformers_loads_the_model_with_its_logits(run: Path) -> None:
    model = run.parent / "model"
    assert sorted(path.name for path in model.iterdir()) == [
        "config.json",
        "model.safetensors",
        "shapleymix-export.sha256",
    ]
    check = ["sha256sum", "--check", "--quiet", "shapleymix-export.sha256"]
    assert subprocess.run(check, cwd=model, check=False).returncode == 0
    assert torch.allclose(loaded_logits(model), own_logits(run), rtol=0, atol=1e-5)
    config = json.loads((model / "config.json").read_text())
    assert (config["eos_token_id"], config["tie_word_embeddings"]) == (0, False)


def test_large_models_come_in_several_files(run: Path, tmp_path: Path) -> None:
    export(run, tmp_path / "parts", most=20_000)
    index = json.loads((tmp_path / "parts" / "model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "parts").glob("model-*.safetensors"))
    assert len(files) >= 3
    assert {path.name for path in files} == set(index["weight_map"].values())
    assert max(path.stat().st_size for path in files) < 22_000
    assert torch.allclose(loaded_logits(tmp_path / "parts"), own_logits(run), rtol=0, atol=1e-5)


def test_a_run_that_is_run_again_exports_again(run: Path) -> None:
    before = (run.parent / "model" / "model.safetensors").read_bytes()
    assert train(run, "--no-irds", "--layers", "2", "--export", str(run.parent / "model")) == 0
    assert (run.parent / "model" / "model.safetensors").read_bytes() == before


def test_half_precision_is_said_in_the_config(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        group(), ["export", str(run), "-o", str(tmp_path / "half"), "--dtype", "bf16", "--step", "8"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert model.dtype == torch.bfloat16


def test_a_tokenizer_file_goes_with_the_model(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"</s>": 0, "ba": 1, "[UNK]": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "t.json"))
    common = ("--no-irds", "--tokenizer", str(tmp_path / "t.json"), "--eval-at", "1k", "--toy-size", "200k")
    assert train(tmp_path / "run", *common, "--export", str(tmp_path / "model")) == 0
    assert json.loads((tmp_path / "model" / "config.json").read_text())["eos_token_id"] == 0
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "model")("ba ba")["input_ids"] == [1, 1]


def test_faults_are_named_and_leave_nothing(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no checkpoint"):
        export(tmp_path, tmp_path / "model")
    with pytest.raises(UsageError, match=r"(?s)no checkpoint of step 5\b.*there are those of 8, 12"):
        export(run, tmp_path / "model", step=5)
    broken = tmp_path / "run" / "checkpoints" / f"step-{STEPS:09d}"
    broken.mkdir(parents=True)
    for path in (run / "checkpoints" / broken.name).iterdir():
        data = bytearray(path.read_bytes())
        if path.suffix == ".safetensors":
            data[-1] ^= 1
        (broken / path.name).write_bytes(data)
    with pytest.raises(StoreError):
        export(tmp_path / "run", tmp_path / "model")
    assert not (tmp_path / "model").exists()


FOREIGN = {name: f"alone: no export has written {name.split('/')[0]}" for name in ("notes", "run/runs.csv")}
FOREIGN |= {"tokenizer.json": "alone: no export has written tokenizer.json"}
FOREIGN |= {name: f"as it was written: {name} is not" for name in ("model.safetensors", "config.json")}
FOREIGN |= {"shapleymix-export.sha256": "alone: no export has written config.json"}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_no_export_has_written_is_kept(
    name: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    goal = tmp_path / "model"
    shutil.copytree(run.parent / "model", goal)
    (goal / name).parent.mkdir(exist_ok=True)
    (goal / name).write_text("5")
    before = bytes_of(goal)
    assert train(tmp_path / "unbegun", "--export", str(goal)) == 2
    assert f"{goal}: is not an exported model {FOREIGN[name]}" in capfd.readouterr().err
    assert not (tmp_path / "unbegun").exists()
    with pytest.raises(UsageError, match="is not an exported model"):
        export(run, goal)
    assert bytes_of(goal) == before


def test_what_comes_while_an_export_is_written_is_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = tmp_path / "model"
    shutil.copytree(run.parent / "model", goal)
    replaced, wanted = exporting.remove_export, bytes_of(goal)

    def late(folder: Path) -> None:
        if folder == goal:
            (folder / "notes").write_text("mine")
        replaced(folder)

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "remove_export", late)
        with pytest.raises(UsageError, match="cannot be written: Directory not empty"):
            export(run, goal)
    assert bytes_of(goal) == {"notes": b"mine"}
    (goal / "notes").unlink()
    assert bytes_of(export(run, goal)) == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_export_leaves_is_replaced(run: Path, tmp_path: Path) -> None:
    wanted = bytes_of(run.parent / "model")
    goal, partial = tmp_path / "model", tmp_path / ".model.partial"
    shutil.copytree(run.parent / "model", goal)
    shutil.copytree(run.parent / "model", partial)
    for gone in (1, 2, 3):
        for name in ("model.safetensors", "config.json", "shapleymix-export.sha256")[:gone]:
            (goal / name).unlink()
        assert bytes_of(export(run, goal)) == wanted
    (tmp_path / "link").symlink_to(goal)
    goal.rename(tmp_path / "moved")
    assert bytes_of(export(run, tmp_path / "link")) == wanted
    assert (tmp_path / "link").readlink() == goal
    assert not partial.exists()


def test_a_model_goes_neither_into_the_folder_of_its_run_nor_around_it(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a" / "run"
    cases = {out: "is", tmp_path / "a" / ".." / "a" / "run": "is", out / "model": "lies in", tmp_path: "holds"}
    for goal, told in cases.items():
        assert train(out, "--export", str(goal)) == 2
        assert f"{goal}: {told} the folder of the run, {out}: " in capfd.readouterr().err
        assert not out.exists()
    (tmp_path / "link").symlink_to(run)
    for goal in (run, run / "model", run.parent, tmp_path / "link"):
        with pytest.raises(UsageError, match="the folder of the run"):
            export(run, goal)
    (tmp_path / "file").write_text("")
    assert train(out, "--export", str(tmp_path / "file" / "model")) == 2
    assert f"{tmp_path / 'file'}: is a file, expected a folder of" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model", 5), ("layers", "x"), ("layers", 10**9), ("hidden", 32), ("tokenizer", ["a"]), ("seq", True)),
        *(("tokenizer", __file__), ("unknown", 1)),
    ],
)
def test_a_record_of_another_model_is_refused(name: str, value: object, run: Path, tmp_path: Path) -> None:
    last = Path("checkpoints") / f"step-{STEPS:09d}"
    shutil.copytree(run / last, tmp_path / last)
    meta = json.loads((tmp_path / last / "run.json").read_text())
    (tmp_path / last / "run.json").write_text(json.dumps({**meta, "settings": {**meta["settings"], name: value}}))
    sign(tmp_path / last)
    with pytest.raises((StoreError, DataError)):
        export(tmp_path, tmp_path.parent / "model")
    assert not (tmp_path.parent / "model").exists()


def bytes_of(folder: Path) -> dict[str, bytes]:
    """The bytes of every file, by its name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
