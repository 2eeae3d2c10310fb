"""The time of a step, term by term: work over the data sheet's rates, times a factor for each.

`count` says what a run computes, reads and sends, in seconds at the rates of the data sheets.
`FACTORS` says how many times longer it takes; `learn` fits them to published runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costlab.layouts.runs import BITS, CARDS, FACTS, STACKS, Card, Run

Array = NDArray[np.float64]

# A first guess, and the spread (in logarithms) that it may be off by: what is known of kernels.
FACTORS: dict[str, tuple[float, float]] = {
    **FACTS["factors"], **{f"stack {name}": (1.0, 0.08) for name in STACKS}
}  # fmt: skip
NAMES = list(FACTORS)
OF_EXPERTS = np.array([name.endswith("experts") for name in NAMES])
FIXED = 0.005  # seconds of a step that no term has
SHARPNESS = 4  # of the largest of computing, launching and gathering: (a⁴ + b⁴ + c⁴)^¼
TERMS = ("products", "attention", "pointwise", "tensor and context links", "launches and gathers",
         "head", "stage link", "bubble", "data link", "optimizer")  # fmt: skip


class _Rank:
    """A rank's part of a run: its rates, its tokens, its columns, and the weights of a layer.

    Attributes:
        rate, memory, link, network: operations a second of a product, bytes a second of the others.
        rows, ffn: rows that meet the feed-forward network, or an expert, and its width.
        again: whether backward runs forward again; `passes` has that, and two products in backward.
        sizes: of each product both sides, the rows that meet them, and how many a rank has.
        weights: of each product.
        copies: data-parallel ranks of the attention's weights and the network's, and the ranks of
            a domain that cut these.
    """

    def __init__(self, run: Run, card: Card) -> None:
        t, copies = run.tensor, run.data * run.context
        self.run, self.card, self.stack = run, card, STACKS[run.stack]
        self.rate, self.memory = card.flops[BITS[run.dtype]] * 1e12, card.memory * 1e9
        self.link, self.network = card.link * 1e9, (run.network or card.network) / 8 * 1e9
        self.tokens, self.vocabulary = (
            run.micro_batch * run.sequence / run.context,
            run.vocabulary / t,
        )
        self.heads, self.groups = run.heads / t, max(1.0, run.kv_heads / t)
        self.dim, self.into = run.head_size or run.hidden // run.heads, 1 + run.gated
        self.again = run.recompute == "full"
        self.passes = 3 + self.again
        many, self.rows, self.ffn = 1.0, self.tokens, run.ffn / t
        self.copies = ((copies, t), (copies, t))
        if run.experts:  # whole on their ranks, and each has its part of the rows
            many, self.rows, self.ffn = (
                run.experts / run.expert,
                run.top_k * self.tokens / t,
                run.ffn,
            )
            self.copies = ((copies, t), (max(1, t * copies // run.expert), run.expert))
        hidden, columns = run.hidden, self.heads * self.dim
        self.sizes = np.array([
            ((self.heads + 2 * self.groups) * self.dim, hidden, self.tokens, 1),
            (hidden, columns, self.tokens, 1),
            (self.into * self.ffn, hidden, self.rows / many, many),
            (hidden, self.ffn, self.rows / many, many),
        ]).T  # fmt: skip
        n, k, _, times = self.sizes
        self.weights = n * k * times
        # Elements that sequence-parallel ranks gather and scatter.
        self.reduced = (4 + 2 * self.again) * 4 * (t - 1) / t * self.tokens * hidden

    def exchange(self, elements: float, copies: int, near: int) -> float:
        """Return the seconds to gather and to reduce elements that `near` ranks of a domain cut."""
        domain = self.card.domain
        slow = min(self.link, self.network * max(1, domain // near))
        between = self.link if near * copies <= domain else slow
        return 6 * elements * (copies - 1) / copies / between


def count(run: Run, card: Card | None = None) -> dict[str, Any]:
    """Return a run's work, in seconds at a card's rates: of a layer, but where it says else."""
    rank = _Rank(run, card or CARDS[run.card])
    parts = (_count_products, _count_attention, _count_links, _count_pipeline, _describe_program)
    return {name: value for part in parts for name, value in part(rank).items()}


def _count_products(rank: _Rank) -> dict[str, Any]:
    """Return the products of a layer and of the head, and what runs on their rows."""
    run, (n, k, m, times), memory = rank.run, rank.sizes, rank.memory
    sides = np.sum(times * (m * (n + k) + n * k))
    # FSDP's programs gather and scatter the second dimension: a copy, if there are more sequences.
    copied = 4 * rank.reduced * (run.zero == 3 and run.micro_batch > 1)
    cut = run.tensor if rank.stack.sequence_parallel else 1
    pointwise = 2 * rank.tokens * run.hidden / cut + 2 * rank.rows * 0.3 * rank.ffn * rank.into
    permuted = rank.passes * 2 * rank.rows * run.hidden * bool(run.experts)
    head = 2 * rank.tokens * rank.vocabulary * run.hidden
    head_sides = 3 * rank.tokens * rank.vocabulary + rank.vocabulary * run.hidden
    return {
        "products": rank.passes * 2 * np.sum(rank.weights * m) / rank.rate,
        "operands": (copied + rank.passes * 2 * sides) / memory,
        "narrow": rank.passes * 256 * sides / rank.rate,
        "accumulation": rank.weights.sum() * 10 / memory,
        "pointwise": rank.passes * pointwise / memory,
        "permuted": permuted / memory,
        "passes": rank.passes,
        "launched experts": rank.passes * bool(run.experts),
        "head products": 3 * head / (rank.card.flops[16] * 1e12),
        "head operands": 6 * head_sides / memory,
    }


def _count_attention(rank: _Rank) -> dict[str, Any]:
    run, kind = rank.run, rank.stack.attention
    in_memory = kind in ("softmax", "eager")
    pairs = run.micro_batch * run.sequence**2 / run.context  # of a query and a key
    wide, recomputed = rank.card.flops[16] * 1e12, run.recompute != "none"
    attention = 4 * pairs * rank.heads * rank.dim * (1 if in_memory else 0.5) / wide
    attention *= (3 if in_memory else 3.5) + recomputed
    scores = 2 * pairs * rank.heads * (3 if kind == "eager" else 1) / rank.memory
    near = run.tensor * run.context <= rank.card.domain
    keys = 12 * rank.tokens * rank.groups * rank.dim * (run.context - 1)
    return {
        "attention": attention,
        "scores": scores * (3 + recomputed) if in_memory else 0,
        "unaligned": attention if rank.dim % 8 else 0,
        "keys": keys / (rank.link if near else rank.network),
        "in memory": in_memory,
        "older kernels": kind == "flash" and rank.card.family != "ampere",
    }


def _count_links(rank: _Rank) -> dict[str, Any]:
    """Return what crosses the tensor, data and expert axes; "exchanged", "optimizer" of a step."""
    run, t, domain = rank.run, rank.run.tensor, rank.card.domain
    link, network = rank.link, rank.network
    leaving = max(0, run.expert - domain) / run.expert  # of an all-to-all's rows, of a domain
    dispatched = 8 * rank.rows * run.hidden * bool(run.experts)  # there and back, both passes
    of_attention, of_network = rank.weights[:2].sum(), rank.weights[2:].sum()
    layers, (attention, network_copies) = run.layers / run.stages, rank.copies
    parameters = ((layers * of_attention + rank.vocabulary * run.hidden, *attention),
                  (layers * of_network, *network_copies))  # fmt: skip
    gathered = rank.exchange(of_attention, *attention) + rank.exchange(of_network, *network_copies)
    cut = run.zero == 3 and run.stages == 1
    return {
        "reduced": rank.reduced / (link if t <= domain else min(link, network * domain)),
        "collectives": (4 + 2 * rank.again) * (t > 1),
        "gathered": gathered if cut else 0,
        "dispatched inside": dispatched * (1 - leaving - 1 / run.expert) / link,
        "dispatched outside": dispatched * leaving / network,
        "exchanged": 0 if cut else sum(rank.exchange(*part) for part in parameters),
        "optimizer": sum(30 * size / (shares if run.zero else 1) for size, shares, _ in parameters)
        / rank.memory,
    }


def _count_pipeline(rank: _Rank) -> dict[str, Any]:
    run, p = rank.run, rank.run.stages
    deepest = -(-run.layers // p)
    last = run.layers - (p - 1) * deepest
    if (run.layers + 2) % p == 0 and p > 2:  # stages that count embedding and head as layers
        deepest = (run.layers + 2) // p
        last = deepest - 1
    sent = 4 * rank.tokens * run.hidden / (run.tensor if rank.stack.scatter else 1) / rank.network
    return {"sent": sent * (p > 1) * run.chunks, "micro-batches": run.micro_batches, "stages": p,
            "chunks": run.chunks, "layers": run.layers, "deepest": deepest,
            "last": max(0, last)}  # fmt: skip


def _describe_program(rank: _Rank) -> dict[str, Any]:
    stack, family = rank.stack, rank.card.family
    return {"precision": f"{family} {BITS[rank.run.dtype]}", "half": f"{family} 16",
            "fused": stack.fused, "overlap": stack.overlap, "eager": stack.eager_host,
            "blocking": stack.blocking, "asynchronous": stack.async_tensor,
            "stack": NAMES.index(f"stack {rank.run.stack}")}  # fmt: skip


def tabulate(runs: Sequence[Run]) -> dict[str, NDArray[Any]]:
    """Return the work of several runs, an array for each kind."""
    counts = [count(run) for run in runs]
    return {name: np.array([row[name] for row in counts]) for name in counts[0]}


def terms(work: Mapping[str, NDArray[Any]], logs: Array) -> dict[str, Array]:
    """Return the seconds of each of TERMS, that together are the step.

    Args:
        work: what `tabulate` returned.
        logs: the logarithm of each factor, in the order of NAMES.
    """
    factor = dict(zip(NAMES, np.exp(logs), strict=True))
    factor["products, blackwell 16"] = factor["products, hopper 16"]  # no row has it
    slow = np.array([factor[f"products, {key}"] for key in work["precision"]])
    half = np.array([factor[f"products, {key}"] for key in work["half"]])
    newer = np.where(work["older kernels"], factor["flash attention, newer card"], 1)
    products = (slow * work["products"] + factor["operands"] * work["operands"]
                + factor["narrow"] * work["narrow"]
                + factor["accumulation"] * work["accumulation"])  # fmt: skip
    attention = np.where(work["in memory"], factor["attention, scores in memory"],
                         factor["flash attention"] * newer)  # fmt: skip
    attention = (attention * work["attention"] + factor["scores"] * work["scores"]
                 + factor["unaligned heads"] * work["unaligned"])  # fmt: skip
    pointwise = np.where(work["fused"], factor["pointwise, fused"], factor["pointwise, unfused"])
    pointwise = pointwise * work["pointwise"] + factor["permuted, experts"] * work["permuted"]
    behind = np.where(work["asynchronous"], factor["tensor link, asynchronous"], 1)
    links = (behind * factor["tensor link"] * work["reduced"]
             + factor["tensor latency"] * work["collectives"]
             + factor["data link, overlapped"] * work["keys"]
             + factor["link in a domain, experts"] * work["dispatched inside"]
             + factor["network, experts"] * work["dispatched outside"])  # fmt: skip
    host = np.where(work["eager"], factor["launches, eager"], factor["launches"]) * work["passes"]
    host = host + factor["launches, experts"] * work["launched experts"]
    computed = products + attention + pointwise + links
    gathered = factor["gathers"] * work["gathered"]
    layer = (computed**SHARPNESS + host**SHARPNESS + gathered**SHARPNESS) ** (1 / SHARPNESS)
    layer = layer + np.where(work["blocking"], host, 0)
    head = half * work["head products"] + factor["head"] * work["head operands"]
    sent = factor["stage link"] * work["sent"]
    mean = (work["layers"] * layer + head) / work["stages"] + sent
    m = work["micro-batches"]
    with_head = work["last"] * layer + head > work["deepest"] * layer
    deep = m * np.where(with_head, work["last"], work["deepest"])
    scale = np.exp(logs)[work["stack"]]
    link = np.where(work["overlap"], factor["data link, overlapped"], factor["data link"])
    parts = (
        deep * products, deep * attention, deep * pointwise, deep * links,
        deep * (layer - computed), m * np.where(with_head, head, 0), m * sent,
        (work["stages"] - 1) / work["chunks"] * mean, link * work["exchanged"],
        factor["optimizer"] * work["optimizer"] + FIXED,
    )  # fmt: skip
    return dict(zip(TERMS, (scale * part for part in parts), strict=True))


def log_seconds(work: Mapping[str, NDArray[Any]], logs: Array) -> Array:
    """Return the logarithm of the step's seconds."""
    return np.asarray(np.log(np.sum(list(terms(work, logs).values()), axis=0)))
