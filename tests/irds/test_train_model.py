"""The decoder: sizes of the paper's models, causality, rotary positions, losses."""

import pytest

torch = pytest.importorskip("torch")

from shapleymix_irds.train import model as decoders  # noqa: E402
from shapleymix_irds.train import settings as shapes  # noqa: E402
from shapleymix_irds.world import non_embedding  # noqa: E402

from shapleymix.errors import UsageError  # noqa: E402

PAPER = {  # ShapleyLaw paper, table of model configurations: non-embedding parameters
    "50M": 50_344_448,
    "243M": 243_303_424,
    "684M": 684_258_816,
    "1460M": 1_459_718_144,
    "3171M": 3_171_068_928,
    "tiny": 23_712,  # those of the fixtures
    "mini": 97_600,
}
SMALL = shapes.ModelConfig(layers=2, hidden=16, ffn=24, heads=2, vocab=11)
SQUARE = shapes.ModelConfig(layers=2, hidden=16, ffn=24, heads=2, vocab=16)  # as many rows as words everywhere


def small(**options: bool) -> decoders.Decoder:
    decoder = decoders.Decoder(SMALL, **options)
    decoder.initialise(0)
    return decoder


@pytest.mark.parametrize("name", [*shapes.MODELS, "square"])
def test_counts_are_those_of_the_parameters(name: str) -> None:
    config = shapes.MODELS.get(name, SQUARE)
    with torch.device("meta"):
        decoder = decoders.Decoder(config)
    sizes = {key: weight.numel() for key, weight in decoder.named_parameters()}
    inner = sum(sizes.values()) - sizes["embedding.weight"] - sizes["output.weight"]
    assert inner == non_embedding(decoder) == config.non_embedding == PAPER.get(name, inner)


def test_later_tokens_do_not_reach_back() -> None:
    decoder = small()
    tokens = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 11
    before, after = decoder(tokens), decoder(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_rotation_makes_products_depend_on_distance_alone() -> None:
    turn = decoders.rotation(12, 8, torch.device("cpu")).double()
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    turned = [decoders.rotate(each.expand(1, 1, 12, 8), turn)[0, 0] for each in (query, key)]
    products = turned[0] @ turned[1].T
    for distance in range(-11, 12):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5)


def test_the_loss_is_the_summed_cross_entropy_and_z_loss_is_added_to_what_is_trained_on() -> None:
    logits = torch.randn(3, 4, 11, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(12).view(3, 4) % 11
    log_p = logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    trained, measured = decoders.sequence_losses(logits, targets, 0.5)
    assert torch.allclose(measured, -log_p.sum(-1))
    assert torch.allclose(trained, measured + 0.5 * logits.logsumexp(-1).square().sum(-1))
    plain, same = decoders.sequence_losses(logits, targets)
    assert torch.equal(plain, same)


def test_recomputing_changes_no_gradient() -> None:
    tokens = torch.arange(18).view(2, 9) % 11
    gradients = []
    for recompute in (False, True):
        decoder = small(recompute=recompute)
        decoder(tokens).square().sum().backward()
        gradients.append([weight.grad for weight in decoder.parameters()])
    assert all(torch.equal(left, right) for left, right in zip(*gradients, strict=True))


def test_initial_weights_follow_the_seed() -> None:
    first, again, other = small(), small(), decoders.Decoder(SMALL)
    other.initialise(1)
    assert torch.equal(first.output.weight, again.output.weight)
    assert not torch.equal(first.output.weight, other.output.weight)
    assert torch.equal(first.norm.weight, torch.ones(16))


def test_free_sizes_replace_those_of_the_name() -> None:
    assert shapes.model_config("tiny", layers=3, vocab=300, ffn=None) == shapes.ModelConfig(3, 32, 80, 4, 300)


@pytest.mark.parametrize(
    ("name", "sizes"), [("50N", {}), ("tiny", {"hidden": 30}), ("tiny", {"hidden": 36}), ("tiny", {"layers": 0})]
)
def test_sizes_that_do_not_fit_are_refused(name: str, sizes: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        shapes.model_config(name, **sizes)


def test_a_learning_rate_falls_with_the_size_from_the_smallest_model_to_the_papers() -> None:
    sizes = sorted(config.non_embedding for config in shapes.MODELS.values())
    rates = [shapes.peak_rate(N) for N in (1, *sizes)]
    assert rates == sorted(rates, reverse=True)
    assert (rates[0], rates[1], rates[-1]) == (6e-3, 6e-3, 3e-4)
