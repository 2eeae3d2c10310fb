"""megatron-core's own layers counted: what they ask for over the tensor axis, cut every way.

And its groups, and which tokens its ranks get of a sequence that is cut.

Dimensions: S sequence, B batch, H hidden, V vocabulary; s, v: this rank's share.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DistributedSampler

from costlab.implementations import megatron as core
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
