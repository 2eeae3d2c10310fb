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


def count(run: Run, card: Card | None = None) -> dict[str, Any]:
    """Return a run's work, in seconds at a card's rates: of a layer, but where it says else."""
    card, stack = card or CARDS[run.card], STACKS[run.stack]
    wide = card.flops[16] * 1e12
    rate, memory = card.flops[BITS[run.dtype]] * 1e12, card.memory * 1e9
    link, network = card.link * 1e9, (run.network or card.network) / 8 * 1e9
    t, p, cp = run.tensor, run.stages, run.context
    tokens = run.micro_batch * run.sequence / cp
    hidden, heads, groups = run.hidden, run.heads / t, max(1.0, run.kv_heads / t)
    dim, into = run.head_size or run.hidden // run.heads, 1 + run.gated
    vocabulary = run.vocabulary / t
    again = run.recompute == "full"
    passes = 3 + again  # forward, two products in backward, and forward again
    # Experts are whole on their ranks, and each has its part of the rows.
    many, rows, ffn = 1.0, tokens, run.ffn / t
    copies, copies_of_network, near = run.data * cp, run.data * cp, t
    if run.experts:
        many, rows, ffn = run.experts / run.expert, run.top_k * tokens / t, run.ffn
        copies_of_network, near = max(1, t * copies // run.expert), run.expert
    # Products: both sides, the rows that meet them, and how many of them a rank has.
    n, k, m, times = np.array([
        ((heads + 2 * groups) * dim, hidden, tokens, 1), (hidden, heads * dim, tokens, 1),
        (into * ffn, hidden, rows / many, many), (hidden, ffn, rows / many, many),
    ]).T  # fmt: skip
    weights, sides = n * k * times, np.sum(times * (m * (n + k) + n * k))
    in_memory = stack.attention in ("softmax", "eager")
    pairs = run.micro_batch * run.sequence**2 / cp  # of a query and a key
    attention = 4 * pairs * heads * dim * (1 if in_memory else 0.5) / wide
    attention *= (3 if in_memory else 3.5) + (run.recompute != "none")
    scores = 2 * pairs * heads * (3 if stack.attention == "eager" else 1) / memory
    pointwise = 2 * tokens * hidden / (t if stack.sequence_parallel else 1)
    pointwise += 2 * rows * 0.3 * ffn * into
    reduced = (4 + 2 * again) * 4 * (t - 1) / t * tokens * hidden
    # FSDP's programs gather and scatter the second dimension: a copy, if there are more sequences.
    copied = 4 * reduced * (run.zero == 3 and run.micro_batch > 1)
    keys = 12 * tokens * groups * dim * (cp - 1) / (link if t * cp <= card.domain else network)
    head = 2 * tokens * vocabulary * hidden
    leaving = max(0, run.expert - card.domain) / run.expert  # of an all-to-all's rows, of a domain
    dispatched = 8 * rows * hidden * bool(run.experts)  # there and back, forward and backward

    def exchange(elements: float, copies: int, near: int) -> float:
        """Return the seconds to gather and to reduce elements that `near` ranks of a domain cut."""
        inside = near * copies <= card.domain
        between = link if inside else min(link, network * max(1, card.domain // near))
        return 6 * elements * (copies - 1) / copies / between

    attention_weights, network_weights = weights[:2].sum(), weights[2:].sum()
    held = ((run.layers / p * attention_weights + vocabulary * hidden, copies, t),
            (run.layers / p * network_weights, copies_of_network, near))  # fmt: skip
    gathered = exchange(attention_weights, copies, t)
    gathered += exchange(network_weights, copies_of_network, near)
    deepest = -(-run.layers // p)
    last = run.layers - (p - 1) * deepest
    if (run.layers + 2) % p == 0 and p > 2:  # stages that count embedding and head as layers
        deepest = (run.layers + 2) // p
        last = deepest - 1
    return {
        "products": passes * 2 * np.sum(weights * m) / rate,
        "operands": (copied + passes * 2 * sides) / memory,
        "narrow": passes * 256 * sides / rate,
        "attention": attention,
        "scores": scores * (3 + (run.recompute != "none")) if in_memory else 0,
        "unaligned": attention if dim % 8 else 0,
        "pointwise": passes * pointwise / memory,
        "accumulation": weights.sum() * 10 / memory,
        "reduced": reduced / (link if t <= card.domain else min(link, network * card.domain)),
        "collectives": (4 + 2 * again) * (t > 1),
        "keys": keys,
        "passes": passes,
        "gathered": gathered if run.zero == 3 and p == 1 else 0,
        "permuted": passes * 2 * rows * hidden * bool(run.experts) / memory,
        "dispatched inside": dispatched * (1 - leaving - 1 / run.expert) / link,
        "dispatched outside": dispatched * leaving / network,
        "launched experts": passes * bool(run.experts),
        "head products": 3 * head / wide,
        "head operands": 6 * (3 * tokens * vocabulary + vocabulary * hidden) / memory,
        "sent": 4 * tokens * hidden / (t if stack.scatter else 1) / network * (p > 1) * run.chunks,
        # Of a step:
        "exchanged": sum(exchange(*part) for part in held) if run.zero < 3 or p > 1 else 0,
        "optimizer": sum(30 * size / (shares if run.zero else 1) for size, shares, _ in held)
        / memory,
        "micro-batches": run.micro_batches,
        "stages": p,
        "chunks": run.chunks,
        "layers": run.layers,
        "deepest": deepest,
        "last": max(0, last),
        "precision": f"{card.family} {BITS[run.dtype]}",
        "half": f"{card.family} 16",
        "in memory": in_memory,
        "older kernels": stack.attention == "flash" and card.family != "ampere",
        "fused": stack.fused,
        "overlap": stack.overlap,
        "eager": stack.eager_host,
        "blocking": stack.blocking,
        "asynchronous": stack.async_tensor,
        "stack": NAMES.index(f"stack {run.stack}"),
    }


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
