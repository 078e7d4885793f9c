"""The families that people train, tiny and random, by their own loss and in a raw loop, against naive values."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from irds_models import LANGUAGES, dot, gradient, relative, sketched  # noqa: E402
from shapleymix_irds import IRDS, Options, sketches  # noqa: E402
from shapleymix_irds.hf import causal_loss, validation_of  # noqa: E402

SIZES: dict[str, Any] = {
    "vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "attention_dropout": 0.0, "dropout": 0.0,
}  # fmt: skip
HEADS: dict[str, Any] = {"head_dim": 8}
EXPERTS = HEADS | {"num_experts_per_tok": 2, "num_local_experts": 4, "num_experts": 4, "moe_intermediate_size": 12}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
GROUPED = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 2}
SHORT = {"n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
ALIKE = ("llama", "qwen2", "smollm3", "olmo2", "gpt_neox", "phi3", "cohere", "starcoder2", "granite", "nemotron")
SENT = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "qwen3_next", "llama4_text", "jetmoe")
PASSED = ("llama4_text", "gemma3n_text", "recurrent_gemma", "jetmoe")  # which take a pass a language
MIXED = {f"linear_{part}": size for part, size in
         {"num_key_heads": 2, "num_value_heads": 4, "key_head_dim": 4, "value_head_dim": 4}.items()}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    **{name: {} for name in ALIKE},
    **dict.fromkeys(("qwen3", "mistral", "gemma2", "gemma3_text"), HEADS),
    **dict.fromkeys(SENT, EXPERTS),
    "deepseek_v3": EXPERTS | LATENT | GROUPED | {"head_dim": 4},
    "gpt2": SHORT | {"n_embd": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 2, "window_size": 4},
    "opt": {"ffn_dim": 24, "word_embed_proj_dim": 16},
    "bloom": SHORT,
    "mamba": {"state_size": 4, "intermediate_size": 32, "time_step_rank": 4},
    "falcon": {"alibi": False},
    "qwen3_next": EXPERTS | MIXED | {"shared_expert_intermediate_size": 12, "layer_types": ["linear_attention"] * 2},
    "llama4_text": EXPERTS | {"intermediate_size_mlp": 24, "interleave_moe_layer_step": 1, "num_experts_per_tok": 1},
    "gemma3n_text": HEADS | {
        "vocab_size_per_layer_input": 29, "hidden_size_per_layer_input": 4, "laurel_rank": 4, "altup_num_inputs": 2,
        "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.0, 0.0], "intermediate_size": [24, 24],
    },
    "recurrent_gemma": {"lru_width": 16, "conv1d_width": 2, "block_types": ["recurrent", "attention"]},
    "jetmoe": EXPERTS | {"num_key_value_heads": 2, "kv_channels": 8, "num_experts_per_tok": 1},
}  # fmt: skip
RATE = 0.1


def made(name: str, experts: str = "eager") -> Any:
    """A model of the family; grouped products of experts have no double precision."""
    told = {"experts_implementation": experts} if name in SENT else {}
    config = transformers.AutoConfig.for_model(name, **(SIZES | FAMILIES[name]))
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, **told)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return (model if experts == "grouped_mm" else model.double()).train()


def examples(count: int, seed: int) -> list[dict[str, Any]]:
    """Sequences of which some labels are masked."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 29, (count, 8), generator=generator)
    labels = ids.masked_fill(torch.rand(ids.shape, generator=generator) < 0.2, -100)
    labels[:, 0] = -100
    rows = zip(ids.tolist(), labels.tolist(), strict=True)
    return [{"input_ids": x, "labels": y, "lang": LANGUAGES[n % 3]} for n, (x, y) in enumerate(rows)]


TRAIN, VAL = examples(8, 1), {name: examples(2, 10 + k) for k, name in enumerate(LANGUAGES)}
OPTIONS = Options(val_sequences=2, measure_sequences=1, side=2)


def naive(model: Any) -> tuple[list[Any], list[Any]]:
    """Training and validation gradients by one backward pass a language."""
    loss_fn: Any = causal_loss(model)
    parts: Any = validation_of(VAL)
    (x, y, lang), total = given(), float((given()[1] != -100).sum())
    g = [gradient(model, loss_fn({"input_ids": x[lang == k]}, y[lang == k]).sum() / total) for k in range(3)]
    h = [gradient(model, loss_fn(vx, vy).sum() / (vy != -100).sum()) for vx, vy in parts.values()]
    return g, h


def products(model: Any, g: list[Any], h: list[Any], sides: dict[str, Any]) -> Any:
    """Of gradients, brought to the sides of a tracker."""
    g, h = ([sketched(each, model, sides) for each in some] for some in (g, h))
    return torch.tensor([[dot(gi, hj) for hj in h] for gi in g] + [[0.0] * len(h)])


def given() -> tuple[Any, Any, Any]:
    """The batch of a loop."""
    x, y = (torch.tensor([row[name] for row in TRAIN]) for name in ("input_ids", "labels"))
    return x, y, torch.arange(8) % 3


def close(one: Any, other: Any) -> bool:
    return bool(torch.allclose(one, other, rtol=1e-3, atol=1e-6))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "experts"), [(name, "eager") for name in FAMILIES] + [(name, "grouped_mm") for name in SENT[:5]]
)
def test_a_family_is_measured_by_its_own_loss_and_in_a_loop(
    name: str, experts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By exact products, and by sketches of few numbers, folded: those of naive gradients brought to the same sides."""
    monkeypatch.setattr(sketches, "NUMBERS", 300)
    model, val = made(name, experts), validation_of(VAL)
    (g, h), (x, y, lang) = naive(model), given()
    for watches, engine in ((True, "exact"), (False, "exact"), (False, "sketch")):
        loss_fn, own = causal_loss(model), lambda: model(input_ids=x, labels=y, use_cache=False).loss
        model.zero_grad()
        own().backward()
        plain = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        tracker = IRDS(model, LANGUAGES, val=val, every=1, engine=engine, loss_fn=loss_fn, options=OPTIONS)
        if watches:
            with tracker.watch(lang, step=0, tokens=int((y[:, 1:] != -100).sum())):
                own().backward()
        else:
            tracker.backward(loss_fn, {"input_ids": x}, y, lang, step=0)
        for parameter, grad in zip(model.parameters(), plain, strict=True):
            assert (parameter.grad is None) == (grad is None)
            assert grad is None or (torch.equal if watches else close)(parameter.grad, grad)
        tracker.commit(lr=RATE)
        assert (tracker.engine.fallback is None) == (name not in PASSED)
        shared = {one.split(".")[-2] for one, first in tracker.engine.first_pass.same_rows.items() if one != first}
        assert name != "qwen3" or shared == {"k_proj", "v_proj", "up_proj"}
        sides = tracker.engine.projections
        assert any(side.columns and side.rows for side in sides.values()) == (engine == "sketch")
        first = [side.columns for part, side in sides.items() if "q_proj.weight" in part]  # 16 of 16 are all
        assert name != "llama" or first == [0, 2 * (engine == "sketch")]
        assert any(side.turned for side in sides.values()) == (name in ("gpt2", "gpt_oss"))
        assert relative(tracker.ledger.phi, RATE * products(model, g, h, sides)) < 1e-5
