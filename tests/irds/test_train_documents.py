"""Documents that are packed into one sequence do not see each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from irds_models import naive_gram, relative  # noqa: E402
from shapleymix_irds import IRDS, Options  # noqa: E402
from shapleymix_irds.train.attention import attend, block_mask, documents_of, mask_of, positions_of  # noqa: E402
from shapleymix_irds.train.model import Decoder, sequence_losses  # noqa: E402
from shapleymix_irds.train.shapes import ModelConfig  # noqa: E402
from torch import Tensor  # noqa: E402

from tests.irds.training import STEPS, results, train  # noqa: E402

END = 0
LANGUAGES = ("a", "b", "c", "d")
LENGTHS = (5, 1, 7, 4)  # of the documents of a sequence, their ends included


def decoder(end_token: int | None = END, recompute: bool = False) -> Decoder:
    model = Decoder(ModelConfig(2, 16, 24, 2, 11), recompute=recompute, end_token=end_token)
    model.initialise(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4)
    return model.double()


def packed(count: int, seed: int = 0) -> Tensor:
    """Sequences (count, 17) of documents that end at the same places."""
    tokens = torch.randint(1, 11, (count, sum(LENGTHS)), generator=torch.Generator().manual_seed(seed))
    tokens[:, np.cumsum(LENGTHS) - 1] = END
    return tokens


def test_documents_and_positions_begin_after_each_end() -> None:
    documents = documents_of(torch.tensor([[3, END, END, 5, 5]]), END)
    assert documents.tolist() == [[0, 0, 1, 2, 2]]
    assert positions_of(documents).tolist() == [[0, 1, 0, 0, 1]]


@pytest.mark.parametrize("recompute", [False, True])
def test_a_document_has_the_logits_that_it_has_alone(recompute: bool) -> None:
    model, tokens = decoder(recompute=recompute), packed(3)
    together = model(tokens)
    begins = [0, *np.cumsum(LENGTHS)]
    for begin, length in zip(begins, LENGTHS, strict=False):
        alone = model(tokens[:, begin : begin + length])
        assert torch.allclose(together[:, begin : begin + length], alone, rtol=0, atol=1e-10)
    assert not torch.allclose(decoder(None)(tokens), together, atol=1e-3)


def test_without_an_end_within_a_sequence_nothing_changes() -> None:
    tokens = packed(2).clamp(min=1)
    assert torch.allclose(decoder()(tokens), decoder(None)(tokens), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # that it holds all scores where it is not compiled
def test_blocks_of_a_gpu_see_what_the_table_shows() -> None:
    documents = documents_of(packed(3), END)
    q, k, v = torch.randn(3, 3, 2, sum(LENGTHS), 8, generator=torch.Generator().manual_seed(0))
    table, blocks = (attend(q, k, v, mask) for mask in (mask_of(documents), block_mask(documents)))
    assert torch.allclose(table, blocks, atol=1e-5)


def losses_of(model: Decoder) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: sequence_losses(model(x), y)[1].double()


@pytest.mark.parametrize(("compiled", "recompute"), [(False, False), (True, True)])
@pytest.mark.filterwarnings("ignore")  # torch itself uses what it deprecates while it compiles
def test_what_is_measured_is_the_naive_reference(compiled: bool, recompute: bool) -> None:
    torch.compiler.reset()
    model = decoder(recompute=recompute)
    if compiled:
        model.compile(backend="aot_eager")
    x, lang = packed(6), torch.tensor([0, 1, 1, 2, 3, 3])
    val = {name: (packed(3, seed), packed(3, seed).roll(-1, 1)) for seed, name in enumerate(LANGUAGES, 5)}
    loss_fn = losses_of(model)
    truth = naive_gram(model, loss_fn, x, x.roll(-1, 1), lang, val)
    options = Options(val_sequences=3, measure_sequences=3)
    tracker = IRDS(model, LANGUAGES, val=val, every=1, engine="exact", options=options)
    tracker.backward(loss_fn, x, x.roll(-1, 1), lang, step=0)
    tracker.commit(lr=0.3)
    assert relative(tracker.ledger.phi, 0.3 * truth) < 1e-6
    torch.compiler.reset()


def test_a_run_masks_if_it_is_told_to_and_goes_on_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    masked, plain = tmp_path / "masked", tmp_path / "plain"
    assert train(masked, "--mask-documents", "--no-irds") == 0
    assert train(plain, "--no-irds") == 0
    assert results(masked) != results(plain)
    shutil.rmtree(masked / "checkpoints" / f"step-{STEPS:09d}")
    assert train(masked, "--no-irds") == 2
    assert "mask_documents was True, is False" in capfd.readouterr().err


def test_tokens_that_come_without_their_tokenizer_need_an_end_token(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tokens = np.random.default_rng(0).integers(1, 256, 400_000).astype(np.uint8)
    tokens[::23] = END
    np.save(tmp_path / "a.npy", tokens)
    common = ("--corpus", str(tmp_path), "--languages", "a", "--mask-documents", "--no-irds", "--eval-at", "1k")
    assert train(tmp_path / "run", *common) == 2
    assert "--mask-documents needs the token that ends a document" in capfd.readouterr().err
    assert train(tmp_path / "run", *common, "--end-token", str(END)) == 0


def test_text_and_tokens_that_end_otherwise_are_not_masked_by_one_of_both(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Else the documents of one would not be masked from each other, and nothing would tell."""
    tokens = np.random.default_rng(0).integers(1, 256, 400_000).astype(np.uint8)
    tokens[::23] = 255
    np.save(tmp_path / "a.npy", tokens)
    (tmp_path / "b.txt").write_text("\n\n".join(f"Some words of text {k}. " * 20 for k in range(900)))
    common = ("--corpus", str(tmp_path), "--mask-documents", "--no-irds", "--end-token", "255")
    assert train(tmp_path / "run", *common, "--languages", "a,b") == 2
    told = capfd.readouterr().err
    assert "needs one token that ends documents; text ends with 0, tokens on disk with --end-token 255" in told
    assert train(tmp_path / "run", *common, "--languages", "a", "--eval-at", "1k") == 0
