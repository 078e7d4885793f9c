"""A page of a trainer is enough: its commands read what the trainer wrote, and write what it takes back."""

import contextlib
import io
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest
from cli_tools import Run

import shapleymix as sm

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
PAGES = {page.stem: page for page in (ROOT / "adapters/docs").glob("*.md")}
WROTE = {
    "hugging-face": ("mix-07/checkpoint-4/trainer_state.json", "runs/mix-07/trainer_state.json"),
    "lightning": ("lightning", "logs"),
    "megatron": ("megatron", "logs"),
}
"""What a trainer wrote, and where its page has it."""
MORE = {"hugging-face": ["--map", "D=num_input_tokens_seen*10k"], "lightning": ["--map", "D=tokens*10k"]}
"""These runs saw a few hundred tokens, fewer than a model has parameters."""

MEASURED = {
    "hugging-face": {"mix-07": [3.40037202835083, 3.4003288745880127]},
    "lightning": {
        "mix-01": [3.2848317623138428, 3.320693254470825],
        "mix-02": [3.2830045223236084, 3.3520195484161377],
    },
    "megatron": {"mix-01": [3.5, 3.25], "mix-02": [3.7, 3.25]},
}
"""Losses of en and de at the end of each run."""

FORMATS = {"hugging-face": "hf", "lightning": "litdata", "megatron": "megatron", "torchtitan": "torchtitan"}


def calls(page: str, name: str) -> list[list[str]]:
    """The commands of one name on a page, whose wildcards are as a shell in this folder takes them."""
    text = "\n".join(re.findall(r"```sh\n(.*?)```", PAGES[page].read_text(encoding="utf-8"), re.DOTALL))
    lines = [shlex.split(line) for line in text.replace("\\\n", " ").splitlines()]
    found = [words[2:] for words in lines if words[:2] == ["shapleymix", name]]
    return [[one for word in words for one in opened(word)] for words in found]


def opened(word: str) -> list[str]:
    return sorted(map(str, Path().glob(word))) if "*" in word else [word]


@pytest.mark.parametrize("page", WROTE)
def test_runs_come_in_by_the_command_of_the_page(page: str, run: Run, tmp_path: Path) -> None:
    if page == "lightning":
        pytest.importorskip("tensorboard")
    source, goal = (GOLDEN / WROTE[page][0], tmp_path / WROTE[page][1])
    goal.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copy)(source, goal)
    shutil.copy(GOLDEN / "design.csv", tmp_path)
    (words,) = calls(page, "import")
    assert run("import", *words, *MORE.get(page, ())).code == 0
    log = sm.read_runs("runs.csv").align(("en", "de"), ("en", "de"))
    assert dict(zip(log.runs, log.loss.tolist(), strict=True)) == MEASURED[page]
    assert (set(log.N.tolist()), len(set(log.D.tolist()))) == ({97600.0}, 2)


@pytest.mark.parametrize("page", FORMATS)
def test_the_mixture_goes_back_by_the_command_of_the_page(page: str, run: Run) -> None:
    (words,) = calls(page, "export")
    assert words[words.index("--format") + 1] == FORMATS[page]
    assert run("export en=.5,de=.3,fr=.2 --format json -o mix.json").code == 0
    rows = [f"{name},corpora/{name}" for name in ("en", "de", "fr")]
    Path("paths.csv").write_text("\n".join(["language,path", *rows]) + "\n")
    told = run("export", *words)
    assert (told.code, "warning" in told.err) == (0, False)
    written = Path(words[words.index("-o") + 1]).read_text()
    assert all(f"corpora/{name}" in written for name in ("en", "de", "fr"))


@pytest.mark.parametrize("page", ["torchtitan", "your-loop"])
def test_a_line_of_a_run_log_is_read_as_it_is_shown(page: str, tmp_path: Path) -> None:
    (line,) = re.findall(r"\{\"run\":.*?\}", PAGES[page].read_text(encoding="utf-8").replace("\n", " "))
    (tmp_path / "runs.jsonl").write_text(line + "\n")
    log = sm.read_runs(tmp_path / "runs.jsonl")
    assert (len(log), log.sources, log.targets) == (1, ("en", "de"), ("en", "de"))


def test_olmo_cores_losses_come_in_by_the_command_of_the_page(run: Run) -> None:
    """The names of its metrics, which a table of W&B has as columns."""
    heads = "Name,_step,eval/lm/en/CE loss,eval/lm/en/PPL,eval/lm/de/CE loss,eval/lm/de/PPL,throughput/total tokens"
    Path("olmo.csv").write_text(
        f"{heads}\nmix-01,1000,3.2,24.5,3.5,33.1,2000000\nmix-02,1000,3.3,27.1,3.4,30,2000000\n"
    )
    Path("design.csv").write_text("run,N,p_en,p_de\nmix-01,97600,.6,.4\nmix-02,97600,.4,.6\n")
    assert run("import", *calls("logging", "import")[0]).code == 0
    assert sm.read_runs("runs.csv").align(("en", "de"), ("en", "de")).loss.tolist() == [[3.2, 3.5], [3.3, 3.4]]


def test_a_converted_checkpoint_is_measured_as_the_page_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row that it prints is a run log, and its losses are the nats a token of a naive forward pass."""
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    tokenizers = pytest.importorskip("tokenizers")
    (block,) = [
        one
        for one in re.findall(r"```python\n(.*?)```", PAGES["logging"].read_text(), re.DOTALL)
        if "def measure" in one
    ]
    words = {"<unk>": 0, **{letter: place for place, letter in enumerate("abcdef", start=1)}}
    split = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    split.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    size = {
        "vocab_size": len(words), "n_positions": 1024, "n_embd": 8, "n_layer": 1, "n_head": 1, "bos_token_id": 0,
        "eos_token_id": 0,
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size))
    model.save_pretrained("mix-01-hf")
    transformers.PreTrainedTokenizerFast(tokenizer_object=split, unk_token="<unk>").save_pretrained("mix-01-hf")
    Path("held-out").mkdir()
    letters = {name: random.Random(name).choices("abcdef", k=2500) for name in ("en", "de")}
    for name, text in letters.items():
        Path(f"held-out/{name}.txt").write_text(" ".join(text))
    with contextlib.redirect_stdout(io.StringIO()) as told:
        exec(block, {})
    Path("runs.jsonl").write_text(told.getvalue())
    log = sm.read_runs("runs.jsonl")
    for j, name in enumerate(log.targets):
        rows = torch.tensor([words[one] for one in letters[name][:2048]]).view(2, 1024)
        with torch.no_grad():
            said = model.eval()(rows).logits[:, :-1].log_softmax(-1)
        naive = -said.gather(-1, rows[:, 1:, None]).double().mean().item()
        assert log.loss[0, j] == pytest.approx(naive, rel=1e-6)
