"""Megatron's own layer of experts on two ranks, counted: what it sends, computes and balances.

Tokens choose their experts by their first E numbers, which the router's weights pass on. So the
load is even, or all on the first rank, by construction and not by chance.

Dimensions: T tokens of a rank, H hidden, E experts.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from costlab.implementations import megatron as core
from costlab.implementations.megatron import experts as moe
from costlab.implementations.megatron.gpt import transformer_layer
from costlab.record.result import Metric
from costlab.sections.metrics import counted
from shardlab.comm import World
from shardlab.proofs.ledger import Ledger

T, H, E, K, FFN = 16, 16, 4, 2, 32
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
