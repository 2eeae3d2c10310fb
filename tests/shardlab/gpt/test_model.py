"""The GPT over the tensor axis equals the unsharded one, forward and backward.

Wrong values with right shapes are what sharding does when it is wrong, so everything is compared:
logits, loss, the gradients of hidden states and of every weight. Where one of these fails, the
layers' own tests say which layer: start with test_linear, test_embedding, test_attention.

fp64 is held to 1e-12. What fp32 and bf16 were measured to be off by, against the fp64 reference
with the same (rounded) weights, as the largest difference over the largest value:

    dtype   logits    loss      worst gradient    asserted
    fp32    4.0e-7    1.2e-7    7.3e-7            1e-6, 4e-7, 2e-6
    bf16    9.8e-3    1.5e-3    2.4e-2            2e-2, 4e-3, 6e-2

The worst over 1, 2 and 8 ranks, with and without sequence parallelism; one rank alone is off by as
much, so this is the dtype's own rounding and not the sharding's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from shardlab.comm import Axis, World
from shardlab.context.documents import document_ids
from shardlab.context.parallel import ContextParallel
from shardlab.gpt.config import LLAMA
from shardlab.gpt.model import GPT, GPTConfig
from shardlab.layers import ops, partial_gradients
from shardlab.layers.cross_entropy import IGNORED, cross_entropy
from shardlab.layers.sharding import load_whole, whole
from tests.shardlab.pool import on_ranks
from tests.shardlab.reference import ReferenceGPT, random_weights, relative_error

SIZES = [1, 2, 4, 8]
BASE: dict[str, Any] = {"layers": 2, "hidden": 16, "heads": 8, "vocab": 19, "sequence": 8}
MODELS: dict[str, dict[str, Any]] = {
    "tied": BASE,
    "untied": BASE | {"tie_embeddings": False, "bias": False, "ffn": 24},
    "grouped": BASE | {"hidden": 32, "heads": 16, "kv_heads": 8, "vocab": 16},
    "llama": BASE | LLAMA | {"hidden": 32, "heads": 16, "kv_heads": 8, "ffn": 24},
}
EXACT = 1e-12
Values = dict[str, Tensor]

sequence_parallel_or_not = pytest.mark.parametrize(
    "sequence_parallel", [False, True], ids=["whole", "sequence_parallel"]
)


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Tokens and targets [B, S]; words that every model here has."""
    generator = torch.Generator().manual_seed(seed)
    tokens, targets = torch.randint(0, 16, (2, 2, BASE["sequence"]), generator=generator)
    return tokens, targets


def weights_of(label: str, dtype: torch.dtype) -> Values:
    return {name: w.to(dtype) for name, w in random_weights(**MODELS[label]).items()}


def sharded(world: World, label: str, dtype: torch.dtype, **options: Any) -> GPT:
    config = GPTConfig(**MODELS[label], dtype=dtype)
    model = GPT(config, tensor=world.whole, device=world.device, **options)
    load_whole(model, {n: w.to(world.device) for n, w in weights_of(label, dtype).items()})
    return model


def unsharded(label: str, dtype: torch.dtype) -> ReferenceGPT:
    """In fp64 always, from the weights as `dtype` holds them."""
    weights = {name: w.double() for name, w in weights_of(label, dtype).items()}
    return ReferenceGPT(**MODELS[label]).load(weights)


def forward_and_backward(world: World, label: str, dtype: torch.dtype, sp: bool) -> Values:
    """All that comes out of one step, whole, [B, S, …]."""
    tokens, targets = (x.to(world.device) for x in batch())
    model = sharded(world, label, dtype, sequence_parallel=sp)
    hidden = model.embed(tokens)
    hidden.retain_grad()
    model.embed = lambda _: hidden
    logits = model(tokens)
    loss = model.loss(logits, targets)
    loss.backward()
    gradient = hidden.grad
    if model.sequence_parallel:
        gradient = ops.gather_along(gradient, model.tensor, 0)
    logits = ops.gather_along(logits.detach(), model.tensor, -1)[..., : model.config.vocab]
    values = {"logits": logits, "hidden gradient": gradient}
    values = {name: value.transpose(0, 1) for name, value in values.items()}
    partial_gradients.reduce(model, model.tensor)
    values |= {f"{name} gradient": whole(p, p.grad) for name, p in model.named_parameters()}
    return {name: value.cpu() for name, value in {**values, "loss": loss.detach()}.items()}


@cache
def expected_step(label: str, dtype: torch.dtype = torch.float64) -> Values:
    reference, (tokens, targets) = unsharded(label, dtype), batch()
    hidden = reference.embed(tokens)
    hidden.retain_grad()
    logits = reference.from_embedded(hidden)
    loss = reference.loss(logits, targets)
    loss.backward()
    gradients = {f"{n} gradient": p.grad for n, p in reference.named_parameters()}
    return {"logits": logits, "loss": loss, "hidden gradient": hidden.grad, **gradients}


def off(actual: Values, expected: Values, limit: float = EXACT) -> dict[str, float]:
    """What is off by more than `limit`."""
    assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
    errors = {name: relative_error(actual[name], expected[name]) for name in expected}
    return {name: error for name, error in errors.items() if not error <= limit}


@pytest.mark.parametrize("label", MODELS)
@sequence_parallel_or_not
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_equal_the_unsharded_model(
    pool, size, sequence_parallel, label
) -> None:
    args = (label, torch.float64, sequence_parallel)
    for actual in pool(size).run(forward_and_backward, *args):
        assert off(actual, expected_step(label)) == {}


# What (logits, loss, any gradient) may be off by, from the table above.
ENVELOPES = {torch.float32: (1e-6, 4e-7, 2e-6), torch.bfloat16: (2e-2, 4e-3, 6e-2)}


@pytest.mark.parametrize("dtype", ENVELOPES, ids=["fp32", "bf16"])
@sequence_parallel_or_not
@pytest.mark.parametrize("size", [1, 2, 8])
def test_low_precision_stays_within_the_measured_envelope(
    pool, size, sequence_parallel, dtype
) -> None:
    expected = expected_step("tied", dtype)
    for actual in pool(size).run(forward_and_backward, "tied", dtype, sequence_parallel):
        # The keys' bias adds the same to all scores of a query: its gradient is rounding alone.
        names = [name for name in expected if not name.endswith("qkv.bias gradient")]
        errors = {name: relative_error(actual[name], expected[name]) for name in names}
        worst = errors.pop("logits"), errors.pop("loss"), max(errors.values())
        limits = ENVELOPES[dtype]
        assert all(w <= limit for w, limit in zip(worst, limits, strict=True)), (worst, limits)


@sequence_parallel_or_not
@pytest.mark.parametrize("size", [1, 2, 8])
@on_ranks("size")
def test_autocast_rounds_no_more_on_many_ranks_than_bf16_weights_do(
    world: World, sequence_parallel: bool
) -> None:
    """How far fp32 weights under autocast to bf16 are off; the padding's logits."""
    model = sharded(world, "tied", torch.float32, sequence_parallel=sequence_parallel)
    tokens, targets = (x.to(world.device) for x in batch())
    with torch.autocast(world.device.type, torch.bfloat16):
        logits = model(tokens)
        loss = model.loss(logits, targets)
    loss.backward()
    partial_gradients.reduce(model, model.tensor)
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all(), "not even a rank that holds nothing but padding"
    expected = expected_step("tied", torch.float32)
    errors = {"loss": relative_error(loss, expected["loss"].to(world.device))}
    for name, parameter in model.named_parameters():
        if not name.endswith("qkv.bias"):
            actual = whole(parameter, parameter.grad)
            wanted = expected[f"{name} gradient"].to(world.device)
            errors[name] = relative_error(actual, wanted)
    assert errors.pop("loss") <= ENVELOPES[torch.bfloat16][1]
    assert max(errors.values()) <= ENVELOPES[torch.bfloat16][2], errors


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@on_ranks(2)
def test_an_empty_share_of_the_batch_has_a_gradient_of_zero(world: World, dropout: float) -> None:
    """Whose gradient is not 0 where this rank's share of a batch is empty, in a sum over tokens."""
    wrong = []
    for sequence_parallel in (False, True):
        config = GPTConfig(**MODELS["grouped"], dropout=dropout)
        model = GPT(
            config, tensor=world.whole, sequence_parallel=sequence_parallel, device=world.device
        )
        none = torch.zeros(0, 8, dtype=torch.long, device=world.device)
        logits = model(none)
        assert logits.shape == (8, 0, config.vocab // world.size)
        assert model.loss(logits, none).isnan(), "as torch's mean over nothing"
        cross_entropy(logits, none.t(), axis=world.whole).sum().backward()
        partial_gradients.reduce(model, world.whole)
        wrong += [n for n, p in model.named_parameters() if p.grad is None or p.grad.any()]
    assert wrong == []


@on_ranks(2)
def test_a_model_that_cannot_be_cut_is_refused_with_what_could(world: World) -> None:
    def build(**options: Any) -> GPT:
        changes = {name: options.pop(name) for name in list(options) if name in BASE}
        config = GPTConfig(**(BASE | changes))
        return GPT(config, tensor=world.whole, device=world.device, **options)

    with pytest.raises(ValueError, match="tensor axis of size 2 does not divide 5 heads; choose"):
        build(heads=5, hidden=20)
    with pytest.raises(ValueError, match="pipeline axis of size 3 does not divide 2 layers"):
        build(stages=3)
    with pytest.raises(ValueError, match="stage 2 of 2: expected 0 <= stage < 2"):
        build(stage=2, stages=2)
    tokens = torch.zeros(1, 9, dtype=torch.long, device=world.device)
    with pytest.raises(ValueError, match="sequence of 9 tokens, but the model has 8 positions"):
        build()(tokens)
    with pytest.raises(ValueError, match="does not divide 7 tokens of a sequence"):
        build(sequence_parallel=True)(tokens[:, :7])


@on_ranks(2)
def test_a_shorter_sequence_gives_the_first_rows_of_a_longer_one(world: World) -> None:
    model = sharded(world, "tied", torch.float64)
    tokens, _ = (x.to(world.device) for x in batch())
    assert torch.allclose(model(tokens)[:6], model(tokens[:, :6]), rtol=EXACT)


@pytest.mark.parametrize("dropout", [0.0, 1e-30], ids=["keeping", "dropping"])
def test_a_token_of_a_packed_sequence_sees_its_own_document_alone(dropout: float) -> None:
    model = GPT(GPTConfig(**BASE, dtype=torch.float64, dropout=dropout), tensor=Axis.alone())
    tokens, _ = batch()
    documents = torch.stack([document_ids([3, 0, 5]), document_ids([5, 3])])
    changed = tokens.clone()
    changed[0, :3] = (changed[0, :3] + 1) % 16
    before, after = (model(words, documents) for words in (tokens, changed))  # [S, B, V]
    assert torch.equal(before[3:, 0], after[3:, 0])
    assert not torch.allclose(before[2, 0], after[2, 0])
    assert not torch.allclose(before[7], model(tokens)[7])


@on_ranks(3)
def test_a_mean_over_three_context_ranks_is_rounded_in_the_losses_dtype(world: World) -> None:
    """Three context ranks share 12 tokens of two sequences, of which 23 are counted."""
    context = ContextParallel(world.whole)
    config = GPTConfig(**BASE | {"sequence": 12}, dtype=torch.float64)
    model = GPT(config, tensor=Axis.alone(), context=context)
    generator = torch.Generator().manual_seed(0)
    logits_SBv = torch.randn(12, 2, 19, generator=generator, dtype=torch.float64)
    targets_BS = torch.randint(19, (2, 12), generator=generator)
    targets_BS[0, 0] = IGNORED
    local = model.loss(logits_SBv[context.positions(4)], context.shard(targets_BS))
    right = torch.nn.functional.cross_entropy(logits_SBv.flatten(0, 1), targets_BS.t().flatten())
    assert relative_error(world.whole.all_reduce(local[None], op="mean")[0], right) <= EXACT


def test_stages_may_have_unequal_numbers_of_blocks() -> None:
    whole_model, tokens = GPT(GPTConfig(**BASE), tensor=Axis.alone()), batch()[0]
    parts = [range(0), range(2)]
    first, last = (
        GPT(GPTConfig(**BASE), tensor=Axis.alone(), stage=i, stages=2, blocks=blocks)
        for i, blocks in enumerate(parts)
    )
    assert [len(first.layers), len(last.layers)] == [0, 2]
    assert torch.equal(last(first(tokens)), whole_model(tokens))
