"""megatron-core's own layers counted, cut every way; its groups; a layer of experts on two ranks.

Also which tokens its ranks get of a sequence that is cut. Of the experts it counts what the layer
sends, computes and balances. Tokens choose their experts by their first E numbers, which the
router's weights pass on. So the load is even, or all on the first rank, by construction and not by
chance.

Dimensions: S sequence, B batch, H hidden, V vocabulary; s, v: this rank's share; T tokens of a
rank, E experts.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler
from torch.utils.flop_counter import FlopCounterMode

from costlab.implementations import megatron as core
from costlab.implementations.megatron import moe_layer as moe
from costlab.implementations.megatron.gpt import causal_mask, data_parallel, gpt, transformer_layer
from costlab.record.result import Metric
from costlab.sections.counts.count_tensor import (
    B,
    H,
    S,
    V,
    collectives_for_weights,
    ones,
    passes,
    watched,
)
from costlab.sections.metrics import counted
from shardlab.comm import World
from shardlab.proofs.collective import Call
from shardlab.proofs.ledger import Ledger

# The groups that are often given for 8 ranks with 2 on each axis.
OFTEN_GIVEN = {
    "tp": [[0, 1], [2, 3], [4, 5], [6, 7]],
    "pp": [[0, 2], [1, 3], [4, 6], [5, 7]],
    "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
}
TOKENS = 4  # of a rank


def layers(world: World) -> Iterator[Metric]:
    """A block, a feed-forward, each linear and the loss."""
    with core.megatron(tensor=world.size):
        plain = core.config(hidden=H, heads=4, dtype=torch.float32)
        cut = core.config(hidden=H, heads=4, dtype=torch.float32, sequence_parallel=True)
        yield from _blocks(world, plain, cut)
        yield from _feed_forward(world, plain, cut)
        yield from _linears(world, plain, cut)
        for name, config in (("tp", plain), ("sp", cut)):
            yield counted(f"{name}-megatron.gradients.all_reduce", _finished(world, config))
        logits, tokens = ones(S, B, V // world.size), torch.zeros(S, B, dtype=torch.int64)
        loss = watched(lambda: core.vocab_parallel_cross_entropy(logits, tokens))
        yield from passes("cross-entropy-megatron", loss)


def _blocks(world: World, plain: Any, cut: Any) -> Iterator[Metric]:
    """A TransformerLayer, and the same sequence-parallel."""
    whole, mask = transformer_layer(plain), causal_mask(S)
    ledger = watched(lambda: whole(ones(S, B, H), attention_mask=mask)[0])
    yield from passes("block-megatron", ledger)
    layer = transformer_layer(cut)
    scattered = watched(lambda: layer(ones(S // world.size, B, H), attention_mask=mask)[0])
    wire_bytes = Call("all_reduce", S * B * H * 4, world.size).wire
    worth = scattered.total(phase="").wire / wire_bytes
    yield counted("block-sp-megatron.forward.all-reduces-worth", worth)
    ratio = scattered.total().wire / ledger.total().wire
    yield counted("sp-megatron.wire-ratio", ratio, "ratio")


def _feed_forward(world: World, plain: Any, cut: Any) -> Iterator[Metric]:
    """Megatron's MLP, its first linear alone, and what is asked for its weights' sake."""
    mlp: Any = transformer_layer(plain).mlp
    yield from passes("ffn-megatron", watched(lambda: mlp(ones(S, B, H))[0]))
    first = watched(lambda: mlp.linear_fc1(ones(S, B, H))[0])
    yield from passes("ffn-first-megatron", first)
    rows = mlp.linear_fc1.weight.shape[0] / mlp.config.ffn_hidden_size
    yield counted("ffn-first-megatron.stored-rows-share", rows, "share")
    for name, config, tokens in (("tp", plain, S), ("sp", cut, S // world.size)):
        module: Any = transformer_layer(config).mlp
        x = ones(tokens, B, H)
        # A module of Megatron's returns its bias apart.
        collectives = collectives_for_weights(module, lambda module, x=x: module(x)[0])  # type: ignore[misc]
        yield counted(f"{name}-megatron.weight-gradients.collectives", collectives)


def _linears(world: World, plain: Any, cut: Any) -> Iterator[Metric]:
    """A column- and a row-parallel linear; the row-parallel one under each setting."""
    x_SBh = ones(S, B, 4 * H // world.size)
    common: dict[str, Any] = {"init_method": nn.init.ones_, "bias": True}
    column = core.ColumnParallelLinear(H, 4 * H, gather_output=False, config=plain, **common)
    row = _row(plain, **common)
    for name, linear, whole in (("column", column, 4 * H), ("row", row, H)):
        yield counted(f"{name}-megatron.bias-share", linear.bias.numel() / whole, "share")
    yield from passes("row-megatron", watched(lambda: row(x_SBh)[0]))
    yield from passes("column-megatron", watched(lambda: column(ones(S, B, H))[0]))
    scattering = _row(cut, **common)
    yield from passes("row-sp-megatron", watched(lambda: scattering(x_SBh)[0]))
    # An expert's: whoever dispatches the tokens adds the parts up, and the bias.
    expert = _row(plain, is_expert=True, **common | {"bias": False})
    yield from passes("row-expert-megatron", watched(lambda: expert(x_SBh)[0]))


def _row(config: Any, *, is_expert: bool = False, **common: Any) -> Any:
    return core.RowParallelLinear(
        4 * H, H, input_is_parallel=True, skip_bias_add=is_expert, config=config,
        is_expert=is_expert, **common,
    )  # fmt: skip


def _finished(world: World, config: Any) -> int:
    """Count the all-reduces over the tensor axis that finish a GPT's gradients after backward."""
    model = data_parallel(gpt(config, vocab=V, sequence=S, tied=False))
    tokens_BS = torch.zeros(B, S, dtype=torch.int64)
    places_BS = torch.arange(S).expand(B, S)
    with Ledger() as ledger:
        model(tokens_BS, places_BS, causal_mask(S)).sum().backward()
        with ledger.phase("step"):
            core.finalize_model_grads([model])
    reduced = ledger.select("all_reduce", phase="step")
    return sum(len(entry.ranks) == world.size for entry in reduced)


def groups() -> Iterator[Metric]:
    """Megatron's own enumeration of 2 × 2 × 2, in its default order and in the alternative."""
    for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"):
        ranks = core.parallel_state.RankGenerator(tp=2, ep=1, dp=2, pp=2, cp=1, order=order)
        same = [
            axis
            for axis, groups_given in OFTEN_GIVEN.items()
            if ranks.get_ranks(axis) == groups_given
        ]
        short = order.replace("cp-ep-", "")
        yield counted(f"groups.{short}.as-often-given", len(same), axes=", ".join(same))
    yield from _shares(ranks.get_ranks("dp"), ranks.get_ranks("tp-pp"))


def _shares(data: list[list[int]], replicas: list[list[int]]) -> Iterator[Metric]:
    """Different samples that the ranks of a group draw, by Megatron's groups and torch's sampler.

    A rank's place in its data group is what a data loader shares out by.
    """
    drawn: dict[int, tuple[int, ...]] = {
        rank: tuple(DistributedSampler(range(8), len(group), place, shuffle=False))  # type: ignore[arg-type]
        for group in data
        for place, rank in enumerate(group)
    }
    for name, groups in (("data-group", data), ("replica", replicas)):
        largest = max(len({drawn[rank] for rank in group}) for group in groups)
        yield counted(f"batch-shares.{name}", largest)


def balance(world: World) -> Iterator[Metric]:
    """The slowest rank's share of a causal mask, of the mean, as Megatron cuts a sequence."""
    from megatron.core.utils import get_batch_on_this_cp_rank

    whole = {"position_ids": torch.arange(TOKENS * world.size)[None]}
    places = get_batch_on_this_cp_rank(whole, cp_group=world.whole.group)["position_ids"]
    keys = world.whole.all_gather((places + 1).sum()[None]).double()  # that its queries see
    slowest = float(keys.max() / keys.mean())
    yield counted(f"context-megatron.n{world.size}.slowest", slowest, "ratio")


T, E, K, FFN = 16, 4, 2, 32
CAPACITY = 1.25  # what the paper on Switch Transformers settles on (arXiv 2101.03961, section 2.2)
COEFFICIENT = 1e-2  # as the quick start of Megatron-LM's README on MoE sets it
RATE, STEPS = 100.0, 200  # of the auxiliary loss alone, until it falls no more


def experts(world: World) -> Iterator[Metric]:
    """What it sends, computes and balances."""
    with moe.megatron(expert_model_parallel_size=world.size):
        yield from _sent(world)
        yield from _computed(world)
        yield from _balanced(world)


def _sent(world: World) -> Iterator[Metric]:
    """A step's all-to-alls, and the bytes of both dispatchers for few experts and many a token."""
    with Ledger() as ledger:
        _layer(world)(_even(K).requires_grad_())[0].sum().backward()
    rows = K * T * H * 4
    for phase, label in (("", "forward"), ("backward", "backward")):
        entries = ledger.select("all_to_all", phase=phase)
        yield counted(f"experts-megatron.{label}.all_to_all", len(entries))
        alike = sum(entry.payload == rows for entry in entries)
        yield counted(f"experts-megatron.{label}.of-all-rows", alike, rows=rows)
    for k in (1, 3):
        for dispatch in ("all-to-all", "all-gather"):
            # One expert's weight would be 1, whatever its score: Megatron asks for it beforehand.
            layer = _layer(world, k, dispatch, moe_router_pre_softmax=True)
            with Ledger() as ledger:
                layer(_even(k))
            yield counted(f"experts-megatron.k{k}.{dispatch}.sent", ledger.total().wire, "B")


def _computed(world: World) -> Iterator[Metric]:
    """The busiest rank's rows and operations, beside an even share and a dense model's."""
    config = core.config(
        hidden=H, heads=4, dtype=torch.float32, add_bias_linear=False, ffn_hidden_size=K * FFN
    )
    mlp: Any = transformer_layer(config).mlp
    dense = _operations(mlp, torch.ones(T, 1, H))["Global"]
    limited = {"moe_expert_capacity_factor": CAPACITY, "moe_pad_expert_input_to_capacity": True}
    kinds: dict[str, dict[str, Any]] = {"dropless": {}, "capacity": limited}
    for load, x in (("even", _even(K)), ("skewed", _skewed())):
        for kind, options in kinds.items():
            layer = _layer(world, **options)
            rows: list[int] = []
            layer.experts.register_forward_pre_hook(
                lambda _, args, rows=rows: rows.append(len(args[0]))
            )
            done = _operations(layer, x)["MoELayer.experts"]
            maxima = world.whole.all_reduce(torch.tensor([rows[0], done]), op="max").tolist()
            name = f"experts-megatron.{load}.{kind}"
            yield counted(f"{name}.rows", maxima[0] / (K * T), "ratio")
            yield counted(f"{name}.of-dense", maxima[1] / dense, "ratio")
    used = int(_layer(world).router(_even(K))[1].any(0).sum())
    yield counted("experts-megatron.weights-of-active", used / K, "ratio")


def _balanced(world: World) -> Iterator[Metric]:
    """The fullest expert's load, of an even share, once the auxiliary loss has trained a router."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(64 * T, 1, H, generator=draw)
    x[..., 0] += 2  # the first expert is the favourite, until the loss has said its say
    for name, tokens in (("differing", x), ("alike", x[:1].expand_as(x))):
        options: dict[str, Any] = {
            "moe_router_load_balancing_type": "aux_loss",
            "moe_aux_loss_coeff": COEFFICIENT,
        }
        router: Any = _layer(world, **options).router
        for _ in range(STEPS):
            router.zero_grad()
            probs, _ = router(tokens)
            (probs.sum() * 0).backward()  # the auxiliary loss' gradient rides on the weights'
            with torch.no_grad():
                router.weight -= RATE * router.weight.grad
        load = router(tokens)[1].sum(0)
        fullest = float(load.max() / load.float().mean())
        yield counted(f"balance-megatron.{name}.fullest", fullest, "ratio")


def _layer(world: World, k: int = K, dispatch: str = "all-to-all", **options: Any) -> Any:
    """Make a MoELayer whose router scores an expert by a token's number at the expert's place."""
    plain: dict[str, Any] = {"moe_router_load_balancing_type": "none", "add_bias_linear": False}
    layer: Any = moe.layer(moe.config(
        hidden=H, experts=E, top_k=k, ffn=FFN, expert=world.size, dispatch=dispatch,
        dtype=torch.float32, **plain | options,
    ))  # fmt: skip
    torch.nn.init.eye_(layer.router.weight)
    return layer


def _even(k: int) -> Tensor:
    """Tokens that spread evenly: the t-th chooses experts t, t + 1 …"""
    x = torch.zeros(T, 1, H)
    for place in range(k):
        x[torch.arange(T), 0, (torch.arange(T) + place) % E] = float(k - place)
    return x


def _skewed() -> Tensor:
    """Tokens that all choose the first rank's two experts."""
    x = torch.zeros(T, 1, H)
    x[..., 0], x[..., 1] = 2.0, 1.0
    return x


def _operations(module: nn.Module, x: Tensor) -> dict[str, int]:
    """Return how many operations a forward takes in products, by module."""
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        module(x)
    return {name: sum(kinds.values()) for name, kinds in flops.get_flop_counts().items()}
