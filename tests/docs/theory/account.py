"""The theory's sums of memory, by the account of `tools/bench fits`."""

from __future__ import annotations

from typing import Any

from costlab.layouts import memory
from costlab.layouts.model import Model, Plan
from costlab.layouts.model_config import FACTS

MEGATRON, SHARDLAB = (Plan(**FACTS["programs"][name]) for name in ("megatron", "shardlab"))
OF_ROWS = ("norm-statistics", "row-sums")  # a number for a row, which the paper leaves out


def make_gpt(**sizes: Any) -> Model:
    """Return a GPT with dropout, as in the paper; of one layer and one word unless named."""
    return Model(**{"layers": 1, "vocabulary": 1, "dropout": True} | sizes)


def make_plan(
    program: Plan = MEGATRON, *, data: int = 1, micro_batch: int = 1, micro_batches: int = 1,
    **settings: Any,
) -> Plan:  # fmt: skip
    """Return a plan, of unfused attention and 2,048 tokens unless named."""
    batch = {"data": data, "micro_batch": micro_batch, "global_batch": data * micro_batch}
    batch["global_batch"] *= micro_batches
    return program.changed(**{"attention": "unfused"} | batch | settings)


def count_layer(model: Model, plan: Plan) -> float:
    """Return the bytes that a layer keeps of a micro-batch, as the paper counts them."""
    stored, _ = memory.kept_terms(model, plan, bool(model.experts))
    return sum(memory.term_bytes(term, model, plan) for term in stored if term.key not in OF_ROWS)


def count_parameters(model: Model, plan: Plan = SHARDLAB) -> int:
    """Return the parameters of a rank of the first stage."""
    return sum(memory.parameters(model, plan, 0))


def count_state(model: Model, plan: Plan) -> float:
    """Return the bytes of weights, gradients and optimizer on a rank of the first stage."""
    rank = memory.rank_bytes(model, plan, 0)
    return rank["weights"] + rank["gradients"] + rank["optimizer"]


def state_bytes(program: Plan) -> int:
    """Return the bytes of a parameter's weight, gradient and optimizer state."""
    return program.weight + program.gradient + program.optimizer


def count_activations(model: Model, plan: Plan) -> float:
    """Return the bytes of activations on a rank of the first stage, with those made again."""
    lines = memory.rank_lines(model, plan, 0)
    kinds = ("activations", "logits")
    saved = sum(count for (kind, _), count in lines.items() if kind in kinds)
    return saved + lines["buffers", "of-backward"]
